"""Where the instructions of marks are among the kernel's: those that need time follow those that take it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from kscope.capture import layout
from kscope.sass.cubin.insertion import New
from kscope.sass.cubin.instructions import BYTES, Function
from kscope.sass.placing.mark_order import Spot
from kscope.sass.recording import early_clocks, marking, records, registers
from kscope.sass.recording.lane_state import State
from kscope.sass.recording.marking import Marks
from kscope.sass.recording.regions import Record
from kscope.sass.recording.sites import Site

from .listed import Line, listed

STATE = State("R100", 102, 101, 60, "R104", None, 6, 5)
WRITER = records.Writer(STATE, "0xff0")
COMPUTES: tuple[Line, ...] = tuple(f"IMAD.IADD R{n}, R{n}, 0x1, R{n + 1}" for n in range(2, 22))
END = "EXIT"


def site(act: str, at: int, quad: int = 108, name: str = "part", **more: bool) -> Site:
    """A mark before an instruction, by its number."""
    record = Record((name, ""), layout.record_id(name, layout.Kind.SPAN), False, False)
    spot = Spot(0, at * BYTES, 0, more.get("behind_wait", False))
    return Site(act, record, quad, True, spot, None, None, (None, None), more.get("waits", False))


def placed(function: Function, *sites: Site, used: Sequence[int] = range(30)) -> Marks:
    return marking.place_marks(function, sites, WRITER, frozenset({0}), frozenset(used), {})


def names(some: Sequence[New]) -> list[str]:
    return [one.seen.name for one in some if one.seen is not None]


def standing(made: Marks, name: str) -> Iterator[int]:
    """The numbers of the kernel's instructions that inserted instructions of this name precede."""
    return (at // BYTES for at, some in sorted(made.before.items()) for one in names(some) if one == name)


def test_a_store_follows_instructions_of_the_kernel_that_take_its_clocks_time() -> None:
    function = listed(*COMPUTES, END)
    made = placed(function, site("enter", 1), site("exit", 4))
    assert list(standing(made, "CS2R")) == [1, 4]
    (store,) = standing(made, "STG")
    assert 4 + 8 - 4 <= store <= 4 + 13
    assert "NOP" not in [name for some in made.before.values() for name in names(some)]


def test_it_is_in_the_block_of_its_mark() -> None:
    """And waits there, if that is short."""
    function = listed(*COMPUTES[:6], "BRA `(there)", *COMPUTES[:9], END, there=9)
    made = placed(function, site("exit", 4))
    assert list(standing(made, "STG")) == [6]


def test_it_is_before_a_blocks_last_instruction_if_a_branch_goes_after_it() -> None:
    """Code after it would also run on the path from there, where the record has no begin."""
    function = listed(*COMPUTES[:3], "@P0 BRA `(there)", *COMPUTES[:4], *COMPUTES[:9], END, there=8)
    made = placed(function, site("enter", 4), site("exit", 6))
    assert list(standing(made, "STG")) == [7]


def test_it_is_before_the_next_mark_that_stores() -> None:
    function = listed(*COMPUTES, END)
    made = placed(function, site("exit", 4), site("exit", 6, 112))
    first, second = standing(made, "STG")
    assert first <= 6 < second
    order = [one.seen.operands[-1] for at in sorted(made.before) for one in made.before[at] if one.seen
             and one.seen.name == "STG"]  # fmt: skip
    assert order == ["R108", "R112"]


def test_clocks_of_one_place_are_read_one_after_the_other() -> None:
    """In front of the first one's store, unless the second writes its registers."""
    function = listed(*COMPUTES, END)
    other = placed(function, site("exit", 4), site("enter", 4, 112))
    assert names(other.before[4 * BYTES])[:2] == ["CS2R", "CS2R"]
    same = placed(function, site("exit", 4), site("enter", 4, 108, waits=True))
    code = [one for at in sorted(same.before) for one in names(same.before[at])]
    assert code.index("STG") < len(code) - 1 - code[::-1].index("CS2R")


@pytest.mark.parametrize(("follows", "nops"), [(COMPUTES, 0), (("LDG.E R2, desc[UR4][R4.64]", *COMPUTES), 1)])
def test_after_a_wait_a_clock_is_read_where_the_warp_has_stopped(follows: Sequence[Line], nops: int) -> None:
    """After instructions of the kernel that only compute, else after a NOP."""
    function = listed("BAR.SYNC.DEFER_BLOCKING 0x0", *follows, END)
    made = placed(function, site("enter", 1, behind_wait=True))
    (clock,) = standing(made, "CS2R")
    assert (clock == 1) == bool(nops)
    assert [name for some in made.before.values() for name in names(some)].count("NOP") == nops


def test_with_tensor_cores_a_store_is_at_the_end_of_its_block() -> None:
    function = listed("HGMMA", *COMPUTES[:3], *("NOP",) * 30, END)
    tensor = placed(function, site("exit", 2))
    assert list(standing(tensor, "STG")) == [len(function.instructions) - 1]
    plain = listed("NOP", *COMPUTES[:3], *("NOP",) * 30, END)
    (store,) = standing(placed(plain, site("exit", 2)), "STG")
    assert store < 20


def test_a_begin_that_would_wait_for_a_store_reads_its_clock_into_a_register_that_the_kernel_leaves() -> None:
    """The record's end waits instead, which is long after the store; the clock is moved where the record is stored."""
    sites = [site("enter", 1, waits=True), site("exit", 4)]
    chosen = registers.Allocation(STATE, {("part", ""): 108}, {108: 1}, 114)
    enter, leave = early_clocks.with_early_clocks(sites, chosen, frozenset(range(30)), 255)
    assert (enter.aside, enter.waits, leave.aside, leave.waits) == (30, False, 30, True)
    made = placed(listed(*COMPUTES, END), enter, leave)
    code = [one.seen for some in made.before.values() for one in some if one.seen is not None]
    assert [one.operands for one in code if one.name == "MOV"] == [("R108", "R30")]
    assert [one.operands[0] for one in code if one.name == "CS2R"] == ["R30", "R110"]
    assert early_clocks.with_early_clocks(sites, chosen, frozenset(range(255)), 255) == sites
    assert early_clocks.with_early_clocks([site("enter", 1), site("exit", 4)], chosen, frozenset(), 255) == [
        site("enter", 1),
        site("exit", 4),
    ]
    at_once = [site("enter", 1, waits=True), site("exit", 1)]
    assert early_clocks.with_early_clocks(at_once, chosen, frozenset(range(30)), 255) == at_once, (
        "moved before it is there"
    )


def test_where_the_kernel_needs_every_predicate_a_record_is_stored_at_the_last_place_that_leaves_one() -> None:
    state = State("R100", 102, 101, 60, "R104", None, None, 5, 105)
    tests = [f"ISETP.NE.U32.AND P{n}, PT, R4, RZ, PT" for n in range(7)]
    uses = [f"@P{n} IMAD.IADD R20, R20, 0x1, R21" for n in range(7)]
    function = listed("HGMMA", *tests, *COMPUTES[:3], *uses, *COMPUTES[:6], END)
    writer = records.Writer(state, "0xff0")
    made = marking.place_marks(function, [site("exit", 9)], writer, frozenset({0}), frozenset(range(30)), {})
    assert list(standing(made, "STG")) == [len(function.instructions) - 1]
    assert "P2R" not in [name for some in made.before.values() for name in names(some)]


def test_a_record_in_lent_registers_is_stored_at_its_mark() -> None:
    """The kernel uses these registers soon."""
    function = listed(*COMPUTES, END)
    made = placed(function, site("exit", 4, 12))
    assert list(standing(made, "STG")) == [4]


def test_without_a_predicate_of_the_kernels_one_is_computed_that_is_free_as_far_as_its_store() -> None:
    state = State("R100", 102, 101, 60, "R104", None, None, 5, 105)
    needed = "ISETP.NE.U32.AND P0, PT, R4, RZ, PT"
    function = listed(needed, *COMPUTES, "@P0 EXIT", END)
    writer = records.Writer(state, "0xff0")
    made = marking.place_marks(function, [site("exit", 4)], writer, frozenset({0}), frozenset(range(30)), {})
    tests = [one.seen for some in made.before.values() for one in some if one.seen and one.seen.name == "ISETP"]
    assert [one.operands[0] for one in tests] == ["P1"]
