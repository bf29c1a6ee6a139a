"""A mark waits for the store of a record only where that store may still read the mark's registers."""

from __future__ import annotations

from dataclasses import replace

from kscope.sass.cubin.instructions import Function, Instruction
from kscope.sass.placing.mark_order import Spot
from kscope.sass.recording.stores_in_flight import Use, waiting_marks

LOOP = Function(
    "loop",
    ".text.loop",
    (
        Instruction(0x00, 0, "", "NOP", ()),
        Instruction(0x10, 0, "", "NOP", ()),
        Instruction(0x20, 0, "", "NOP", ()),
        Instruction(0x30, 0, "@P0", "BRA", (), target=0x10),
        Instruction(0x40, 0, "", "EXIT", ()),
    ),
)


def uses(*marks: tuple[str, int, int]) -> list[Use]:
    """Each mark's act, place and first register."""
    return [Use(Spot(number, at, 0, False), act, quad) for number, (act, at, quad) in enumerate(marks)]


def waits(*marks: tuple[str, int, int]) -> set[int]:
    return {spot.mark for spot in waiting_marks(LOOP, uses(*marks))}


def test_a_region_alone_in_a_loop_waits_for_the_previous_iteration() -> None:
    assert waits(("enter", 0x10, 4), ("exit", 0x20, 4)) == {0}


def test_the_last_two_stores_may_be_in_flight() -> None:
    """Each store waits for the previous one, but may follow the next region's begin."""
    two = ("enter", 0x10, 4), ("exit", 0x20, 4), ("enter", 0x20, 8), ("exit", 0x30, 8)
    three = ("enter", 0x10, 4), ("exit", 0x10, 4), ("enter", 0x20, 8), ("exit", 0x20, 8)
    assert waits(*two) == {0, 2}
    assert waits(*three, ("enter", 0x30, 12), ("exit", 0x30, 12)) == set()


def test_clocks_of_one_place_may_be_read_before_all_its_stores() -> None:
    """So a region that begins where it was stored waits, whatever was stored in between."""
    marks = ("enter", 0x00, 4), ("enter", 0x00, 8), ("enter", 0x00, 12)
    ends = ("exit", 0x20, 4), ("exit", 0x20, 8), ("exit", 0x20, 12)
    assert waits(*marks, *ends, ("enter", 0x20, 4)) == {6}


def test_regions_that_share_registers_wait() -> None:
    assert waits(("enter", 0x10, 4), ("exit", 0x20, 4), ("enter", 0x20, 4), ("exit", 0x30, 4)) == {0, 2}


def test_an_end_waits_if_some_lanes_stored_the_same_record_before() -> None:
    marks = uses(("enter", 0x00, 4), ("exit", 0x10, 4), ("exit", 0x20, 4))
    guarded = replace(marks[1], spot=replace(marks[1].spot, guard="@P1"))
    assert {spot.mark for spot in waiting_marks(LOOP, [marks[0], guarded, marks[2]])} == {1, 2}
    assert waits(("enter", 0x00, 4), ("exit", 0x10, 4), ("exit", 0x20, 4)) == set()


def test_an_instant_is_a_begin_and_a_store() -> None:
    assert waits(("instant", 0x10, 4)) == {0}
    assert waits(("instant", 0x00, 4)) == set()


def test_what_runs_once_does_not_wait() -> None:
    assert waits(("enter", 0x00, 4), ("exit", 0x00, 4)) == set()
