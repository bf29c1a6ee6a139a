"""Line tables are read in each version that ptxas writes, and moved with their code."""

from __future__ import annotations

import pytest

from kscope.errors import UnsupportedError
from kscope.sass.cubin import line_tables

VERSION_2 = bytes.fromhex(
    "3b0000000200180000000101fb0e0a00010101010000000100612e6375000000000000090200000000000000000401030401f0"
    "0301023001f102b001000101"
)
"""From ptxas 12.9: lines 5, 6, 7 and 9 of a.cu at 0x0, 0x10, 0x40 and 0x50; the code ends at 0x100."""
VERSION_3 = bytes.fromhex(
    "3f00000003001b0000000101fb0e0d00010101010000000100000100612e63750000000000000902000000000000000004010304"
    "010af30301023001f402b001000101"
)
"""The same from ptxas 13.5, with an opcode (0x0a) that version 2 does not have."""
TABLES = pytest.mark.parametrize("table", [VERSION_2, VERSION_3], ids=["version 2", "version 3"])


@TABLES
def test_both_versions_name_the_same_lines(table: bytes) -> None:
    rows = [(row.at, row.file, row.line) for row in line_tables.rows(table)]
    assert rows == [(0x0, 1, 5), (0x10, 1, 6), (0x40, 1, 7), (0x50, 1, 9), (0x100, 0, 9)]


@TABLES
def test_rows_follow_code_that_was_moved(table: bytes) -> None:
    word = table.index(b"\x00\x09\x02") + 3
    content, words = line_tables.move_lines(table, {word: lambda at: at + 0x20 * (at > 0x10)})
    assert words == {word: word}, "the header keeps its size"
    assert [row.at for row in line_tables.rows(content)] == [0x0, 0x10, 0x60, 0x70, 0x120]
    assert [row.line for row in line_tables.rows(content)] == [5, 6, 7, 9, 9]


def test_other_versions_are_refused_by_number() -> None:
    with pytest.raises(UnsupportedError, match="DWARF 4"):
        line_tables.rows(VERSION_3[:4] + b"\x04" + VERSION_3[5:]).__next__()
