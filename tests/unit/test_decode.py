"""Words to columns: every record that a device kept, and an exact account of those it did not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import synth
from hypothesis import example, given
from hypothesis import strategies as st
from synth import Rec, instant

from kscope.capture import layout
from kscope.capture.capture import Capture
from kscope.capture.layout import Kind
from kscope.capture.model import KernelMeta, ModuleMeta, Problem, RegionMeta
from kscope.export.timeline import timeline
from kscope.trace import Trace, decode

NAMES = ("load", "dot", "tile", "wait")


def test_a_name_has_the_type_that_its_kernel_gives_its_values() -> None:
    half = int(np.float32(0.5).view(np.uint32))
    slabs = [
        synth.slab([instant("a", 2000, bits)], kernel=kernel, grid_id=kernel) for kernel, bits in ((1, 7), (2, half))
    ]
    kernels = KernelMeta("one", 1, 3), KernelMeta("two", 2, 3)
    module = ModuleMeta("synth", kernels, (RegionMeta("a", "i32", None, 0), RegionMeta("a", "f32", None, 1)))
    whole = Capture(synth.EPOCH, (synth.device(slabs),), (module,), {"strategy": "warp"}, (), {})
    trace = decode(whole)
    assert sorted(zip(trace.kernel.tolist(), trace.value.tolist(), strict=True)) == [(0, 7.0), (1, 0.5)]
    (alone,) = decode(replace(whole, devices=(synth.device(slabs[1:]),))).value.tolist()
    assert alone == 0.5 and not trace.problems


def kinds(trace: Trace) -> dict[str, int]:
    return {problem.kind: problem.count for problem in trace.problems}


def rows(trace: Trace) -> list[tuple[int, int, str, Kind, int, int]]:
    """(block, warp, name, kind, start, duration) of every record, in the trace's order."""
    names = [(trace.regions[index].name, trace.regions[index].kind) for index in trace.region.tolist()]
    columns = (trace.block, trace.warp, trace.start_ticks, trace.dur_cycles)
    found = zip(*(column.tolist() for column in columns), names, strict=True)
    return [(block, warp, *name, start, dur) for block, warp, start, dur, name in found]


@st.composite
def slabs(
    draw: st.DrawFn, block: int, near: int = 1000
) -> tuple[np.ndarray, list[tuple[int, int, str, Kind, int, int]], int]:
    """(lines, kept records, dropped ones) of a finished slab of less than 2^32 ticks."""
    log2, stop = draw(st.integers(2, 5)), draw(st.booleans())
    count = draw(st.integers(0, 3 << log2))
    clock, records = near, []
    for _ in range(count):
        start = clock + draw(st.integers(0, 50))
        clock = start + draw(st.integers(0, 1000))
        kind = draw(st.sampled_from(list(Kind)))
        clock = clock if kind <= Kind.SPAN_VALUE else start
        records.append(Rec(draw(st.sampled_from(NAMES)), start, clock, kind, draw(st.integers(0, 0xFFFFFFFF))))
    flags = layout.FLAG_STOP if stop else 0
    warp = draw(st.integers(0, 31))
    lines = synth.slab(
        records, log2=log2, start=near, end=clock + 10, block=(block, 0, 0), grid=(64, 1, 1), warp=warp, flags=flags
    )
    kept = records[: 1 << log2] if stop else records[-(1 << log2) :]
    return lines, [(block, warp, r.name, r.kind, r.start, r.end - r.start) for r in kept], max(0, count - (1 << log2))


@given(st.data())
def test_every_kept_record_is_decoded_once_and_every_other_counted(data: st.DataObject) -> None:
    near = data.draw(st.sampled_from([0, 1000, (1 << 32) - 500, (1 << 45) + 7]))
    drawn = [data.draw(slabs(block, near)) for block in range(data.draw(st.integers(0, 6)))]
    gaps = [np.zeros((data.draw(st.integers(0, 3)), 16), np.uint32) for _ in drawn]
    parts = [part for (lines, _, _), gap in zip(drawn, gaps, strict=True) for part in (gap, lines)]
    trace = decode(replace(synth.capture(*parts, names=NAMES), options={"block": [0, 9, 1]}))
    assert Counter(rows(trace)) == Counter(row for _, kept, _ in drawn for row in kept)
    assert trace.warps.records.tolist() == np.bincount(trace.track, minlength=len(drawn)).tolist()
    assert sum(kinds(trace).get(kind, 0) for kind in ("overwritten", "refused")) == sum(more for *_, more in drawn)
    assert int((trace.warps.written - trace.warps.records).sum()) == sum(more for *_, more in drawn)
    assert not kinds(trace).keys() - {"overwritten", "refused", "rate", "clock", "blank"}


@given(st.data())
def test_records_of_a_lane_are_ordered_by_end(data: st.DataObject) -> None:
    lines, kept, _ = data.draw(slabs(0))
    assert rows(decode(synth.capture(lines, names=NAMES))) == kept


@pytest.mark.parametrize(
    ("slabs", "records", "log2"), [(100, 64, 6), (300, 250, 8), (40, 3, 2), (7, 5000, 13), (1, 1, 2)]
)
def test_equal_slabs_are_decoded_as_written(slabs: int, records: int, log2: int) -> None:
    lines = synth.bulk(slabs, records, log2=log2)
    trace = decode(Capture(synth.EPOCH, (synth.device(lines, tick_ns=32),), (synth.module(("load", "dot", "tile")),)))
    words = lines.reshape(slabs, -1, 4)[:, 8 : 8 + records].reshape(-1, 4).astype(np.int64)
    assert trace.dur_cycles.tolist() == ((words[:, 2] - words[:, 0]) & 0xFFFFFFFF).tolist()
    first = trace.warps.first_tick[trace.track]
    assert ((trace.start_ticks & 0xFFFFFFFF) == words[:, 0]).all()
    assert ((trace.start_ticks >= first) & (trace.start_ticks - first < 1 << 31)).all()
    assert [trace.regions[index].name for index in trace.region[:3]] == ["load", "dot", "tile"][:records]
    assert trace.track.tolist() == np.repeat(np.arange(slabs), records).tolist()
    assert kinds(trace).keys() <= {"rate"}  # one short warp does not tell the clock's rate


def test_an_empty_capture_is_an_empty_trace() -> None:
    for capture in (Capture(0, (), ()), synth.capture()):
        trace = decode(capture)
        assert len(trace) == len(trace.warps) == len(trace.launches) == 0
        assert trace.start_ns.shape == trace.value.shape == trace.depth.shape == (0,)


@pytest.mark.parametrize(
    ("device", "found", "kind"),
    [
        ({}, (), "blank"),
        ({}, (Problem("plain", "kernel old was compiled before"),), "blank"),
        ({"lost": 5}, (), "lost"),
        ({"lines": synth.slab([Rec("load", 2000, 2100)])[1:]}, (), "blank"),
        ({"lines": synth.slab([Rec("load", 2000, 2100)]) ^ np.uint32(1 << 20)}, (), "blank"),
        ({}, (Problem("driver", "device 0: CUDA_ERROR_LAUNCH_FAILED"),), "driver"),
        ({}, (Problem("absent", "nothing is recorded on cuda: there is no GPU"),), "absent"),
    ],
)
def test_a_trace_without_records_has_one_reason(device: dict[str, Any], found: tuple[Problem, ...], kind: str) -> None:
    """A full pool or a fault is not contradicted by guesses about kernels."""
    capture = synth.capture()
    trace = decode(replace(capture, devices=(replace(capture.devices[0], **device),), problems=found))
    reasons = {"blank", "lost", "driver", "absent"}
    assert [one.kind for one in trace.problems if one.kind in reasons] == [kind] and len(trace) == 0


def test_a_torn_header_is_a_problem_and_no_data() -> None:
    torn = synth.slab([Rec("load", 2000, 2100)])
    torn[0, 6] ^= 1
    trace = decode(synth.capture(torn, synth.slab([Rec("dot", 2000, 2100)])))
    assert [row[2] for row in rows(trace)] == ["dot"]
    assert kinds(trace)["torn"] == 1


def test_unknown_layouts_are_named_with_the_remedy() -> None:
    other = synth.slab([], magic=layout.MAGIC << 16 | (layout.MAJOR + 1) << 8 | 3)
    trace = decode(synth.capture(other))
    [problem] = [problem for problem in trace.problems if problem.kind == "version"]
    assert f"layout {layout.MAJOR + 1}.3" in problem.text
    assert "decode with the kscope that recorded" in problem.text


def test_a_newer_minor_layout_is_read() -> None:
    assert len(decode(synth.capture(synth.slab([Rec("load", 2000, 2100)], magic=layout.HEADER_WORD + 1)))) == 1


def test_slabs_of_another_session_are_left_out_and_counted() -> None:
    old = synth.slab([Rec("load", 2000, 2100)], epoch=synth.EPOCH - 1)
    trace = decode(synth.capture(old, synth.slab([Rec("dot", 2000, 2100)])))
    assert [row[2] for row in rows(trace)] == ["dot"]
    assert kinds(trace)["foreign"] == 1


def test_a_slab_cut_off_by_the_end_of_the_data_is_reported() -> None:
    trace = decode(synth.capture(synth.slab([Rec("load", 2000, 2100)])[:-1]))
    assert len(trace) == 0
    assert kinds(trace)["cut"] == 1


def test_a_record_that_looks_like_a_header_is_a_record() -> None:
    inner = synth.slab([], log2=2)
    outer = synth.slab([Rec("load", 2000, 2100)], log2=6)
    outer[4:6] = inner[:2]
    trace = decode(synth.capture(outer))
    assert len(trace.warps) == 1
    assert "torn" not in kinds(trace)


def test_stored_records_of_unfinished_warps_are_decoded() -> None:
    records = [Rec("load", 2000, 2100), Rec("dot", 2200, 2300)]
    trace = decode(synth.capture(synth.slab(records, end=None)))
    assert [(row[4], row[5]) for row in rows(trace)] == [(2000, 100), (2200, 100)]
    assert kinds(trace)["unfinished"] == 1
    assert not trace.warps.finished.any()
    assert np.isnan(trace.warps.end_ns).all()


@pytest.mark.parametrize(
    ("read_ns", "last"), [(0, 2300), (10**9, 1980 * 10**6), (500, 2300), (1 << 62, 2300), ((1 << 63) - 1, 2300)]
)
def test_an_unfinished_warp_lasts_until_the_data_was_read(read_ns: int, last: int) -> None:
    """Three seconds into a hang it was as short as its records. A time that cannot be changes nothing."""
    ended = [synth.slab([Rec("load", 2000, 2100)], end=10**9, block=(1, 0, 0))]  # it shows the clock's rate
    slabs = [synth.slab([Rec("load", 2000, 2100), Rec("dot", 2200, 2300)], end=None), *ended]
    found = synth.capture(*slabs)
    trace = decode(replace(found, devices=(replace(found.devices[0], read_ns=read_ns),)))
    (lifetime,) = trace.warps.last_tick[~trace.warps.finished]
    assert lifetime == pytest.approx(last, rel=1e-4)
    assert trace.warps.last_tick[trace.warps.finished].tolist() == [10**9]


def test_unfinished_warps_with_a_full_ring_are_ordered_and_report_an_unknown_count() -> None:
    records = [Rec("load", 2000 + 10 * i, 2005 + 10 * i) for i in range(11)]
    trace = decode(synth.capture(synth.slab(records, end=None)))
    assert [row[4] for row in rows(trace)] == [2000 + 10 * i for i in range(3, 11)]
    assert kinds(trace)["count"] == 1


def test_a_missing_counted_record_does_not_affect_the_others() -> None:
    lines = synth.slab([Rec("load", 2000, 2100), Rec("dot", 2200, 2300), Rec("load", 2400, 2500)])
    lines.reshape(-1, 4)[8 + 1] = 0
    trace = decode(synth.capture(lines))
    assert [row[4] for row in rows(trace)] == [2000, 2400]
    assert kinds(trace)["missing"] == 1
    assert trace.warps.records.tolist() == [2]


def test_lost_lanes_are_reported_with_the_option_that_helps() -> None:
    [problem] = [one for one in decode(synth.capture(lost=12)).problems if one.kind == "lost"]
    assert problem.count == 12
    assert "pool=" in problem.text


def test_a_record_with_clocks_outside_of_its_warps_life_has_no_duration() -> None:
    lines = synth.slab([Rec("load", 2000, 2100), Rec("load", 5000, 4000)], end=10_000)
    trace = decode(synth.capture(lines))
    assert trace.dur_cycles.tolist() == [100, -1]
    assert kinds(trace)["garbled"] == 1


def test_an_id_without_a_name_is_shown_by_its_hash() -> None:
    trace = decode(synth.capture(synth.slab([Rec("load", 2000, 2100), Rec("secret", 2000, 2100)]), names=("load",)))
    assert f"?{layout.name_hash('secret'):07x}" in [row[2] for row in rows(trace)]
    assert kinds(trace)["unknown"] == 1


def test_a_kernel_without_metadata_is_shown_by_its_number() -> None:
    trace = decode(synth.capture(synth.slab([], kernel=0xABC)))
    assert trace.kernels == ("kernel 0000000000000abc",)
    assert kinds(trace)["nameless"] == 1


def test_a_kernel_may_have_a_name_that_begins_like_a_number() -> None:
    module = ModuleMeta("synth", (KernelMeta("kernel of a user", 0xABC, 3),), ())
    trace = decode(Capture(synth.EPOCH, (synth.device([synth.slab([], kernel=0xABC)]),), (module,), {}, (), {}))
    assert trace.kernels == ("kernel of a user",) and "nameless" not in kinds(trace)


def test_two_names_with_one_hash_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import kscope.decoding.ids as ids

    monkeypatch.setattr(ids, "name_hash", lambda name: 5)
    trace = decode(synth.capture(synth.slab([]), names=("load", "dot")))
    [text] = [problem.text for problem in trace.problems if problem.kind == "collision"]
    assert "dot, load" in text


def test_a_session_has_only_the_problems_of_kernels_that_recorded() -> None:
    twins = (KernelMeta("dot", 1, 3), KernelMeta("dots", 2, 3))
    twice = tuple(Problem("pairing", f"problem of {kernel.name}", kernel=kernel.name) for kernel in twins)
    shared = Problem("removed", "problem of both")
    both = ModuleMeta("synth", twins, (RegionMeta("load"),), problems=(*twice, shared))
    other = ModuleMeta("synth", (KernelMeta("other", 3, 3),), (), problems=(Problem("moved", "problem of other"),))

    def reported(*kernels: int) -> list[str]:
        slabs = [synth.slab([], kernel=kernel, grid_id=at) for at, kernel in enumerate(kernels)]
        found = decode(replace(synth.capture(*slabs), modules=(both, other)))
        return [problem.text for problem in found.problems if "problem of" in problem.text]

    assert reported() == []
    assert reported(1, 1) == ["problem of dot", "problem of both"]
    assert reported(2) == ["problem of dots", "problem of both"]
    assert reported(3, 2, 3, 1) == ["problem of dot", "problem of dots", "problem of both", "problem of other"]


def test_kernel_names_outside_the_session_do_not_make_names_ambiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    import kscope.decoding.ids as ids

    monkeypatch.setattr(ids, "name_hash", lambda name: layout.name_hash("load"))
    found = synth.capture(synth.slab([Rec("load", 2000, 2100)]), names=("load",))
    other = synth.module(names=("dot",), kernel=5)
    assert decode(replace(found, modules=(other, *found.modules))).region_names()[1:].tolist() == ["load"]


def test_rare_region_ids_are_resolved() -> None:
    """More names than the table is built from, most of them only deep inside of one slab."""
    names = [f"region {i}" for i in range(3000)]
    records = [Rec(name, 2000 + 10 * i, 2005 + 10 * i) for i, name in enumerate(names)]
    trace = decode(synth.capture(synth.slab(records, log2=12), names=names))
    assert [row[2] for row in rows(trace)] == names
    assert [region.name for region in trace.regions[1:]] == sorted(names)


def test_random_ids_add_a_bounded_number_of_regions() -> None:
    lines = synth.slab([Rec("load", 2000, 2100)] * (1 << 17), log2=17)
    lines.reshape(-1, 4)[8:, 1] = np.random.default_rng(0).integers(1, 1 << 32, 1 << 17, dtype=np.uint32)
    trace = decode(synth.capture(lines))
    assert len(trace) == 1 << 17
    assert len(trace.regions) < 1 << 16


def test_values_have_the_type_of_their_kernel() -> None:
    f32 = int(np.float32(-2.5).view(np.uint32))
    one = synth.slab([Rec("x", 2000, 2100, Kind.SPAN_VALUE, 0xFFFFFFFF), instant("y", 2200, f32), instant("z", 2300)])
    two = synth.slab([Rec("x", 2000, 2100, Kind.SPAN_VALUE, 0xFFFFFFFF)], kernel=99)
    modules = (synth.module((("x", "i32"), ("y", "f32"), "z")), synth.module((("x", "u32"),), kernel=99, name="other"))
    trace = decode(Capture(synth.EPOCH, (synth.device([one, two]),), modules))
    assert np.array_equal(trace.value, [-1.0, -2.5, np.nan, 4294967295.0], equal_nan=True)


def test_a_record_count_that_may_have_wrapped_is_reported() -> None:
    records = [Rec("load", 2000 + 10 * i, 2005 + 10 * i) for i in range(8)]
    trace = decode(synth.capture(synth.slab(records, end=1 << 34)))
    assert kinds(trace)["count"] == 1
    assert "count" not in kinds(decode(synth.capture(synth.slab(records[:7], end=1 << 34))))


@given(st.data())
def test_damaged_words_never_raise(data: st.DataObject) -> None:
    drawn = [data.draw(slabs(block)) for block in range(data.draw(st.integers(1, 3)))]
    lines = np.concatenate([lines for lines, _, _ in drawn])
    lines = lines[: data.draw(st.integers(0, len(lines)))]
    words = lines.reshape(-1)
    for _ in range(data.draw(st.integers(0, 12)) if len(words) else 0):
        words[data.draw(st.integers(0, len(words) - 1))] ^= np.uint32(1 << data.draw(st.integers(0, 31)))
    if data.draw(st.booleans()):  # so that damage passes the check and is taken for true
        for at in range(len(lines) - 1):
            if lines[at, 0] >> 16 == layout.MAGIC:
                lines[at, 15] = layout.header_check(lines[at : at + 2].reshape(1, 32))[0]
    trace = decode(synth.capture(lines, names=NAMES))
    assert len(trace.depth) == len(trace.start_ns) == len(trace.value) == len(trace)
    assert (trace.dur_cycles >= -1).all()
    assert np.isfinite(trace.start_ns).all()
    assert str(trace.summary())


@given(st.binary(max_size=64 * 40))
def test_noise_never_raises(noise: bytes) -> None:
    lines = np.frombuffer(noise[: len(noise) // 64 * 64], np.uint32).reshape(-1, 16).copy()
    decode(synth.capture(lines))


def hostile(rng: np.random.Generator) -> np.ndarray:
    """A slab of which nothing but the check, the size and the session need make sense."""

    def words(count: int) -> np.ndarray:
        edges = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint32)
        return np.where(rng.random(count) < 0.5, rng.choice(edges, count), rng.integers(0, 1 << 32, count, np.uint32))

    log2, lines = int(rng.integers(2, 5)), words(32).reshape(2, 16)
    lines[0, :2] = layout.HEADER_WORD, synth.EPOCH
    lines[0, 11] = lines[0, 11] & ~np.uint32(31 << 10) | np.uint32(log2 << 10)
    lines[0, 15] = layout.header_check(lines.reshape(1, 32))[0]
    if rng.random() < 0.5:
        lines[1, 15] = layout.DONE_WORD ^ int(lines[1, 13]) ^ int(lines[1, 8])
    records = words(4 << log2).reshape(-1, 4)
    known = [layout.record_id(name, kind) for name in NAMES for kind in Kind]
    records[:, 1] = rng.choice(np.array([0, *known], np.uint32), len(records))
    return np.concatenate([lines, records.reshape(-1, 16)])


@example(112752)  # a block's number that with its row exceeds 64 bits
@given(st.integers(0, 1 << 32))
def test_hostile_slabs_whose_checks_are_right_never_raise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    trace = decode(synth.capture(*(hostile(rng) for _ in range(rng.integers(1, 5))), names=NAMES))
    assert len(trace.depth) == len(trace.start_ns) == len(trace.value) == len(trace)
    assert str(trace.summary())
    shown = timeline(trace)
    assert shown.begin.min(initial=0) >= 0
    assert (shown.end >= shown.begin).all()


def test_slabs_with_impossible_start_times_are_dropped() -> None:
    trace = decode(synth.capture(synth.slab([Rec("load", 2000, 2100)], start_time=1 << 63)))
    assert len(trace) == 0
    assert kinds(trace)["garbled"] == 1


def test_an_end_clock_before_the_start_means_unfinished() -> None:
    trace = decode(synth.capture(synth.slab([Rec("load", 2000, 2100)], end=1)))
    assert trace.warps.finished.tolist() == [False]


def test_a_regions_problem_is_shown_if_its_module_recorded() -> None:
    """A process may have bound libraries that a session does not launch."""
    slab, other = synth.slab([synth.Rec("load", 2000, 2100)]), synth.module(["dot"], kernel=5, name="other")
    made = synth.capture(slab)
    problems = tuple(Problem("empty", name, kernel=name, region="dot") for name in ("matmul", "other", "elsewhere"))
    trace = decode(replace(made, modules=(*made.modules, other), problems=problems))
    assert [problem.text for problem in trace.problems] == ["matmul", "elsewhere"]
