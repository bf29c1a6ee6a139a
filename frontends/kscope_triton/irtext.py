"""Triton's printed IR: operations, their regions and blocks, and their source locations.

%a = tt.load %p : !tt.ptr<f16> loc(#loc4)            an operation is a line
%b = scf.for ... {                                   or it begins here,
} loc(#loc7)                                         and ends at its location
#loc7 = loc("x"(callsite(#loc4 at #loc5)))           a location is a chain of places, the innermost first
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kscope.errors import UnsupportedError

_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_LOCATED = re.compile(r"\bloc\((.*)\)$")
_NAME = re.compile(r'^\s*(?:%[^=]*? = )?"?([A-Za-z_]\w*(?:\.\w+)*)"?')
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|#loc\d*|callsite|fused|unknown|at\b|[()\[\],:<>]|\d+|[^\s()\[\],:<>"]+)')
_RESULT = re.compile(r"\s*(%[\w$.-]+)(?::\d+)? = ")
_VALUE = re.compile(r"%[\w$.-]+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_PASSES_ON = re.compile(r"(?:scf\.(?:yield|condition)|cf\..*|tt\.return|ttg\.warp_(?:yield|return)|.*\.unreachable)$")
_FUNCTION = re.compile(r"\btt\.func (?:(public|private) )?@(\"[^\"]*\"|[\w$.-]+)")


@dataclass(frozen=True, order=True)
class Place:
    """One line of source. column counts from 1; 0 if unknown."""

    file: str
    line: int
    column: int = 0


Places = tuple[Place, ...]
"""An operation's origin: its own line, then the calls that it was inlined through."""


@dataclass
class Operation:
    """One operation.

    Attributes:
        name: such as scf.for or tt.load.
        first, last: its lines in the text, counted from 0.
        heading: its first line.
        places: its origin.
        blocks: the blocks of its regions.
    """

    name: str
    first: int
    heading: str
    last: int = -1
    places: Places = ()
    blocks: list[Block] = field(default_factory=list)

    @property
    def result(self) -> str:
        """The name of its result, %a; for several, the name of all. Empty without one."""
        match = _RESULT.match(self.heading)
        return match[1] if match else ""

    @property
    def operands(self) -> list[str]:
        """The names of values in its first line, including those of its results."""
        return _VALUE.findall(self.heading)

    @property
    def leaf(self) -> bool:
        """True if no marks may be put inside it: it has no blocks, or they only define how values are combined."""
        return not self.blocks or self.name not in _OPENED


@dataclass
class Block:
    """Operations that run in order; the last one passes control on. opened: the line where its region begins."""

    opened: str = ""
    operations: list[Operation] = field(default_factory=list)

    @property
    def body(self) -> list[Operation]:
        """The operations without a last one that only passes control on, which is not always printed."""
        ends = bool(self.operations) and _PASSES_ON.match(self.operations[-1].name) is not None
        return self.operations[:-1] if ends else self.operations


_OPENED = ("scf.for", "scf.while", "scf.if", "ttg.warp_specialize", "builtin.module", "module", "tt.func")
"""Operations whose regions are code of the kernel."""


@dataclass(frozen=True)
class Function:
    """A tt.func. public: it is a kernel, not a function that kernels call."""

    name: str
    public: bool
    operation: Operation


def functions(text: str) -> tuple[Function, ...]:
    """The functions of a module. Raises UnsupportedError for text in another form."""
    found = []
    for operation in walk(_parse(text.splitlines())):
        if operation.name == "tt.func" and (match := _FUNCTION.search(operation.heading)):
            found.append(Function(match[2].strip('"'), match[1] != "private", operation))
    return tuple(found)


def walk(block: Block) -> Iterator[Operation]:
    """Every operation in a block, outer ones first."""
    for operation in block.operations:
        yield operation
        for inner in operation.blocks:
            yield from walk(inner)


def _parse(lines: list[str]) -> Block:
    """The text as a tree: a block with the module."""
    aliases = {match[1]: match[2] for line in lines if (match := _ALIAS.match(line))}
    known: dict[str, Places] = {}
    top = Block()
    open_operations: list[Operation] = []
    open_blocks = [top]
    for number, raw in enumerate(lines):
        line = raw.strip()
        if not line or line.startswith(("#", "//", "{-#")) or (len(open_blocks) == 1 and line.startswith("!")):
            continue
        if line.startswith("^"):
            if len(open_blocks) < 2:
                raise _unreadable(line)
            if open_blocks[-1].operations:
                open_blocks[-1] = Block(open_blocks[-1].opened)
                open_operations[-1].blocks.append(open_blocks[-1])
            continue
        if line.startswith("}"):
            if len(open_blocks) < 2:
                raise _unreadable(line)
            open_blocks.pop()
        elif not _continues(line):
            match = _NAME.match(line)
            if match is None:
                raise _unreadable(line)
            operation = Operation(match[1], number, line)
            open_blocks[-1].operations.append(operation)
            open_operations.append(operation)
        if line.endswith("{"):
            open_blocks.append(Block(line))
            open_operations[-1].blocks.append(open_blocks[-1])
        elif located := _LOCATED.search(line):
            if not open_operations:
                raise _unreadable(line)
            operation = open_operations.pop()
            operation.last = number
            # an operation's own location is the last one in its line
            operation.places = _places(_last(located[0]), aliases, known)
    if open_operations or len(open_blocks) != 1:
        raise _unreadable("its end")
    return top


def _unreadable(line: str) -> UnsupportedError:
    return UnsupportedError(f"kscope cannot read this Triton's printed IR: {line[:80]!r}")


def _continues(line: str) -> bool:
    """True if the line opens another region of the previous operation: the partitions of warp_specialize."""
    return re.match(r"default\s*\{|partition\d+\(", line) is not None


def _last(text: str) -> str:
    """The content of the last loc(...) of a line that ends with one."""
    bare = _STRING.sub(lambda found: "_" * len(found[0]), text)
    depth, at = 0, len(bare) - 1
    while at >= 0:
        depth += (bare[at] == ")") - (bare[at] == "(")
        if depth == 0:
            return text[at + 1 : -1]
        at -= 1
    raise _unreadable(text)


def _places(text: str, aliases: Mapping[str, str], known: dict[str, Places]) -> Places:
    """The places of a location; () if it is unknown."""
    if text in known:
        return known[text]
    tokens = _TOKEN.findall(text)
    found, _ = _location(tokens, 0, aliases, known)
    known[text] = found
    return found


def _location(tokens: list[str], at: int, aliases: Mapping[str, str], known: dict[str, Places]) -> tuple[Places, int]:
    """The location that begins at a token, and the index of the next token."""
    token = tokens[at] if at < len(tokens) else "unknown"
    if token.startswith("#"):
        return (_places(aliases[token], aliases, known) if token in aliases else ()), at + 1
    if token == "callsite":  # callsite(callee at caller)
        callee, at = _location(tokens, at + 2, aliases, known)
        caller, at = _location(tokens, at + 1, aliases, known)
        return callee + caller, at + 1
    if token == "fused":  # fused<metadata>[one, other]
        at += 1
        while at < len(tokens) and tokens[at] != "[":
            at += 1
        found: Places = ()
        while at < len(tokens) and tokens[at] != "]":
            one, at = _location(tokens, at + 1, aliases, known)
            found = found or one
        return found, at + 1
    if token.startswith('"'):
        rest = tokens[at + 1 : at + 5]
        if len(rest) >= 4 and rest[0] == ":" == rest[2]:
            return (Place(_unescaped(token), int(rest[1]), int(rest[3])),), at + 5
        if rest[:1] == ["("]:  # "a variable's name"(where)
            found, at = _location(tokens, at + 2, aliases, known)
            return found, at + 1
    return (), at + 1


def _unescaped(string: str) -> str:
    raw = re.sub(rb"\\([0-9A-Fa-f]{2}|.)", _byte, string[1:-1].encode())
    return raw.decode(errors="replace")


def _byte(found: re.Match[bytes]) -> bytes:
    escaped = found[1]
    return bytes([int(escaped, 16)]) if len(escaped) == 2 else escaped
