"""Records of a pipeline that are stored where nothing waits for the warp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kscope.capture import layout
from kscope.errors import UnsupportedError
from kscope.sass.checks import hazards
from kscope.sass.cubin.control_codes import control
from kscope.sass.cubin.insertion import New
from kscope.sass.cubin.instructions import BYTES
from kscope.sass.placing import operands, place
from kscope.sass.placing.basic_blocks import Machine
from kscope.sass.placing.mark_order import Spot
from kscope.sass.placing.operands import Source
from kscope.sass.recording import deferred_records, deferring, rows
from kscope.sass.recording.deferred_records import Later
from kscope.sass.recording.deferring import Kinds
from kscope.sass.recording.lane_state import State
from kscope.sass.recording.regions import Record
from kscope.sass.recording.registers import Allocation
from kscope.sass.recording.sites import Needed, Site

from .counting_pipelines import loops
from .kernels import needs_tools
from .listed import Line, listed
from .test_pipeline import gluon, persistent

STATE = State("UR60", 100, 101, 60, "UR59", None, None, 5, mine=102)
WITH_PREDICATE = State("UR60", 100, 101, 60, "UR59", None, 6, 5)
LOOP: tuple[Line, ...] = (
    "NOP",
    "HGMMA.64x128x16.F32 R24, gdesc[UR16], R24",
    "WARPGROUP.DEPBAR.LE gsb0, {}",
    "NOP",
    "@!P0 SYNCS.ARRIVE.TRANS64 RZ, [UR11], RZ",
    "UIADD3 UR11, UR11, 0x1, URZ",
    "@P1 BRA `(again)",
    "EXIT",
)
"""A loop of products from 1 to 6: what ends at 3 ends behind the wait for them."""
WAIT, ARRIVAL, END, BEHIND = 2, 4, 6, 7


def machine(left: str, *more: Line) -> Machine:
    code = [one.format(left) if isinstance(one, str) and "DEPBAR" in one else one for one in LOOP]
    return Machine(listed(*code[:5], *more, *code[5:], again=1), {})


def site(act: str, at: int, quad: int, name: str = "", guard: str = "") -> Site:
    record = Record((name or f"part {quad}", ""), layout.record_id(name, layout.Kind.SPAN), True, False)
    source = Source(ARRIVAL * BYTES, uniform="UR11", guard=guard) if guard else None
    spot = Spot(0, at * BYTES, 0, False, source=source)
    return Site(act, record, quad, True, spot, None, None, (None, None), False, pipeline=True)


def planned(
    code: Machine, *sites: Site, state: State = STATE, kinds: Kinds = deferring.ALL_KINDS[0], most: int = 140
) -> deferring.Deferral:
    chosen = Allocation(state, {one.record.key: one.quad for one in sites}, {}, 130)
    room = {one.at: 255 for one in code.function.instructions}
    return deferring.planned(code, sites, chosen, frozenset(range(100)), room, most, kinds)


def numbers(some: dict[int, Later] | object) -> dict[int, list[int]]:
    """The registers of the records that are stored in front of each instruction."""
    assert isinstance(some, dict)
    return {at // BYTES: [one.quad for one in later.sites] for at, later in some.items()}


BEFORE, DRAIN, ARRIVE = site("exit", 1, 108), site("exit", 3, 112), site("point", ARRIVAL, 116, guard="@!P0")


@pytest.mark.parametrize("state", [STATE, WITH_PREDICATE], ids=["register", "predicate"])
def test_what_ends_behind_a_wait_for_all_products_is_stored_in_front_of_the_next_one(state: State) -> None:
    """Or where the loop ends; what ended before it in the same iteration is stored there only."""
    found = planned(machine("0x0"), BEFORE, DRAIN, ARRIVE, state=state)
    assert numbers(found.stores) == {WAIT: [112, 116, 108], BEHIND: [112, 116]}
    before, drain, arrive = found.sites
    assert before.flag is None and drain.flag == arrive.flag is not None
    assert found.stores[WAIT * BYTES].begins == {drain.flag} and not found.stores[BEHIND * BYTES].begins
    assert {drain.flag, 112, 114, 115, 116, 118, 119} == set(found.chosen.state.zeros)


@pytest.mark.parametrize(("many", "place"), [(8, 5), (10, 6), (7, 8), (2, 3)])
def test_between_many_products_records_are_stored_in_front_of_the_one_in_the_middle(many: int, place: int) -> None:
    """Else in front of the wait."""
    code = listed(LOOP[0], *[LOOP[1]] * many, "WARPGROUP.DEPBAR.LE gsb0, 0x0", *LOOP[3:], again=1)
    left = site("exit", many + 2, 112)
    assert numbers(planned(Machine(code, {}), left).stores) == {place: [112], many + 6: [112]}


def test_in_other_loops_records_are_stored_where_their_iteration_ends() -> None:
    found = planned(machine("0x1"), BEFORE, DRAIN, ARRIVE)
    assert numbers(found.stores) == {END: [108, 112, 116]}
    assert [one.flag for one in found.sites] == [None, None, None]
    assert not planned(machine("0x1"), BEFORE, DRAIN, ARRIVE, kinds=Kinds(False, True)).stores


@pytest.mark.parametrize("left", ["0x0", "0x1"])
def test_a_predicate_that_the_loop_overwrites_is_kept_in_a_flag(left: str) -> None:
    found = planned(machine(left, "ISETP.NE.U32.AND P0, PT, R2, RZ, PT"), DRAIN, ARRIVE)
    drain, arrive = found.sites
    assert arrive.later and arrive.flag not in (None, drain.flag) and not arrive.flagged
    assert [str(one.seen.guard) for one in deferred_records.kept(arrive, STATE) if one.seen] == ["@!P0"]
    assert not planned(machine(left, "ISETP.NE.U32.AND P0, PT, R2, RZ, PT"), ARRIVE, most=105).stores


def test_records_whose_registers_another_one_uses_meanwhile_are_stored_at_their_marks() -> None:
    other = site("exit", 1, 112, "other")
    assert [one.later for one in planned(machine("0x1"), DRAIN, other).sites] == [True, False]
    assert [one.later for one in planned(machine("0x0"), DRAIN, other).sites] == [False, True]


def test_records_of_a_producer_are_stored_behind_the_copies_in_front_of_the_next_wait() -> None:
    again = "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2"
    code = listed(
        *("NOP", "NOP", "UTMALDG.2D [UR16], [UR20]", "NOP", again, "@!P0 BRA `(again)", "NOP"),
        *("UTMALDG.2D [UR16], [UR20]", "@P1 BRA `(loop)", "EXIT", again, "@!P0 BRA `(again)", "BRA `(over)"),
        loop=1,
        again=10,
        over=6,
    )
    begin, *ends = site("enter", 4, 112), site("exit", 1, 108), site("exit", 6, 112)
    found = planned(Machine(code, {}), ends[0], begin, ends[1])
    assert numbers(found.stores) == {4: [108], 8: [112]}


INIT = "@!UP{0} SYNCS.EXCH.64 URZ, [UR8+0x28000], UR12"
RUN: tuple[Line, ...] = (
    INIT.format(0),
    "VOTEU.ALL UP0, P0",
    INIT.format(1),
    "BAR.SYNC.DEFER_BLOCKING 0x1",
    "@!P1 BRA `(again)",
    "NOP",
    "@P2 BRA `(over)",
    "NOP",
    "EXIT",
)
"""Two operations in a row, a wait that is repeated, and a branch, in front of which the records are stored."""


def initialized(
    code: Machine, *more: Site, guards: str = "@!UP0 @!UP1", kinds: Kinds = deferring.ALL_KINDS[0]
) -> deferring.Deferral:
    some = [
        replace(one, spot=replace(one.spot, source=Source(at * BYTES, uniform="UR8", guard=guard)))
        for (at, quad), guard in zip(((0, 108), (2, 112)), guards.split(), strict=True)
        for one in (site("instant", at, quad),)
    ]
    return planned(code, *some, *more, kinds=kinds)


def test_records_of_operations_in_a_row_are_stored_where_the_code_parts() -> None:
    """Uniform registers keep which of them the warp executed."""
    found = initialized(Machine(listed(*RUN, again=3, over=8), {}))
    assert numbers(found.stores) == {6: [108, 112]}
    assert [one.warp_flag for one in found.sites] == [58, 57] == [*found.chosen.state.warp_flags]
    assert found.chosen.state.warp_wide >= {57, 58}
    first = found.sites[0]
    (kept,) = deferred_records.kept(first, STATE)
    assert kept.seen and kept.seen.operands == ("UR58", "URZ", "0x1", "UP0") and kept.borrowed == {"UP0"}
    tests = [one.seen for one in stored(STATE, first) if one.seen and one.seen.name == "ISETP"]
    assert [one.operands[2:4] for one in tests] == [("R102", "RZ"), ("RZ", "UR58")]
    other = initialized(Machine(listed(*RUN, again=3, over=8), {}), guards="@UP0 @!UP1").sites[0]
    assert texts(stored(STATE, other))[:3] == ["ISETP", "UIADD3", "ISETP"]  # 0 becomes -1, and 1 becomes 0


def test_operations_in_a_row_are_recorded_at_their_marks_where_others_follow_or_they_may_run_again() -> None:
    whole = Machine(listed(*RUN, again=3, over=8), {})
    assert not initialized(whole, site("exit", 5, 116)).stores
    assert not initialized(Machine(listed(*RUN, again=1, over=8), {})).stores
    assert not initialized(Machine(listed(*RUN, again=3, over=5), {})).stores
    leaves = Machine(listed(*RUN[:5], "EXIT", again=3), {})
    assert not initialized(leaves).stores
    assert not initialized(whole, kinds=Kinds(True, True, runs=False)).stores


def test_operations_of_one_line_have_records_of_their_own_in_a_loop() -> None:
    """With all that the record is needed together with."""
    marks = [(0, "enter", 1), (1, "exit", 2), (2, "enter", 3), (3, "exit", 4), (4, "exit", BEHIND)]
    record, other = (Record((name, ""), 1, True, False) for name in ("wait", "around"))
    placed = tuple(rows.Placed(Spot(mark, at * BYTES, 0, False), act, record) for mark, act, at in marks)
    pair = frozenset((record.key, other.key))
    plan = rows.Plan(placed, (record, other), frozenset({pair}))
    found = deferring.divided(machine("0x0"), plan, frozenset(range(5)))
    keys = [one.record.key for one in found.placed]
    assert keys == [("wait", ""), ("wait", ""), ("wait", " 1"), ("wait", " 1"), ("wait", "")]
    assert {one.id for one in found.records} == {1} and len(found.records) == 3
    assert found.together == {pair, frozenset((("wait", " 1"), other.key))}


def texts(some: Sequence[New]) -> list[str]:
    return [" ".join((one.seen.guard, one.seen.name)).strip() for one in some if one.seen is not None]


def stored(state: State, *sites: Site, begins: frozenset[int] = frozenset(), free: int = 7) -> list[New]:
    taken = frozenset(f"P{number}" for number in range(free, 7))
    return deferred_records.stores(Later(sites, begins), state, "0xff0", Needed(taken, taken))


def waits(some: Sequence[New]) -> list[int]:
    return [at for at, one in enumerate(some) if 5 in control(one.word).waits]


def test_records_that_are_stored_together_wait_for_the_store_before_once() -> None:
    """The addresses come first, each in a separate register."""
    several, state = (DRAIN, site("exit", 1, 108)), replace(STATE, addresses=(120,))
    found = stored(state, *several)
    assert texts(found) == ["ISETP", "LOP3", "@P0 IADD3", "LOP3", "@P0 IADD3", "@P0 STG", "@P0 STG"]
    assert len(waits(found)) == 1
    assert len(waits(stored(STATE, *several))) == 2
    flags = [replace(one, flag=flag) for one, flag in zip(several, (121, 122), strict=True)]
    apart = stored(state, *flags, free=1)
    assert len(waits(apart)) == 1 and texts(apart).count("ISETP") == 2


def test_a_guard_is_asked_for_where_a_record_is_stored() -> None:
    found = stored(WITH_PREDICATE, ARRIVE)
    (plop,) = [one for one in found if one.seen and one.seen.name == "PLOP3"]
    assert plop.seen and {"P6", "P0"} <= plop.seen.reads and plop.borrowed == {"P0"}
    assert plop.seen.writes.isdisjoint({"P6", "P0"})
    kept = stored(WITH_PREDICATE, replace(ARRIVE, flag=121))
    assert "PLOP3" not in texts(kept) and texts(kept)[-1] == "MOV"


def test_a_flag_is_cleared_where_records_are_stored_or_set_for_the_next_ones() -> None:
    left = replace(DRAIN, flag=121, flagged=True), replace(ARRIVE, flag=121, flagged=True)
    for begins, source in ((frozenset[int](), "RZ"), (frozenset({121}), "R102")):
        last = stored(STATE, *left, begins=begins)[-1].seen
        assert last is not None and last.operands == ("R121", source)


@pytest.mark.parametrize(
    ("made", "only"),
    [
        (["USHF.L.U32 UR5, UR5, 0x1f, URZ", "IMAD.U32 R2, RZ, RZ, UR5"], True),
        (["IMAD.U32 R2, R12, -0x80000000, RZ"], True),
        (["IMAD.U32 R2, R12, -0x80000000, RZ", "@P0 MOV R2, R3"], False),
        (["USHF.L.U32 UR5, UR5, 0x1f, URZ", "UIADD3 UR5, UR5, 0x1, URZ", "IMAD.U32 R2, RZ, RZ, UR5"], False),
        (["IMAD.U32 R2, R12, 0x40000000, RZ"], False),
        (["IMAD.U32 R2, RZ, RZ, UR5"], False),
    ],
)
def test_a_parity_in_the_highest_bit_alone_is_not_masked(made: list[str], only: bool) -> None:
    function = listed(*made, "SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR6+0x28020], R2", "EXIT")
    assert operands.parity(function.instructions[-2], Machine(function, {})) == ("R2", not only)


@pytest.mark.parametrize(("other", "only"), [("USHF.L.U32 UR5, UR6, 0x1f, URZ", True), ("UMOV UR5, 0x1", False)])
def test_a_parity_may_be_made_on_several_paths(other: str, only: bool) -> None:
    function = listed(
        "USHF.L.U32 UR5, UR4, 0x1f, URZ",
        "@P0 BRA `(over)",
        other,
        "IMAD.U32 R2, RZ, RZ, UR5",
        "SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR6+0x28020], R2",
        "@P1 BRA `(again)",
        "EXIT",
        over=3,
        again=4,
    )
    assert operands.parity(function.instructions[4], Machine(function, {})) == ("R2", not only)


def test_a_clock_needs_no_time_behind_a_wait_for_products() -> None:
    for code, waits_there in (("WARPGROUP.DEPBAR.LE gsb0, 0x0", False), ("BAR.SYNC.DEFER_BLOCKING 0x0", True)):
        function = listed("NOP", code, "NOP")
        assert place._is_behind_wait(function.instructions[:2]) is waits_there
        assert hazards.CONTROL_FLOW.isdisjoint({function.instructions[1].name})


@needs_tools
@pytest.mark.parametrize("text", [gluon, lambda: persistent(False), lambda: persistent(True)])
def test_behind_a_wait_for_products_only_clocks_and_operands_are_read(text: Callable[[], str]) -> None:
    """Up to the copies, or to the end of an iteration where records are stored in front of that wait."""
    from triton.backends.nvidia.compiler import get_ptxas

    checked = 0
    try:
        found = list(loops(text(), get_ptxas(90).path))
    except UnsupportedError as error:
        if "no two uniform registers" not in str(error):  # Triton 3.6's code uses nearly all of them
            raise
        pytest.skip(str(error))
    for parts in found:
        names = [name for name, _ in parts]
        if "wait for products" not in names:
            continue
        behind = parts[names.index("wait for products") + 1 :]
        for name, added in behind[:-1]:
            assert (name, added.waits) == (name, 0) and added.cycles <= 2
            checked += 1
    assert checked
