"""A mark: the one thing that a user's `with` leaves in a kernel, and how it is spelled in assembly text.

    //kscope enter load i32 - with %r12 if %r13
             act   name type strategy how operand if predicate

One comment line, so that every compiler carries it as text and nothing happens where no pass lowers
it. A compiler that can put only numbers into a text (CUDA C++) writes the same mark as

    //kscope packed 0 1 0 17 1684107116 %r12 if %r13
                    act, type, how, strategy, name, operand, predicate

with the words by their place in this file's lists, the strategy as PACKED_STRATEGIES says, the name
eight bytes at a time. What lives here: the Mark and its grammar. What does not: what becomes of it
(lowering/, ptx/).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from ..errors import UsageError
from .strategies import ANY_LANE, TargetWarp

Act = Literal["enter", "exit", "instant", "counter", "pin", "kernel"]
"""What a mark does. kernel: nothing itself; its strategy is that of the kernel's marks that name none."""
ValueType = Literal["i32", "u32", "f32"]
Origin = Literal["source", "auto", "lines"]
How = Literal["with", "call", "auto", "lines"]
"""What placed a mark: a `with` or a call in the source; auto= or regions= in code without annotations."""

PREFIX = "//kscope "
_REST = r"(?: (?!if )(\S+))?(?: if (\S+))?\s*$"
_ACTS = "|".join(get_args(Act))
_LINE = re.compile(rf"//kscope ({_ACTS}) (\S+) (i32|u32|f32|-) (\S+) (with|call|auto|lines){_REST}")
_UNSAFE = re.compile(rb"[^A-Za-z0-9_.\-]")
_PACKED = re.compile(rf"//kscope packed (\d) (\d) (\d) (\d+) (-?\d+(?:\.-?\d+)*){_REST}")
MAX_NAME_BYTES = 512
NEVER = "0"
"""A predicate that is known to be false."""
TRACK = "\x1f"
"""Stands in a name between what the user calls a region and the track that it is on."""

ACTS: tuple[Act, ...] = get_args(Act)
TYPES: tuple[ValueType | None, ...] = (None, *get_args(ValueType))
HOWS: tuple[How, ...] = ("with", "call")
"""Packed marks come from source."""
PACKED_STRATEGIES: tuple[str | None, ...] = (None, "block", "warp", "lanes")
"""A strategy as a number: its place here, for named warps their mask << 2, or PACKED_ANY_LANE."""
PACKED_ANY_LANE = 1 << 34


@dataclass(frozen=True)
class Mark:
    """One mark as a frontend emits it.

    ``operand`` is the register, immediate or placeholder (``$1``) that holds the value at this mark,
    ``how`` what placed it: all but explicit calls are paired in the source. ``when`` is the
    32-bit register or placeholder that is not 0 where the mark is recorded, or NEVER; None: always.
    """

    act: Act
    name: str
    type: ValueType | None = None
    strategy: str | None = None
    how: How = "with"
    operand: str | None = None
    when: str | None = None

    @property
    def origin(self) -> Origin:
        """Whether the source, auto= or regions= placed the mark."""
        return self.how if self.how in ("auto", "lines") else "source"

    @property
    def display_name(self) -> str:
        """The name as sentences say it."""
        return format_name(self.name)

    def comment(self) -> str:
        """The mark as one line of assembly text."""
        tail = f" {self.operand}" if self.operand is not None else ""
        tail += f" if {self.when}" if self.when is not None else ""
        return f"{PREFIX}{self.act} {quote(self.name)} {self.type or '-'} {self.strategy or '-'} {self.how}{tail}"


def parse(line: str) -> Mark | None:
    """The mark in a line of assembly text, or None. Raises UsageError for a mark that is garbled."""
    at = line.find(PREFIX)
    if at < 0:
        return None
    if (packed := _PACKED.match(line, at)) is not None:
        return _unpacked(*packed.groups())
    found = _LINE.match(line, at)
    if found is None:
        raise UsageError(f"not a kscope mark: {line.strip()!r}; was it written by another version of kscope?")
    act, name, kind, strategy, how, operand, when = found.groups()
    return Mark(
        act,  # type: ignore[arg-type]  # the pattern admits only these words
        unquote(name),
        None if kind == "-" else kind,  # type: ignore[arg-type]
        None if strategy == "-" else strategy,
        how,  # type: ignore[arg-type]
        operand,
        when,
    )


def _unpacked(act: str, kind: str, how: str, strategy: str, name: str, operand: str | None, when: str | None) -> Mark:
    """The mark that a compiler wrote in numbers. Raises UsageError for a number that means nothing."""
    mask, plain = divmod(int(strategy) % PACKED_ANY_LANE, 4)
    raw = b"".join((int(word) & (1 << 64) - 1).to_bytes(8, "little") for word in name.split("."))
    try:
        warps = tuple(warp for warp in range(mask.bit_length()) if mask >> warp & 1)
        return Mark(
            ACTS[int(act)],
            raw.rstrip(b"\0").decode(),
            TYPES[int(kind)],
            ANY_LANE
            if int(strategy) == PACKED_ANY_LANE
            else TargetWarp(*warps).spec
            if warps
            else PACKED_STRATEGIES[plain],
            HOWS[int(how)],
            operand,
            when,
        )
    except (IndexError, UnicodeDecodeError) as error:
        raise UsageError(
            f"not a kscope mark: act {act}, type {kind}, how {how}, name {raw!r} ({error}); "
            "was it written by another version of kscope, or is the source not in UTF-8?"
        ) from error


def check_name(name: object, track: object = None) -> str:
    """The name, with its track where there is one, or a UsageError: both are constant, non-empty strings."""
    name, track = getattr(name, "value", name), getattr(track, "value", track)
    if track is not None:
        if not isinstance(track, str) or not track or TRACK in f"{name}{track}":
            raise UsageError(
                f"kscope.region({name!r}, track={track!r}): "
                "a track is a non-empty string known when the kernel is compiled"
            )
        return _checked(f"{_checked(name)}{TRACK}{track}")
    return _checked(name)


def split(name: str) -> tuple[str, str | None]:
    """What the user calls a region, and its track or None. Inverse of what check_name() joins."""
    called, _, track = name.partition(TRACK)
    return (called, track) if called and track else (name, None)


def format_name(name: str) -> str:
    """A name as sentences say it: ``'load'``, ``'load' (track 'loads')``."""
    called, track = split(name)
    return repr(called) if track is None else f"{called!r} (track {track!r})"


def _checked(name: object) -> str:
    if not isinstance(name, str):
        raise UsageError(
            f"kscope.region({name!r}): the name must be a string known when the kernel is compiled; "
            "pass what changes at run time as value="
        )
    if not name or len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise UsageError(
            f"kscope.region({name[:40]!r}): a name has 1 to {MAX_NAME_BYTES} bytes of UTF-8, and its track with it"
        )
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"kscope.region({name!r}): the name is not valid Unicode ({error.reason})") from None
    return name


def quote(name: str) -> str:
    """The name with every byte outside [A-Za-z0-9_.-] as ~XX: no compiler's assembly reader minds it."""
    return _UNSAFE.sub(lambda found: b"~%02X" % found[0][0], name.encode()).decode()


def unquote(token: str) -> str:
    """Inverse of quote()."""
    raw = re.sub(rb"~([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), token.encode())
    return raw.decode(errors="replace")
