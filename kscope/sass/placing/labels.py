"""Labels: which statement of the PTX each machine instruction comes from, carried through ptxas in its line table. In
the text that is assembled for it, every statement of the kernel has a separate line, and marks are comments:

    .loc 1 53 0                          .loc 1 17 0
    ld.global ...                        ld.global ...
    //kscope enter load - - with         //kscope enter load - - with
    add.f32 ...; mul.f32 ...             .loc 1 19 0
                                         add.f32 ...;
                                         .loc 1 20 0
                                         mul.f32 ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ...errors import UnsupportedError
from ...machine_code import elf
from ...marks.grammar import Mark
from ...marks.operations import PIPELINE
from ...ptx import cfg
from ..cubin import line_tables
from ..cubin.instructions import BYTES, Function

_LINES = re.compile(r"^[ \t]*\.(?:loc|file)\s[^\n]*$", re.M)
_DEBUG = re.compile(r"^\s*\.section\s+\.debug_\w+\s*\{.*?^\s*\}", re.S | re.M)
_NAME = "kscope"
"""The file that the labels' lines name."""
_HOLD = "st.local.b32 [{}], {};"
"""Keeps a value in a register up to its mark: the instruction that ptxas neither removes nor copies, and that changes
the code least. It is replaced, and never runs.
"""
_NUMBER = re.compile(r"-?\d+|0[xX][0-9a-fA-F]+|0[fF][0-9a-fA-F]{8}")
_FIRST = re.compile(r"\s*(?!\.)(?:@!?\s*[%\w$]+\s+)?[\w.:]+\s+(\{[^}]*\}|[^,;]*)")
"""Statements that may write their first operand."""
_WORD = re.compile(r"[\w$%]+")
_MOVE = re.compile(r"\s*mov\.[bus]32\s+\S+\s*,\s*(\S+)\s*;")
_TABLE = re.compile(r"([\w$%]+)\s*:\s*\.branchtargets\s+([^;]*);")
_INDEXED = re.compile(r"brx\.idx(?:\.uni)?\s+(%\w+)\s*,\s*([\w$%]+)\s*;")
"""Tables of branch targets, and branches by them."""
_NEVER_UNROLLED = re.compile(r'\s*\.pragma\s+"nounroll"')
RECORDED = ("enter", "exit", "instant", "counter")
"""Marks that record."""


@dataclass(frozen=True)
class Labeled:
    """A text with labels.

    Attributes:
        text: what is assembled, with `-lineinfo`: the line of statement n is n + 1.
        plain: the same without labels, and with the user's line information.
        kernel: the labeled kernel in the text.
        blocks: its basic blocks.
        recording: the statements that are marks and record.
        unrolled_never: statements `.pragma "nounroll"`: ptxas does not unroll the loop that begins with their block.
    """

    text: str
    plain: str
    kernel: cfg.Function
    blocks: tuple[cfg.Block, ...]
    recording: tuple[int, ...]
    unrolled_never: frozenset[int] = frozenset()

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The marks that record, in the order of the text."""
        return tuple(self.mark(one) for one in self.recording)

    def mark(self, statement: int) -> Mark:
        """The mark that a statement is."""
        found = self.kernel.statements[statement].mark
        assert found is not None
        return found

    @cached_property
    def held(self) -> dict[int, tuple[int | None, int | None]]:
        """The statements that hold each mark's value and predicate; None for those that need none."""
        found = dict[int, tuple[int | None, int | None]]()
        for number, one in enumerate(self.kernel.statements):
            if one.mark is not None:
                value, when = (isinstance(what, str) for what in _operands(self.kernel, one.mark))
                found[number] = number + 1 if value else None, number + 1 + value if when else None
        return found

    def constants(self, statement: int) -> tuple[int | None, int | None]:
        """A mark's value and predicate, if they are constants."""
        value, when = _operands(self.kernel, self.mark(statement))
        return value if isinstance(value, int) else None, when if isinstance(when, int) else None


def labeled(text: str, kernel: str = "") -> Labeled:
    """Put labels into a text with marks.

    Args:
        text: a PTX module.
        kernel: the kernel to label; empty: the only one with marks, or the only one.

    Returns:
        The text with labels of this kernel instead of its line information.

    Raises:
        UnsupportedError: there is no such kernel.
        UsageError: a mark is malformed.
    """
    full = _holding(_without_tables(text))
    plain = _LINES.sub("", _DEBUG.sub("", full))
    found, out, at = _kernel(plain, kernel), list[str](), 0
    for number, one in enumerate(found.statements):
        if one.sort != "mark":
            out += [plain[at : one.start], f"\n\t.loc 1 {number + 1} 0\n"]
            at = one.start
    made = "".join((*out, plain[at:], f'\n\t.file 1 "/{_NAME}"\n'))
    never = frozenset(n for n, one in enumerate(found.statements) if _NEVER_UNROLLED.match(plain, one.start, one.end))
    return Labeled(made, full, found, tuple(cfg.blocks(found)), tuple(_recording_marks(found)), never)


def _without_tables(text: str) -> str:
    """The text with branches in place of tables of branch targets, whose addresses would be in another section."""
    out, at = list[str](), 0
    for function in cfg.functions(text):
        tables = {found[1]: found for found in _TABLE.finditer(function.text, function.open, function.close)}
        edits = [(one.start(), one.end(), "") for one in tables.values()]
        for one in _INDEXED.finditer(function.text, function.open, function.close):
            if one[2] not in tables:
                raise UnsupportedError(f"{function.name} has a branch to an address")
            *some, last = (name.strip() for name in tables[one[2]][2].split(","))
            tests = "".join(
                f"setp.eq.u32 ks_there, {one[1]}, {number}; @ks_there bra {name}; " for number, name in enumerate(some)
            )
            edits.append((one.start(), one.end(), f"{{ .reg .pred ks_there; {tests}bra {last}; }}"))
        for start, end, new in sorted(edits):
            out += [text[at:start], new]
            at = end
    return "".join((*out, text[at:]))


def _kernel(text: str, name: str) -> cfg.Function:
    """The kernel of that name; else the only one with marks, or the only one."""
    entries = [one for one in cfg.functions(text) if one.kind == "entry"]
    marked = [one for one in entries if any(one.marks)]
    found = [one for one in entries if one.name == name] if name else marked or entries
    if len(found) != 1:
        what = f"a kernel {name}" if name else "one kernel with marks"
        raise UnsupportedError(f"the module has the kernels {', '.join(one.name for one in entries)}; expected {what}")
    return found[0]


def _holding(text: str) -> str:
    """The text with a statement after each mark for its value and its predicate, if they are in registers."""
    out, at = list[str](), 0
    for function in cfg.functions(text):
        for number, one in enumerate(function.statements):
            if one.mark is not None:
                held = [what for what in _operands(function, one.mark) if isinstance(what, str)]
                # apart from each other: ptxas leaves out a store that another one overwrites, and joins neighbors
                stores = (_HOLD.format(64 * (2 * number + n), what) for n, what in enumerate(held))
                out += [text[at : one.end], *(f"\n\t{store}" for store in stores)]
                at = one.end
    return "".join((*out, text[at:]))


def _operands(kernel: cfg.Function, mark: Mark) -> tuple[int | str | None, int | str | None]:
    """A mark's value and predicate: numbers, registers, or none. Those of a pipeline are in the instruction of its
    operation.
    """
    if mark.how == PIPELINE:
        return None, None
    return _operand(kernel, mark.operand), _operand(kernel, mark.when)


def _operand(kernel: cfg.Function, operand: str | None) -> int | str | None:
    if operand is None:
        return None
    text = operand
    if not _NUMBER.fullmatch(operand):
        first = ((one, _FIRST.match(kernel.text, one.start, one.end)) for one in kernel.statements if one.mark is None)
        writes = [one for one, match in first if match and operand in _WORD.findall(match[1])]
        code = kernel.text[writes[0].start : writes[0].end] if len(writes) == 1 else ""
        constant = _MOVE.fullmatch(code)
        if constant is None or not _NUMBER.fullmatch(constant[1]):
            return operand
        text = constant[1]
    return int(text[2:], 16) if text[:2] in ("0f", "0F") else int(text, 0)


def _recording_marks(kernel: cfg.Function) -> Iterator[int]:
    """Marks that record: not those of regions that are never recorded."""
    marks = [(n, one.mark) for n, one in enumerate(kernel.statements) if one.mark is not None]
    never = {n for n, mark in marks if mark.when is not None and _operand(kernel, mark.when) == 0}
    enters = [(n, mark.name) for n, mark in marks if mark.act == "enter"]
    left_out = {name for _, name in enters} - {name for n, name in enters if n not in never}
    for n, mark in marks:
        if mark.act in RECORDED and n not in never and not (mark.act == "exit" and mark.name in left_out):
            yield n


def statements(file: elf.Elf, function: Function, found: Labeled) -> dict[int, int]:
    """Map each instruction of a function to its statement.

    Args:
        file: the cubin, assembled from found.text.
        function: one of its functions.
        found: the labels.

    Returns:
        Numbers of statements by address; instructions without a line, such as padding, are left out.

    Raises:
        UnsupportedError: the line table is not that of the labels.
    """
    table, own = file.find(".debug_line"), file.number(function.section)
    if table is None:
        raise UnsupportedError(f"{function.name} has no line table: assemble it with -lineinfo")
    entries = sorted((one.at, one.symbol) for _, some in file.relocations(".debug_line") for one in some)
    mine = {number for number, (_, symbol) in enumerate(entries) if file.symbols()[symbol].section == own}
    rows = [row for row in line_tables.rows(table.content) if row.sequence in mine]
    labels, row = dict[int, int](), 0
    for one in function.instructions:
        while row + 1 < len(rows) and rows[row + 1].at <= one.at:
            row += 1
        if not rows or not rows[row].file or rows[row].at > one.at or one.at >= function.size // BYTES * BYTES:
            continue
        if not 1 <= rows[row].line <= len(found.kernel.statements):
            raise UnsupportedError(f"{function.name} has line {rows[row].line}, which is not that of a label")
        labels[one.at] = rows[row].line - 1
    return labels
