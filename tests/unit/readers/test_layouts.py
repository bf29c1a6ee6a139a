"""Buffers of other profilers' kernels, read: the same spans as were written, on the same lanes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import foreign
import numpy as np
import pytest
import traces
from foreign import Group
from hypothesis import given
from hypothesis import strategies as st

from kscope import readers
from kscope.capture.layout import Kind
from kscope.trace import Trace

NAMES = traces.NAMES
FAMILY: dict[str, tuple[Callable[..., np.ndarray], Callable[..., Trace]]] = {
    "flashinfer": (foreign.flashinfer, readers.flashinfer),
    "flashinfer with SMs": (foreign.flashinfer_sm, readers.flashinfer),
    "mirage": (foreign.mirage, readers.mirage),
    "triton-distributed": (foreign.triton_distributed, readers.triton_distributed),
}
HAVE_SM = {"flashinfer with SMs", "triton-distributed", "sm-profiler"}
Row = tuple[str, int, int, int, int, int]


def rows(trace: Trace, sm: bool = True) -> list[Row]:
    """(name, block, group, SM, start, end) of the spans, in order; written at twice the pace."""
    names, warps = trace.region_names(), trace.warps
    start = trace.start_ticks - trace.origin
    assert not (start % 2).any() and not (trace.dur_cycles % 2).any()
    columns = (
        names[trace.region], warps.block[trace.track], warps.warp[trace.track], warps.sm[trace.track] * sm, start // 2,
        (start + trace.dur_cycles) // 2,
    )  # fmt: skip
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def written(made: list[traces.Lane], sm: bool = True) -> list[Row]:
    begin = min((start for lane in made for _, start, _ in lane.spans), default=0)
    return sorted(
        (name, lane.block, lane.warp, lane.sm * sm, start - begin, end - begin)
        for lane in made
        for name, start, end in lane.spans
    )


def groups(made: list[traces.Lane], origin: int = 0) -> list[Group]:
    return [
        Group.of(
            [(NAMES.index(name), origin + 2 * start + 1, origin + 2 * end + 1) for name, start, end in lane.spans],
            block=lane.block, group=lane.warp, sm=lane.sm,
        )
        for lane in made
    ]  # fmt: skip


def kinds(trace: Trace) -> set[str]:
    return {problem.kind for problem in trace.problems}


@pytest.mark.parametrize("layout", FAMILY)
@given(seed=st.integers(0, 1 << 30), turn=st.booleans())
def test_tagged_records_come_back_as_they_were_made(layout: str, seed: int, turn: bool) -> None:
    made = traces.lanes(random.Random(seed), blocks=4, warps=3)
    write, read = FAMILY[layout]
    # a zero word counts as unwritten, so no time is 0
    buffer = write(groups(made, (1 << 32) - 1030 if turn else 0), 4, 3)
    trace = read(buffer, NAMES)
    sm = layout in HAVE_SM and any(lane.sm for lane in made if lane.spans)
    assert rows(trace, sm) == written(made, sm)
    assert kinds(trace) <= {"assumed", "blank"}


@given(seed=st.integers(0, 1 << 30))
def test_sm_profiler_events_come_back(seed: int) -> None:
    made = [lane for lane in traces.lanes(random.Random(seed), blocks=3, warps=2) if _apart(lane)]
    trace = readers.sm_profiler(foreign.sm_profiler(groups(made), 3, 2), NAMES)
    assert rows(trace) == written(made)
    assert kinds(trace) <= {"blank"}


def _apart(lane: traces.Lane) -> bool:
    """True if no span is nested in one of its name, which sm-profiler itself drops."""
    inside = [
        (a, b) for a in lane.spans for b in lane.spans if a is not b and a[0] == b[0] and a[1] <= b[1] and b[2] <= a[2]
    ]
    return not inside


@given(seed=st.integers(0, 1 << 30), compact=st.booleans())
def test_nuggets_events_come_back(seed: int, compact: bool) -> None:
    made = traces.lanes(random.Random(seed), blocks=5, warps=1)
    origin = (8 << 32) - 2 * (traces.START + 40)  # the low half turns over between the anchors and the later events
    units = [[(origin + 2 * a, 2 * (b - a), NAMES.index(name), 0) for name, a, b in lane.spans] for lane in made]
    if compact:
        buffer = foreign.nuggets_compact(units, 40, [origin + 2 * lane.start for lane in made])
    else:
        buffer = foreign.nuggets(units, 40)
    trace = readers.nuggets(buffer, NAMES, units=5, compact=compact)
    assert rows(trace, sm=False) == written(made, sm=False)
    assert kinds(trace) <= {"assumed", "blank"}


def test_the_first_layout_of_nuggets_has_one_slice_and_shows_threads_by_tid() -> None:
    buffer = foreign.nuggets([[(1000, 50, 0, 3), (1010, 5, 1, 3), (1000, 60, 0, 4)]], 8)
    by_block, by_warp = (readers.nuggets(buffer, ["outer", "inner"], tid=tid) for tid in ("block", "warp"))
    assert by_block.warps.block.tolist() == [3, 4] and by_block.warps.warp.tolist() == [0, 0]
    assert by_warp.warps.block.tolist() == [0, 0] and by_warp.warps.warp.tolist() == [3, 4]
    assert by_block.depth.tolist() == [1, 0, 0]


def test_points_and_the_end_of_a_lane() -> None:
    made = Group(1, 0, 0, [("begin", 0, 100), ("point", 1, 120), ("end", 0, 150), ("last", 0, 400)])
    trace = readers.flashinfer(foreign.flashinfer([made], 2), ["load", "here"])
    assert trace.kind.tolist() == [Kind.INSTANT, Kind.SPAN]
    assert trace.dur_ns.tolist() == [0, 50]
    assert trace.warps.end_ns.tolist() == [300] and trace.warps.finished.all()
    assert trace.summary().points[0].count == 1


def test_instants_of_sm_profiler() -> None:
    made = Group(0, 1, 5, [("begin", 2, 100), ("point", 3, 120), ("end", 2, 150)])
    trace = readers.sm_profiler(foreign.sm_profiler([made], 1, 2), {2: "load", 3: "sync"})
    assert sorted(zip(trace.region_names()[trace.region], trace.kind.tolist(), strict=True)) == [
        ("load", Kind.SPAN), ("sync", Kind.INSTANT),
    ]  # fmt: skip
    assert set(trace.sm.tolist()) == {5}


def test_recursive_events_end_innermost_first() -> None:
    marks = [("begin", 0, 0), ("begin", 0, 10), ("end", 0, 20), ("end", 0, 40), ("begin", 0, 50), ("end", 0, 51)]
    made = Group(0, 0, 0, [(what, event, 1000 + time) for what, event, time in marks])
    trace = readers.flashinfer(foreign.flashinfer([made], 1), ["a"])
    assert list(zip(trace.start_ns.tolist(), trace.dur_ns.tolist(), strict=True)) == [(10, 10), (0, 40), (50, 1)]


def test_mirage_groups_beyond_eight_bits_are_placed_by_position() -> None:
    made = Group(300, 0, 0, [("begin", 400, 10), ("end", 400, 30)])
    trace = readers.mirage(foreign.mirage([made], 400, slots=4))
    assert trace.warps.block.tolist() == [300]
    assert trace.region_names()[trace.region].tolist() == ["event 400"]


def test_spans_that_end_together_keep_their_nesting() -> None:
    marks = [("begin", 0, 10), ("begin", 1, 20), ("begin", 2, 25), ("end", 2, 40), ("end", 1, 40), ("end", 0, 40)]
    trace = readers.flashinfer(foreign.flashinfer([Group(0, 0, 0, marks)], 1), ["a", "b", "c"])
    assert dict(zip(trace.region_names()[trace.region].tolist(), trace.depth.tolist(), strict=True)) == {
        "a": 0, "b": 1, "c": 2,
    }  # fmt: skip


def test_proton_durations_are_cycles_and_its_blocks_are_placed_by_the_timer() -> None:
    scopes = [(0, "load", 5000, 400), (0, "dot", 5500, 300), (1, "load", 5100, 900)]
    data = foreign.proton(
        [("matmul", 3, 7, 1_000_000, 1_001_500, scopes), ("matmul", 4, 8, 1_000_250, 1_001_900, scopes[:1])]
    )
    trace = readers.proton(data, mhz=2000)
    found = {
        (trace.region_names()[region], int(block), int(warp), int(sm), start, cycles, ns)
        for region, block, warp, sm, start, cycles, ns in zip(
            trace.region, trace.block, trace.warp, trace.sm, trace.start_ns.tolist(), trace.dur_cycles.tolist(),
            trace.dur_ns.tolist(), strict=True,
        )
    }  # fmt: skip
    assert found == {
        ("load", 7, 0, 3, 0.0, 400, 200.0), ("dot", 7, 0, 3, 250.0, 300, 150.0), ("load", 7, 1, 3, 50.0, 900, 450.0),
        ("load", 8, 0, 4, 250.0, 400, 200.0),
    }  # fmt: skip
    assert trace.kernels == ("matmul",) and trace.origin == 1_000_000
    assert trace.problems == () and not trace.warps.timer.any()
    assert sorted(trace.warps.end_ns.tolist()) == [1500, 1500, 1900]


def test_missing_proton_clock_rates_are_reported() -> None:
    block = [("k", 0, 0, 5, 905, [(0, "a", 0, 720)])]
    reported, silent = (readers.proton(foreign.proton(block, mhz)) for mhz in (1800.0, None))
    assert reported.dur_cycles.tolist() == [720] and reported.dur_ns.tolist() == [pytest.approx(400)]
    assert reported.problems == ()
    assert silent.dur_cycles.tolist() == [720] and kinds(silent) == {"assumed"}


def test_blocks_seen_twice_by_proton_are_two_launches() -> None:
    runs = [("k", 0, block, 1000 * run, 1000 * run + 500, [(0, "a", 0, 100)]) for run in (1, 2) for block in (0, 1)]
    trace = readers.proton(foreign.proton(runs), mhz=1000)
    assert len(trace.launches) == 2
    assert sorted(trace.launch.tolist()) == [0, 0, 1, 1]
    assert sorted(trace.start_ns.tolist()) == [0, 0, 1000, 1000]


@pytest.mark.parametrize("form", ["array", "int64", "bytes", "npy", "columns", "big", "raw", "tensor"])
def test_buffers_come_in_many_forms(form: str, tmp_path: Any) -> None:
    buffer = foreign.flashinfer([Group(0, 0, 0, [("begin", 0, 10), ("end", 0, 30)])], 1)
    np.save(tmp_path / "b.npy", buffer)
    np.save(tmp_path / "columns.npy", np.asfortranarray(buffer.reshape(5, -1)))
    np.save(tmp_path / "big.npy", buffer.astype(">u8"))
    (tmp_path / "b.bin").write_bytes(buffer.tobytes())

    class Tensor:
        def detach(self) -> Tensor:
            return self

        def cpu(self) -> np.ndarray:
            return buffer

    given: dict[str, Any] = {
        "array": buffer, "int64": buffer.view(np.int64), "bytes": buffer.tobytes(), "npy": tmp_path / "b.npy",
        "columns": tmp_path / "columns.npy", "big": tmp_path / "big.npy",
        "raw": str(tmp_path / "b.bin"), "tensor": Tensor(),
    }  # fmt: skip
    assert readers.flashinfer(given[form]).dur_ns.tolist() == [20]


def test_a_custom_write_stride_is_used() -> None:
    marks = [("begin", 0, 10), ("end", 0, 30)]
    wide = foreign.flashinfer([Group(block, 0, 0, marks) for block in range(3)], 8)
    wide[0] = 3 | 1 << 32
    assert readers.flashinfer(wide, ["load"], stride=8).dur_ns.tolist() == [20, 20, 20]
    assert "garbled" in kinds(readers.flashinfer(wide, ["load"]))


def test_the_timer_step_of_foreign_buffers_is_estimated() -> None:
    marks = [mark for n in range(10) for mark in (("begin", 0, 320 * n), ("end", 0, 320 * n + 64 + 32 * n))]
    trace = readers.flashinfer(foreign.flashinfer([Group(0, 0, 0, marks[1:])], 1), ["load"])
    assert trace.tick_ns == 32
    assert "its times are multiples of 32 ns" in " ".join(str(trace.summary()).split())
