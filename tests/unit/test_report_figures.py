"""The overview and the figures of a report against plain loops over the same trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import reports
import synth
from synth import Rec, instant

from kscope.capture.capture import Capture, load_capture
from kscope.capture.layout import Kind
from kscope.trace import Trace, decode

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def bulk(slabs: int, records: int) -> Trace:
    lines = synth.bulk(slabs, records, waves=3, sms=5)
    return decode(Capture(synth.EPOCH, (synth.device(lines, tick_ns=32),), (synth.module(("load", "dot", "tile")),)))


TRACES = {
    "bulk": lambda: bulk(40, 60),
    "attention": lambda: decode(load_capture(GOLDEN / "attention.kscope")),
    "graph": lambda: decode(load_capture(GOLDEN / "graph.kscope")),
}


def own_time(trace: Trace, found: reports.Report, bins: int) -> np.ndarray:
    """Self time as warps at work, (places, names, bins), one record after another."""
    about = found.about
    width = about["span"] / bins
    time = np.zeros((len(about["places"]), len(about["names"]), bins))
    place = {tuple(one): number for number, one in enumerate(about["places"])}
    begin, end = trace.start_ns - about["base"], trace.start_ns + trace.dur_ns - about["base"]
    stack: list[int] = []
    for index in range(len(trace)):  # in order of end: nested spans come first
        row = int(trace.track[index])
        where = place[int(trace.warps.device[row]), int(trace.warps.sm[row])]
        name = about["names"].index(trace.regions[trace.region[index]].name)

        def add(name: int, begin: float, end: float, sign: float, where: int = where) -> None:
            for bin_ in range(max(0, int(begin / width)), min(bins, int(end / width) + 1)):
                covered = min(end, (bin_ + 1) * width) - max(begin, bin_ * width)
                time[where, name, bin_] += sign * max(covered, 0) / width

        add(name, begin[index], end[index], 1)
        while stack and trace.track[stack[-1]] == row and trace.depth[stack[-1]] > trace.depth[index]:
            child = stack.pop()
            if trace.depth[child] == trace.depth[index] + 1:
                add(name, begin[child], end[child], -1)
        stack.append(index)
    return time


@pytest.mark.parametrize("name", TRACES)
def test_the_overview_shows_the_region_with_the_most_self_time(name: str) -> None:
    trace = TRACES[name]()
    found = reports.written(trace)
    bins = found.about["levels"][0]
    time = own_time(trace, found, bins)
    heat = found.columns("heat-0")
    shown = heat["name"].reshape(-1, bins)
    busy = time.sum(axis=1)
    clear = np.abs(busy - 1e-7) > 1e-6
    assert ((shown == 255) == (busy < 1e-7))[clear].all()
    best = np.take_along_axis(time, np.minimum(shown, time.shape[1] - 1)[:, None], axis=1)[:, 0]
    assert (best >= time.max(axis=1) - 1e-6)[(shown != 255) & clear].all()
    rows = found.about["rows"]
    assert heat["busy"].reshape(-1, bins) / 255 * rows == pytest.approx(busy, abs=rows / 255 + 1e-6)
    assert heat["shares"].reshape(time.shape) / 255 * rows == pytest.approx(time, abs=rows / 255 + 1e-6)


@pytest.mark.parametrize("name", TRACES)
def test_each_heatmap_level_averages_the_finer_one(name: str) -> None:
    found = reports.written(TRACES[name]() if name != "bulk" else bulk(30, 9000))
    levels = found.about["levels"]
    for level, bins in enumerate(levels[1:], 1):
        for plane in ("busy", "alive"):
            coarse = found.columns(f"heat-{level - 1}")[plane].reshape(-1, levels[level - 1])
            fine = found.columns(f"heat-{level}")[plane].reshape(len(coarse), levels[level - 1], -1).mean(axis=2)
            assert fine.shape[1] * 4 == bins
            assert coarse == pytest.approx(fine, abs=1)
    assert len(levels) > 1 or name != "bulk"


def test_the_overview_counts_active_warps() -> None:
    trace = TRACES["graph"]()
    found = reports.written(trace)
    bins, warps = found.about["levels"][0], found.columns("warps")
    alive = np.zeros((len(found.about["places"]), bins))
    width = found.about["span"] / bins
    edges = np.arange(bins + 1) * width
    for place, start, end in zip(warps["place"], warps["start"], warps["end"], strict=True):
        covered = np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1])
        alive[place] += np.maximum(covered, 0) / width
    rows = found.about["rows"]
    assert found.columns("heat-0")["alive"].reshape(alive.shape) / 255 * rows == pytest.approx(alive, abs=rows / 255)


@pytest.mark.parametrize("name", TRACES)
def test_every_span_is_counted_once_in_its_histogram(name: str) -> None:
    trace = TRACES[name]()
    found = reports.written(trace)
    axes = found.about["figures"]
    counts = found.columns("figures")["histogram"].reshape(axes["names"], axes["bins"])
    names = trace.region_names()[trace.region]
    edge = (np.arange(axes["bins"] + 1, dtype=np.uint32) + np.uint32(axes["first"])) << np.uint32(17)
    edges = edge.view(np.float32).astype(np.float64)
    for name_, row in zip(found.about["names"], counts, strict=True):
        ns = trace.dur_ns[(names == name_) & trace.is_span].astype(np.float32).astype(np.float64)
        assert (row == np.histogram(ns, edges)[0]).all()
        assert row.sum() == len(ns)


@pytest.mark.parametrize("name", TRACES)
def test_the_longest_spans_are_the_longest(name: str) -> None:
    trace = TRACES[name]()
    found = reports.written(trace)
    columns, warps = found.columns("figures"), found.columns("warps")
    names = trace.region_names()[trace.region]
    for index, name_ in enumerate(found.about["names"]):
        mine = columns["long_name"] == index
        ns = np.sort(trace.dur_ns[(names == name_) & trace.is_span])[::-1][:24]
        assert columns["long_ns"][mine] == pytest.approx(ns)
        begin = columns["long_begin"][mine]
        warp = columns["long_warp"][mine]
        assert (begin >= warps["start"][warp] - 1e-3).all()
        assert (begin + columns["long_ns"][mine] <= warps["end"][warp] + 1e-3).all()


@pytest.mark.parametrize("name", TRACES)
def test_the_imbalance_map_adds_up_to_the_total_time(name: str) -> None:
    trace = TRACES[name]()
    found = reports.written(trace)
    columns, count = found.columns("figures"), len(found.about["names"])
    names = trace.region_names()[trace.region]
    for index, name_ in enumerate(found.about["names"]):
        ns = np.where((names == name_) & trace.is_span, trace.dur_ns, 0)
        by_warp = np.bincount(trace.warp, weights=ns)
        assert columns["by_warp"].reshape(count, -1)[index] == pytest.approx(by_warp)
        by_block = np.bincount(trace.block, weights=ns)[np.unique(trace.block)]
        assert columns["by_block"].reshape(count, -1)[index] == pytest.approx(by_block)
        places = [int(np.flatnonzero([sm == one[1] for one in found.about["places"]])[0]) for sm in trace.sm]
        by_place = np.bincount(places, weights=ns, minlength=len(found.about["places"]))
        assert columns["by_place"].reshape(count, -1)[index] == pytest.approx(by_place)


def test_points_are_excluded_from_histograms() -> None:
    records = [Rec("load", 2000, 2100), instant("mark", 2200, 5), Rec("queue", 2300, 2300, Kind.COUNTER, 3)]
    trace = decode(synth.capture(synth.slab(records), names=("load", ("mark", "i32"), ("queue", "i32"))))
    found = reports.written(trace)
    counts = found.columns("figures")["histogram"].reshape(len(found.about["names"]), -1)
    assert dict(zip(found.about["names"], counts.sum(axis=1), strict=True)) == {"load": 1, "mark": 0, "queue": 0}


def test_many_blocks_share_columns() -> None:
    lines = synth.bulk(3000, 3, warps=1)
    trace = decode(Capture(synth.EPOCH, (synth.device(lines),), (synth.module(("load", "dot", "tile")),)))
    found = reports.written(trace)
    columns = found.columns("figures")
    first, last = columns["first_block"], columns["last_block"]
    assert len(first) == 256 and first[0] == 0 and last[-1] == trace.block.max()
    assert (first[1:] == last[:-1] + 1).all()
    share = [trace.dur_ns[(trace.block >= a) & (trace.block <= b)].sum() for a, b in zip(first, last, strict=True)]
    assert columns["by_block"].reshape(3, -1).sum(axis=0) == pytest.approx(np.array(share))
