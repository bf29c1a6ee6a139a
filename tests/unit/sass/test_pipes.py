"""Instructions of one pipe finish in order: a scoreboard also counts earlier ones of its pipe, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kscope.sass.checks import hazards
from kscope.sass.cubin.control_codes import Control

from .listed import Line, listed

LOAD, COPIES = "LDSM.16.M88.4 R8, [R20]", "LDGDEPBAR"
SHARED = "LDS R30, [R20]"
UNKNOWN = "HMMA.884.F32.F32 R8, R4, R12, R8"


def counted(text: str, board: int | None = None) -> Line:
    """An instruction with a scoreboard for its result; without `board`, none counts it."""
    return text, Control(stall=2, writes=board)


def waiting(text: str, *boards: int) -> Line:
    return text, Control(stall=2, waits=frozenset(boards))


def problems(*lines: Line, arch: int = 90) -> str:
    return "\n".join(map(str, hazards.check(replace(listed(*lines), arch=arch))))


def test_a_load_is_finished_when_the_next_counted_load_is() -> None:
    assert problems(counted(LOAD), counted(SHARED, 0), waiting("MOV R1, R8", 0)) == ""
    assert "scoreboard 0 was not waited for" in problems(counted(LOAD), counted(SHARED, 0), "MOV R1, R8")


@pytest.mark.parametrize("arch", [80, 90])
def test_the_scoreboard_of_a_group_of_copies_counts_no_load(arch: int) -> None:
    waited = counted(LOAD), counted(COPIES, 0), waiting("DEPBAR.LE SB0, 0x0"), "MOV R1, R8"
    assert "R8 may not be written yet" in problems(*waited, arch=arch)
    assert problems(counted(LOAD), counted(COPIES, 0), counted(SHARED, 3), waiting("MOV R1, R8", 3), arch=arch) == ""


@pytest.mark.parametrize("arch", [80, 90])
def test_a_load_proves_nothing_about_a_product_of_unknown_latency(arch: int) -> None:
    later = counted(SHARED, 0), waiting("MOV R1, R8", 0)
    assert "R8 may not be written yet: no scoreboard counts it" in problems(counted(UNKNOWN), *later, arch=arch)
    later = counted(SHARED, 0), waiting("MOV R12, RZ", 0)
    assert "R12 may still be read: no scoreboard counts it" in problems(counted(UNKNOWN), *later, arch=arch)
    assert "R12 may still be read" in problems(counted(UNKNOWN), counted("LDS R12, [R20]", 0), arch=arch)


def test_a_load_may_come_before_a_barrier_has_read_its_number() -> None:
    barrier = "BAR.SYNC.DEFER_BLOCKING RZ, R5"
    assert "R5 may still be read: no scoreboard counts it" in problems(counted(barrier), counted("LDS R5, [R20]", 0))
    assert "R5 may still be read" in problems(counted(barrier), counted(SHARED, 0), waiting("MOV R5, RZ", 0))
    assert problems((barrier, Control(stall=2, reads=1)), waiting("LDS R5, [R20]", 1)) == ""
