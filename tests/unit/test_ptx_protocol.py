"""The emitted text, executed: bounds, claims, headers, order, drops; for any kernel, pool, grid and order of warps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, find, given
from hypothesis import strategies as st
from ptxvm.cases import Case, cases, execute, judged, prepared
from ptxvm.drain import Drain, closed
from ptxvm.host import Host, Pool, Ring, Slab
from ptxvm.judge import (
    Wrong,
    heads_tell_where_the_lane_was,
    records_are_the_marks_in_order,
    require,
    stores_stay_inside_claimed_slabs,
)
from ptxvm.kernels import kernels
from ptxvm.machine import Clocks, Grid, Launch, steps
from ptxvm.profile import examples, search
from ptxvm.writing import KernelText, Node, written

from kscope.capture import wire
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset
from kscope.lowering.plan import lower
from kscope.marks.strategies import AllThreads, Elected, TargetWarp
from kscope.ptx import cfg

ONE_REGION = written((Node("region", ("load", None, "0", False), ((),)),))


def simple(kernel: KernelText = ONE_REGION, **changes: object) -> Case:
    """A case with one block of 70 threads, room for all, and nothing odd."""
    case = Case(
        kernel, Recording(), Grid((4, 3, 2), (70, 1, 1)), ((0, 0, 0),), tuple(range(70)), Pool((Ring(12), Ring(12)))
    )
    return replace(case, **changes)  # type: ignore[arg-type]  # fields of Case


@examples(80)
@given(cases())
def test_any_launch_records_exactly_what_its_marks_mean(case: Case) -> None:
    judged(execute(case))


@examples(30)
@given(cases(depth=3, threads=3, ample=True))
def test_deep_nesting_is_recorded_in_order_of_ends(case: Case) -> None:
    outcome = judged(execute(case))
    assert len(outcome.slabs) == len(outcome.host.claims())


@pytest.mark.parametrize("changes", [{"bound": False}, {"epoch": 0}])
def test_unarmed_modules_access_only_user_memory(changes: dict[str, object]) -> None:
    outcome = judged(execute(simple(**changes)))
    assert not outcome.slabs
    assert not any(access.address in range(outcome.host.control.base, 1 << 63) for access in outcome.host.memory.log)


def test_unbound_modules_never_read_the_control_block() -> None:
    host = Host(Pool((Ring(8),)))
    low = lower(ONE_REGION.text(), Recording(), frontend="test")
    program = host.load(low.text, bound=False)
    out = host.memory.allocate("out", 64)
    host.control.base = 0  # freed: an access to it would be a fault
    launch = Launch(program, host.memory, "k", Grid(), [out.base])
    assert sum(1 for _ in steps(launch.start(), "turns")) > 0


def test_with_an_empty_pool_all_lanes_are_counted_as_lost() -> None:
    outcome = judged(execute(simple(pool=Pool((Ring(0, free=0), Ring(0, free=0))), smids=(5,))))
    assert not outcome.slabs
    assert int(outcome.host.stripe(1)["lost"]) == 3


def test_a_full_stripe_falls_back_on_the_reserve() -> None:
    outcome = judged(execute(simple(pool=Pool((Ring(2), Ring(12))), recording=Recording(records=4), threads=(0, 32))))
    assert [slab.stripe for slab in outcome.slabs] == [0, 1]
    assert int(outcome.host.stripe(0)["skipped"]) == 3, "one claim of three units found no room"
    assert not int(outcome.host.stripe(0)["lost"])


def test_slabs_never_cross_the_ring_edge() -> None:
    pool = Pool((Ring(3, head=6), Ring(0)))
    outcome = judged(execute(simple(pool=pool, recording=Recording(records=4), threads=(0,))))
    assert [slab.at for slab in outcome.slabs] == [9 - 8]
    assert int(outcome.host.stripe(0)["skipped"]) == 3


def test_a_lane_whose_claims_are_all_refused_is_counted_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MOST_CLAIMS", 1)
    pool = Pool((Ring(3, head=6), Ring(0)))
    outcome = judged(execute(simple(pool=pool, recording=Recording(records=4), threads=(0,))))
    assert not outcome.slabs
    assert int(outcome.host.stripe(0)["skipped"]) == 3
    assert int(outcome.host.stripe(0)["lost"]) == 1


@pytest.mark.parametrize("recording", [Recording(), Recording(pending=0), Recording(strategy=AllThreads())])
def test_recording_adds_no_loop_to_a_kernel(recording: Recording) -> None:
    """The assembler would keep all registers of the kernel in a loop around a claim."""
    (function,) = cfg.functions(lower(ONE_REGION.text(), recording, frontend="test").text)
    assert not any(block.looped for block in cfg.blocks(function))


def test_an_sm_beyond_the_stripes_claims_from_the_reserve() -> None:
    outcome = judged(execute(simple(smids=(511,))))
    assert {slab.stripe for slab in outcome.slabs} == {1}


@pytest.mark.parametrize(("records", "count"), [(4, 50), (16, 50), (64, 50), (64, 64), (64, 65)])
@pytest.mark.parametrize("fill", ["ring", "stop"])
def test_drops_are_counted_exactly(records: int, count: int, fill: str) -> None:
    kernel = written((Node("loop", ("bottom", count), ((Node("region", ("dot", None, "%n0", False), ((),)),), ())),))
    recording = Recording(records=records, fill=fill)  # type: ignore[arg-type]  # one of the two fills
    (slab,) = judged(execute(simple(kernel, recording=recording, threads=(0,)))).slabs
    assert slab.count == count
    kept = range(count)[:records] if fill == "stop" else range(count)[-records:]
    assert slab.records()["value"].tolist() == list(kept)


def test_every_thread_of_a_block_that_is_no_multiple_of_32_has_its_own_slab() -> None:
    outcome = judged(execute(simple(recording=Recording(strategy=AllThreads(), records=4))))
    assert {slab.key[3] for slab in outcome.slabs} == set(range(70))


@examples(40)
@given(st.data())
def test_sampling_by_block_reaches_past_two_to_the_thirty_two(data: st.DataObject) -> None:
    shape = Grid(((1 << 31) - 1, 65535, 65535), (32, 1, 1))
    first = data.draw(st.integers(0, 1 << 62))
    step = data.draw(st.one_of(st.integers(1, 100), st.integers(1, (1 << 32) - 1)))
    count = data.draw(st.integers(1, 1 << 33))
    linear = data.draw(st.one_of(st.integers(-3, count + 3), st.integers(0, 1 << 12).map(lambda n: n * step))) + first
    nx, ny, nz = shape.grid
    assume(0 <= linear < nx * ny * nz)
    block = (linear % nx, linear // nx % ny, linear // (nx * ny))
    subset = Subset.of(block=range(first, first + count, step))
    assume(linear == 0 or linear % (1 << wire.BLOCK_BITS))
    blocks = tuple({(0, 0, 0), block})
    judged(execute(simple(shape=shape, blocks=blocks, threads=(0,), subset=subset)))


@examples(40)
@given(cases(threads=4), st.integers(0, 200))
def test_snapshots_never_contain_wrong_words(case: Case, moment: int) -> None:
    """A slab's head is whole from the beginning; a closed slab has every record."""
    host, threads, ideals, _ = prepared(case)
    for n, _ in enumerate(steps(threads, case.order, case.seed)):
        if n == moment:
            break
    slabs = host.slabs()
    for slab in slabs:
        require(slab.key in ideals, f"a slab of {slab.key}, which is no lane of this launch")
        if closed(slab):
            heads_tell_where_the_lane_was(host, [slab], ideals)
            if slab.entry is not None:
                records_are_the_marks_in_order([slab], ideals, case.recording)
        known = {(event.start, event.id, event.end, event.value) for event in ideals[slab.key].events}
        found = {tuple(int(word) for word in record) for record in slab.ring[slab.ring["id"] != 0]}
        require(found <= known, f"{slab.key}: records {found - known} that no mark made")


gaps = st.lists(st.integers(0, 12), min_size=3, max_size=60)
"""Steps between the host's looks at the device."""


@examples(40)
@given(cases(threads=8), gaps)
def test_memory_freed_by_the_protocols_rule_is_never_written_again(case: Case, gaps: list[int]) -> None:
    drained(case, gaps, Drain)


class IgnoresClaims(Drain):
    def accounted(self, n: int, claimed: int, slabs: list[Slab]) -> bool:
        return True


class IgnoresEnds(Drain):
    def closed(self, slab: Slab) -> bool:
        return True


class LooksInTheWrongOrder(Drain):
    def look(self, phase: int) -> None:
        super().look({0: 1, 1: 0, 2: 2}[phase])


@pytest.mark.parametrize("careless", [IgnoresClaims, IgnoresEnds])
def test_a_host_that_frees_memory_too_early_is_detected(careless: type[Drain]) -> None:
    def noticed(drawn: tuple[Case, list[int]]) -> bool:
        try:
            drained(*drawn, careless)
        except (Wrong, KeyError):
            return True
        return False

    # one small ring that several warps meet in, and a host that looks often
    seeds = st.integers(0, 1 << 20).map(lambda seed: replace(warps(8), seed=seed))
    often = st.lists(st.integers(0, 8), min_size=3, max_size=9)
    assert find(st.tuples(seeds, often), noticed, settings=search(1000))


def warps(count: int) -> Case:
    """This many blocks of one warp, which compete for a ring of two slabs."""
    blocks, small = tuple((x, 0, 0) for x in range(count)), Recording(records=4)
    shape = Grid((count, 1, 1))
    return simple(pool=Pool((Ring(3),)), recording=small, shape=shape, blocks=blocks, threads=(0,), order="random")


@pytest.mark.parametrize(("host_of", "right"), [(Drain, True), (LooksInTheWrongOrder, False)])
def test_skipped_must_be_read_before_head(host_of: type[Drain], right: bool) -> None:
    """One lane has claimed but not yet written; after it a claim reaches the ring's edge. If `skipped` is read after
    `head`, its skipped units compensate for the pending ones."""
    host, threads, _, _ = prepared(warps(3))
    drain = host_of(host)

    def until(lane: int, claims: int, skipped: int) -> None:
        for _ in steps([threads[lane]], "turns"):
            if len(host.claims()) == claims and int(host.stripe(0)["skipped"]) == skipped:
                return

    until(0, claims=1, skipped=0)
    drain.look(0)
    until(1, claims=2, skipped=0)
    until(2, claims=3, skipped=3)
    drain.look(1)
    drain.look(2)
    assert (drain.freed == 0 and drain.tails == [0]) == right


def drained(case: Case, gaps: list[int], host_of: type[Drain]) -> None:
    """A host drains while the kernel runs; every lane's records arrive once, or the lane is counted as lost."""
    case = replace(case, order="random" if case.order == "turns" else case.order)
    host, threads, ideals, _ = prepared(case)
    drain, looks, wait = host_of(host), 0, gaps[0]
    for _ in steps(threads, case.order, case.seed):
        if wait == 0:
            drain.look(looks % 3)
            looks += 1
            wait = gaps[looks % len(gaps)]
        else:
            wait -= 1
    for phase in range(6):
        drain.look(phase % 3)
    require(not any(any(ring.data) for ring in host.rings), "bytes in memory that was cleared")
    require(len({slab.key for slab in drain.collected}) == len(drain.collected), "a lane was collected twice")
    records_are_the_marks_in_order(drain.collected, ideals, case.recording)
    lost = sum(int(host.stripe(n)["lost"]) for n in range(len(host.rings)))
    lanes = {claim.thread.key for claim in host.claims()}
    require(len(drain.collected) + lost == len(lanes), "lanes are neither collected nor lost")


@examples(30)
@given(
    cases(threads=8, ample=True), st.lists(st.tuples(st.integers(0, 25), st.sampled_from([0, 7, 8])), max_size=20)
)
def test_lanes_record_completely_or_not_at_all_around_a_session_change(
    case: Case, changes: list[tuple[int, int]]
) -> None:
    """A lane belongs to the session whose epoch it read at its start, or to none. A warp reads the gate with one
    instruction for all lanes, which this machine does not model: one lane represents each warp."""
    leaders = tuple(thread for thread in case.threads if thread % 32 == 0)
    host, threads, ideals, _ = prepared(replace(case, order="random", threads=leaders))
    moving, seen = steps(threads, "random", case.seed), {case.epoch}
    for wait, epoch in changes:
        for _ in range(wait):
            next(moving, None)
        host.control.data[:4] = epoch.to_bytes(4, "little")
        seen.add(epoch)
    for _ in moving:
        pass
    lanes = {claim.thread.key for claim in host.claims()}
    units = host.claims()[0].units if lanes else 0
    stores_stay_inside_claimed_slabs(host, units)
    found = []
    for host.epoch in seen - {0}:
        ours = [slab for slab in host.slabs() if int(slab.head["who"]) >> wire.EPOCH_SHIFT & 1 == host.epoch & 1]
        heads_tell_where_the_lane_was(host, ours, ideals)
        records_are_the_marks_in_order([slab for slab in ours if slab.entry is not None], ideals, case.recording)
        found += ours
    assert len(found) == len(lanes)


@examples(30)
@given(kernels(depth=2), st.integers(2, 4))
def test_replays_of_one_grid_id_leave_a_slab_each(kernel: KernelText, replays: int) -> None:
    host, recording = Host(Pool((Ring(14),))), Recording(strategy=Elected(), records=8)
    program = host.load(lower(kernel.text(), recording, frontend="test").text)
    out = host.memory.allocate("out", 64)
    for n in range(replays):
        clocks = Clocks(cycles=1000 * n, time=1 << 20 + n)
        launch = Launch(program, host.memory, "k", Grid(), [out.base], threads=(0, 1), grid_id=5, clocks=clocks)
        assert sum(1 for _ in steps(launch.start(), "lockstep", n))
    host.launched(Grid(), [(0, 0, 0)])
    slabs = host.slabs()
    assert [slab.entry["grid_id"] for slab in slabs if slab.entry is not None] == [5] * replays
    times = [(1 << 20 + n) + 2 >> wire.TIME_SHIFT for n in range(replays)]
    assert sorted(int(slab.head["start_time"]) % (1 << wire.LOG2_SHIFT) for slab in slabs) == times


@examples(10)
@given(kernels(depth=1))
def test_a_launch_without_any_slab_leaves_its_entry(kernel: KernelText) -> None:
    """After a fault, the launch table names kernels that left nothing else."""
    host, recording = Host(Pool((Ring(14),))), Recording(strategy=TargetWarp(7), records=8)
    program = host.load(lower(kernel.text(), recording, frontend="test").text)
    out = host.memory.allocate("out", 64)
    launch = Launch(program, host.memory, "k", Grid(), [out.base], threads=(0, 1), grid_id=5)
    assert sum(1 for _ in steps(launch.start(), "lockstep", 0))
    entry = host.table()[5]
    assert host.slabs() == [] and entry["grid_id"] == 5
    assert entry["check"] == wire.launch_check(entry[None], host.epoch)[0]
