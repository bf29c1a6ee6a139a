"""Damaged and hostile data of other profilers: problems, never an exception, and never more memory than it deserves."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foreign
import numpy as np
import pytest
from foreign import Group
from hypothesis import given
from hypothesis import strategies as st

from kscope import readers
from kscope.analysis import gaps, occupancy
from kscope.errors import FormatError, UsageError
from kscope.trace import Trace

MARKS = [("begin", 0, 100), ("begin", 1, 120), ("end", 1, 150), ("point", 2, 160), ("end", 0, 200)]
PAIRS = [mark for mark in MARKS if mark[0] != "point"]


def _groups(marks: list[foreign.Mark]) -> list[Group]:
    return [Group(block, group, block % 3, list(marks)) for block in range(4) for group in range(2)]


EVENTS = [[(1 << 40, 50, 0, 0), ((1 << 40) + 10, 5, 1, 0)]] * 4
PROTON = foreign.proton([("k", 1, block, 1000, 2000, [(0, "a", 5, 100), (1, "b", 50, 10)]) for block in range(3)])
WHOLE: dict[str, tuple[bytes, Callable[[Any], Trace]]] = {
    "flashinfer": (foreign.flashinfer(_groups(MARKS), 4, 2, slots=8).tobytes(), readers.flashinfer),
    "flashinfer with SMs": (foreign.flashinfer_sm(_groups(MARKS), 4, 2, slots=8).tobytes(), readers.flashinfer),
    "mirage": (foreign.mirage(_groups(MARKS), 4, 2, slots=8).tobytes(), readers.mirage),
    "triton-distributed": (foreign.triton_distributed(_groups(PAIRS), 4, 2).tobytes(), readers.triton_distributed),
    "sm-profiler": (foreign.sm_profiler(_groups(MARKS), 4, 2, 4), readers.sm_profiler),
    "nuggets": (foreign.nuggets(EVENTS, 4).tobytes(), lambda data: readers.nuggets(data, units=4)),
    "nuggets by warp": (foreign.nuggets(EVENTS, 4).tobytes(), lambda data: readers.nuggets(data, units=4, tid="warp")),
    "nuggets compact": (
        foreign.nuggets_compact(EVENTS, 4, [1 << 40] * 4).tobytes(),
        lambda data: readers.nuggets(data, units=4, compact=True),
    ),
}
EVERY = {**WHOLE, "proton": (PROTON, readers.proton)}


def used(trace: Trace) -> None:
    """Common uses of a trace."""
    assert len(trace.track) == len(trace) and (np.diff(trace.track) >= 0).all()
    str(trace.summary("sm"))
    str(trace.summary("role"))
    occupancy.overview(trace)
    gaps.gaps_by_neighbors(trace)
    occupancy.utilization(trace)
    occupancy.waves(trace)
    assert (trace.depth >= 0).all()


@pytest.mark.parametrize("layout", EVERY)
def test_undamaged_buffers_have_no_problem(layout: str) -> None:
    data, read = EVERY[layout]
    trace = read(data)
    assert len(trace) and {problem.kind for problem in trace.problems} <= {"assumed"}
    used(trace)


@pytest.mark.parametrize("layout", WHOLE)
@given(seed=st.integers(0, 1 << 30))
def test_damaged_words_never_raise(layout: str, seed: int) -> None:
    data, read = WHOLE[layout]
    rng = random.Random(seed)
    words = bytearray(data)
    for _ in range(rng.choice((1, 3, 30))):
        at = rng.randrange(0, len(words), rng.choice((1, 8)))
        words[at] = rng.choice((0, 0xFF, rng.randrange(256)))
        if rng.random() < 0.3:
            words[at : at + 8] = rng.randbytes(8)[: len(words) - at]
    used(read(bytes(words[: rng.choice((len(words), rng.randrange(len(words) + 1)))])))


@pytest.mark.parametrize("layout", WHOLE)
@given(data=st.binary(max_size=400))
def test_noise_never_raises(layout: str, data: bytes) -> None:
    used(WHOLE[layout][1](data))


@pytest.mark.parametrize("layout", WHOLE)
@pytest.mark.parametrize("size", [0, 7, 8, 16, 17, 64, 200])
def test_a_buffer_that_was_cut_is_reported(layout: str, size: int) -> None:
    data, read = WHOLE[layout]
    trace = read(data[:size])
    assert {problem.kind for problem in trace.problems} - {"assumed"} or size >= len(data)
    used(trace)


@pytest.mark.parametrize("layout", ["flashinfer", "mirage", "triton-distributed", "sm-profiler"])
def test_oversized_header_counts_allocate_little_memory(layout: str) -> None:
    data, read = WHOLE[layout]
    huge = b"\xfe" * (16 if layout == "sm-profiler" else 8) + data[16 if layout == "sm-profiler" else 8 :]
    tracemalloc.start()
    trace = read(huge)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
    assert "cut" in {problem.kind for problem in trace.problems}
    used(trace)


def _count(trace: Trace, kind: str) -> int:
    return sum(problem.count for problem in trace.problems if problem.kind == kind)


def test_unpaired_marks_are_reported() -> None:
    lost = Group(0, 0, 0, [("end", 1, 10), ("begin", 0, 20), ("begin", 0, 30), ("end", 0, 40)])
    trace = readers.flashinfer(foreign.flashinfer([lost], 1))
    assert _count(trace, "unpaired") == 2
    assert trace.dur_cycles.tolist() == [-1, 10] and trace.start_ns.tolist() == [0, 10]
    assert not trace.warps.finished.any()


def test_times_that_go_back_are_reported() -> None:
    back = Group(0, 0, 0, [("begin", 0, 1000), ("end", 0, 900), ("begin", 1, 1000), ("end", 1, 1100)])
    trace = readers.flashinfer(foreign.flashinfer([back], 1))
    assert _count(trace, "order") == 1
    assert sorted(trace.dur_cycles.tolist()) == [-1, 100]


def test_a_tag_of_another_lane_is_left_out() -> None:
    buffer = foreign.flashinfer(_groups(PAIRS), 4, 2, slots=8)
    buffer[1] |= np.uint64(5 << 12)
    trace = readers.flashinfer(buffer)
    assert _count(trace, "garbled") == 1 and _count(trace, "unpaired") == 1


def test_names_that_are_missing_are_reported() -> None:
    trace = readers.flashinfer(foreign.flashinfer(_groups(PAIRS), 4, 2), ["outer"])
    assert _count(trace, "unknown") == 8
    assert set(trace.region_names()[trace.region]) == {"outer", "event 1"}


def test_events_that_found_no_room_are_counted() -> None:
    full = foreign.sm_profiler(_groups(PAIRS), 4, 2, 2, counts={0: 2, 3: 9})
    assert _count(readers.sm_profiler(full), "refused") == 7
    assert _count(readers.nuggets(foreign.nuggets(EVENTS, 2, counts=[2, 2, 7, 2]), units=4), "refused") == 5


def test_ranges_without_an_end_or_with_an_early_end_are_unknown() -> None:
    made = Group(0, 0, 0, [("begin", 0, 100), ("begin", 1, 200), ("end", 1, 150)])
    trace = readers.sm_profiler(foreign.sm_profiler([made], 1))
    assert trace.dur_cycles.tolist() == [-1, -1]
    assert _count(trace, "unpaired") == 1 and _count(trace, "order") == 1


def test_a_disabled_sm_profiler_recorded_nothing() -> None:
    trace = readers.sm_profiler(foreign.sm_profiler([], 4, 1, 4, enabled=0))
    assert [problem.kind for problem in trace.problems] == ["nothing"]


@pytest.mark.parametrize("anchor", [0, 77 << 56, (1 << 40) + 5_000_000_000])
def test_units_with_an_overwritten_anchor_are_dropped(anchor: int) -> None:
    trace = readers.nuggets(
        foreign.nuggets_compact(EVENTS, 4, [1 << 40, anchor, 1 << 40, 1 << 40]), units=4, compact=True
    )
    assert set(trace.block.tolist()) == {0, 2, 3} and _count(trace, "garbled") == 1


def test_durations_that_24_bits_may_not_hold_are_reported() -> None:
    units = [[(1 << 40, 50, 0, 0), ((1 << 40) + (1 << 24), 5, 1, 0)]]
    trace = readers.nuggets(foreign.nuggets_compact(units, 4, [1 << 40]), compact=True)
    assert "wrap" in {problem.kind for problem in trace.problems}


@pytest.mark.parametrize("ends", [len(PROTON) - 3, len(PROTON) - 60, len(PROTON) // 2])
def test_a_proton_trace_that_was_cut_keeps_its_whole_events(ends: int) -> None:
    trace = readers.proton(PROTON[:ends])
    assert 0 < len(trace) < 7 and "cut" in {problem.kind for problem in trace.problems}
    used(trace)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 63) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)
FIELDS = ("name", "cat", "ph", "pid", "tid", "ts", "dur", "args")
ARGS = ("Init Time (ns)", "Post Final Time (ns)", "Finalization Time (ns)", "Frequency (MHz)")


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from((*FIELDS, *ARGS, "")), JSON), max_size=6))
def test_a_hostile_proton_trace_never_raises(changes: list[tuple[int, str, Any]]) -> None:
    data = json.loads(PROTON)
    for index, name, value in changes:
        event = data["traceEvents"][index]
        if not name:
            data["traceEvents"][index] = value
        elif isinstance(event, dict):
            place = event.get("args") if name in ARGS else event
            if isinstance(place, dict):
                place[name] = value
    text = json.dumps(data).replace("NaN", "null").replace("-Infinity", "null").replace("Infinity", "1e300")
    used(readers.proton(text.encode("utf-8", "surrogatepass")))


@pytest.mark.parametrize("text", [b"", b"{", b"nonsense", b"3", b'{"traceEvents": 3}', b"\xff\xfe"])
def test_invalid_proton_files_are_refused(text: bytes) -> None:
    with pytest.raises(FormatError, match=r"not JSON|traceEvents"):
        readers.proton(text)


def test_other_events_of_a_chrome_trace_are_left_out() -> None:
    events = [{"ph": "M", "name": "process_name"}, {"ph": "X", "pid": 3, "tid": 1, "ts": 1, "dur": 1, "name": "x"}]
    trace = readers.proton(json.dumps(events).encode())
    assert len(trace) == 0 and _count(trace, "foreign") == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: readers.flashinfer(object()), lambda: readers.flashinfer(np.array(["a"])),
        lambda: readers.flashinfer(np.zeros(4, object)), lambda: readers.flashinfer(b"", names="abc"),
        lambda: readers.flashinfer(b"", names=[1]), lambda: readers.nuggets(b"", units=0),
        lambda: readers.nuggets(b"", tid="lane"), lambda: readers.proton(b"[]", mhz=0),
    ],
)  # fmt: skip
def test_invalid_reader_arguments_are_refused(call: Callable[[], Trace]) -> None:
    with pytest.raises(UsageError, match="expected"):
        call()


def test_a_file_that_is_not_a_numpy_array_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"nothing of numpy's")
    huge = b"\x93NUMPY\x01\x00v\x00{'descr': '<u8', 'fortran_order': False, 'shape': (1099511627776,), }"
    (tmp_path / "huge.npy").write_bytes(huge.ljust(127) + b"\n")
    np.save(tmp_path / "object.npy", np.array([{}], object))
    header = b"(" * 5000 + b"\n"
    deep = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (tmp_path / "deep.npy").write_bytes(deep)
    for name in ("x", "huge", "object", "deep"):
        with pytest.raises(FormatError, match=r"numpy\.save"):
            readers.flashinfer(tmp_path / f"{name}.npy")
    with pytest.raises(FileNotFoundError):
        readers.flashinfer(tmp_path / "none.npy")


def test_a_million_records_decode_without_a_python_loop() -> None:
    lanes, slots = 1000, 1000
    mark = np.arange(slots, dtype=np.uint64)
    tag = np.arange(lanes, dtype=np.uint64)[None, :] << np.uint64(12) | (mark % 2)[:, None]
    time = (mark * np.uint64(64) + np.uint64(1))[:, None] << np.uint64(32)
    buffer = np.concatenate([[np.uint64(lanes | 1 << 32)], (tag | time).reshape(-1)])
    trace = readers.flashinfer(buffer)
    assert len(trace) == lanes * slots // 2
    assert set(trace.dur_cycles.tolist()) == {64}


@pytest.mark.parametrize("suffix", [".pftrace", ".json", ".html", ".csv", ".hatchet"])
def test_damaged_foreign_buffers_are_exported(suffix: str, tmp_path: Path) -> None:
    for layout, (data, read) in WHOLE.items():
        rng = random.Random(layout)
        words = bytearray(data)
        for _ in range(5):
            words[rng.randrange(len(words))] = rng.randrange(256)
        trace = read(bytes(words))
        assert trace.export(tmp_path / f"x{suffix}") == len(trace)


def test_events_outside_their_group_are_dropped() -> None:
    data = bytearray(foreign.sm_profiler([Group(0, 0, 0, [("begin", 0, 100), ("end", 0, 150)])], 1, 2, 1))
    place = len(data) - 80  # two groups of one event each
    data[place + 12] = 1
    trace = readers.sm_profiler(bytes(data))
    assert len(trace) == 0 and _count(trace, "garbled") == 1


def test_entries_with_a_wrong_block_leave_the_sm_unknown() -> None:
    marks = [("begin", 0, 100), ("end", 0, 150)]
    buffer = foreign.triton_distributed([Group(block, 0, 5, marks) for block in range(2)], 2)
    buffer[2] = 0 | 7 << 32
    trace = readers.triton_distributed(buffer)
    assert sorted(zip(trace.block.tolist(), trace.sm.tolist(), strict=True)) == [(0, 5), (1, 0)]
    assert _count(trace, "garbled") == 1
