"""Labels: which marks each machine instruction lies between, carried through ptxas in its line table.

Marks are comments, which ptxas ignores. The part of a text between two of them is a segment. Every combination of a
segment, a basic block and a line of the user's gets a line of its own in the text that is assembled:

    .loc 1 53 0                          .loc 1 1 0          (segment 0, block 0, user's 1 53 0)
    ld.global ...                        ld.global ...
    //kscope enter load - - with         .loc 1 2 0          (segment 1, block 0, user's 1 53 0)
    .loc 1 54 0                          .loc 1 3 0          (segment 1, block 0, user's 1 54 0)

Lines change no instruction. So the code is that of the text without marks, and its line table tells the segment of
each instruction, and the user's line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import UnsupportedError
from ..marks.grammar import PREFIX, Mark, parse
from . import elf, lines
from .instructions import BYTES, Function

_LOC = re.compile(r"^\s*\.loc\s+(.*?)\s*;?\s*$")
_FILE = re.compile(r"^\s*\.file\s")
_DEBUG = re.compile(r"^\s*\.section\s+\.debug_\w+\s*\{.*?^\s*\}", re.S | re.M)
_BODY = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+|\.extern\s+)*\.(?:entry|func)\b", re.M)
_BLOCK_ENDS = re.compile(r"^\s*[\w$%.]+:|\b(?:bra|brx|ret|exit|trap)\b")
_NAME = "kscope"
"""The file that the labels' lines are said to be of."""


@dataclass(frozen=True)
class Place:
    """Where an instruction comes from.

    Attributes:
        segment: between which marks it is.
        block: number of its basic block in the text.
        line: what stood behind the user's .loc, empty before the first.
    """

    segment: int
    block: int
    line: str


@dataclass(frozen=True)
class Labeled:
    """A text with labels.

    Attributes:
        text: what is assembled, with `-lineinfo`.
        marks: the marks in the order of the text; marks[n] is between the segments n and n + 1.
        blocks: the basic block of each mark.
        places: what the lines stand for, by their numbers, from 1 on.
    """

    text: str
    marks: tuple[Mark, ...]
    blocks: tuple[int, ...]
    places: tuple[Place, ...]


def labeled(text: str) -> Labeled:
    """Put labels into a text with marks.

    Args:
        text: a PTX module.

    Returns:
        The text with labels in place of its own line information, and what they stand for.

    Raises:
        UsageError: a mark is malformed.
    """
    out, marks, blocks, here, block = list[str](), list[Mark](), list[int](), "", 0
    places: dict[Place, int] = {}
    begins = inside = False

    def label() -> str:
        number = places.setdefault(Place(len(marks), block, here), len(places) + 1)
        return f"\t.loc 1 {number} 0"

    for line in _DEBUG.sub("", text).splitlines():
        if _FILE.match(line):
            continue
        if loc := _LOC.match(line):
            here = loc[1]
            out.append(label())
            continue
        out.append(line)
        if PREFIX in line and (mark := parse(line)) is not None:
            marks.append(mark)
            blocks.append(block)
            out.append(label())
        begins = begins or _BODY.match(line) is not None
        if begins and line.rstrip().endswith("{"):
            begins, inside = False, True
            out.append(label())
        elif inside and PREFIX not in line and _BLOCK_ENDS.search(line):
            block += 1
            out.append(label())
    out.append(f'\t.file 1 "/{_NAME}"')
    return Labeled("\n".join(out) + "\n", tuple(marks), tuple(blocks), tuple(places))


def places(file: elf.Elf, function: Function, found: Labeled) -> dict[int, Place]:
    """Where each instruction of a function comes from.

    Args:
        file: the cubin, assembled from found.text.
        function: one of its functions.
        found: the labels.

    Returns:
        The places by address; instructions without a line, such as padding, are left out.

    Raises:
        UnsupportedError: the line table is not that of the labels.
    """
    table, own = file.find(".debug_line"), file.number(function.section)
    if table is None:
        raise UnsupportedError(f"{function.name} has no line table: assemble it with -lineinfo")
    entries = sorted((one.at, one.symbol) for _, some in file.relocations(".debug_line") for one in some)
    mine = {number for number, (_, symbol) in enumerate(entries) if file.symbols()[symbol].section == own}
    rows = [row for row in lines.rows(table.content) if row.sequence in mine]
    labels, row = dict[int, Place](), 0
    for one in function.instructions:
        while row + 1 < len(rows) and rows[row + 1].at <= one.at:
            row += 1
        if not rows or not rows[row].file or rows[row].at > one.at or one.at >= function.size // BYTES * BYTES:
            continue
        if not 1 <= rows[row].line <= len(found.places):
            raise UnsupportedError(f"{function.name} has line {rows[row].line}, which is not that of a label")
        labels[one.at] = found.places[rows[row].line - 1]
    return labels
