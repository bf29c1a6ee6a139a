"""Inserted instructions have as few cycles in between as they need, and wait among the kernel's instructions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kscope.sass.cubin.control_codes import Control, control
from kscope.sass.cubin.insertion import New
from kscope.sass.cubin.instructions import Instruction
from kscope.sass.encoding import writing
from kscope.sass.recording import interleaving, stall_cycles

CLOCK = "CS2R.32 R6, SR_CLOCKLO"
STORE = "STG.E.128 desc[UR60][R2.64+0x20], R4"
BORDER = "BRA `()"


def own(*stalls: int) -> list[Instruction]:
    """Instructions of the kernel with these cycles after them."""
    return [
        Instruction(16 * number, writing.new("NOP", Control(stall=stall)).word, "", "NOP", ())
        for number, stall in enumerate(stalls)
    ]


def apart(*texts: str) -> int:
    """Cycles from the first instruction to the last one."""
    made = stall_cycles.with_least_stalls([writing.new(text) for text in texts], 90)
    last = next(n for n in reversed(range(len(made))) if (seen := made[n].seen) is not None and seen.name != "NOP")
    return sum(max(1, control(one.word).stall) for one in made[:last])


@pytest.mark.parametrize(
    ("first", "then", "cycles"),
    [
        (CLOCK, "MOV R1, R6", 4),
        (CLOCK, STORE, 8),
        ("IADD3 R2, R2, R1, RZ", "IADD3 R3, R2, R1, RZ", 4),
        ("IADD3 R2, R2, R1, RZ", STORE, 5),
        ("ISETP.NE.U32.AND P1, PT, R1, RZ, PT", "ISETP.NE.U32.AND P2, PT, R2, RZ, P1", 4),
        ("ISETP.NE.U32.AND P1, PT, R1, RZ, PT", "@P1 MOV R1, R2", 13),
        ("ISETP.NE.U32.AND P1, PT, R1, RZ, PT", "VOTE.ANY P2, P1", 13),
        ("ISETP.NE.U32.AND P1, PT, R1, RZ, PT", "P2R R3, PR, RZ, 0x2", 13),
        ("MOV R1, R2", "MOV R3, R4", 1),
        ("MOV R1, R2", BORDER, 5),
    ],
)
def test_a_result_is_read_as_soon_as_it_is_there(first: str, then: str, cycles: int) -> None:
    assert apart(first, then) == cycles


def test_instructions_that_only_wait_are_left_out() -> None:
    waits = writing.new("NOP", Control(stall=9, waits=frozenset({3})))
    made = stall_cycles.with_least_stalls(
        [writing.new("MOV R1, R2"), waits, writing.new("NOP"), writing.new("MOV R3, R4")], 90
    )
    assert [one.seen.name for one in made if one.seen] == ["MOV", "MOV"]
    assert control(made[1].word).waits == {3}


def test_a_scoreboard_is_waited_for_when_it_counts() -> None:
    load = writing.new("LDG.E R1, desc[UR4][R2.64]", Control(writes=2))
    made = stall_cycles.with_least_stalls([load, writing.new("MOV R3, R4", Control(waits=frozenset({2})))], 90)
    assert control(made[0].word).stall == 2


def test_after_the_last_one_every_result_is_available() -> None:
    (made,) = stall_cycles.with_least_stalls([writing.new("MOV R1, R2")], 90)
    assert control(made.word).stall == 5


def placed(code: Sequence[New], ahead: Sequence[Instruction], begin: int = 0) -> list[list[str]]:
    return [[one.seen.name for one in group if one.seen] for group in interleaving.spread(code, ahead, 90, begin)]


RECORD = [writing.new(CLOCK), writing.new(STORE)]


def test_a_store_follows_instructions_of_the_kernel_that_take_the_time_of_its_clock() -> None:
    assert placed(RECORD, own(2, 2, 3, 1, 1)) == [["CS2R"], [], [], ["STG"], [], []]
    (clock,), *_ = interleaving.spread(RECORD, own(2, 2, 3, 1, 1), 90)
    assert control(clock.word).stall == 1


def test_without_instructions_of_the_kernel_it_waits() -> None:
    (group,) = interleaving.spread(RECORD, (), 90)
    assert [control(one.word).stall for one in group] == [8, 2]
    assert placed(RECORD, own(3)) == [["CS2R"], ["NOP", "STG"]]


def test_a_clock_after_a_barrier_follows_instructions_of_the_kernel_or_waits() -> None:
    assert placed(RECORD[:1], own(4, 4), 8) == [[], [], ["CS2R"]]
    assert placed(RECORD[:1], (), 8) == [["NOP", "CS2R"]]
