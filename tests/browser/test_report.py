"""The report in a browser draws the recorded data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import synth
from browser.asking import FRAME, GOLDEN, Show, bulk, golden, middle, odd, painted, text, window

from kscope.capture.capture import load_capture
from kscope.trace import Trace, decode


@pytest.mark.parametrize("name", ["attention", "graph", "lanes", "warp_specialized", "block"])
def test_the_report_opens_without_requests_or_console_messages(show: Show, name: str) -> None:
    page = show(golden(name))
    assert [where for where in page.requests if not where.startswith("file:")] == []
    assert len(page.requests) == 1
    assert painted(page, "#overview") > 10_000
    assert painted(page, "#warps") > 5_000


@pytest.mark.parametrize("make", [bulk, odd, lambda: golden("attention"), lambda: golden("globaltimer")])
def test_the_report_decodes_every_record(show: Show, make: Callable[[], Trace]) -> None:
    trace = make()
    page = show(trace)
    code = """(async () => {
        const sums = {};
        for (let place = 0; place < model.about.places.length; place++) {
            eachSlice(await placeSlices(place), (line, index) => {
                const name = model.about.names[nameOf(line.code[index])];
                const [begin, end] = timesOf(line, index);
                const sum = (sums[name] ??= [0, 0, 0, 0]);
                sum[0]++; sum[1] += line.dur[index]; sum[2] += begin; sum[3] += line.value?.[index] || 0;
            });
        }
        return sums; })()"""
    found = page.run(code)
    names = trace.region_names()[trace.region]
    base = page.run("model.about.base")
    assert set(found) == set(names)
    for name, (count, dur, begin, value) in found.items():
        mine = names == name
        assert count == mine.sum()
        assert dur == np.maximum(trace.dur_cycles, 0)[mine].sum()
        assert begin == pytest.approx((trace.start_ns[mine] - base).sum(), rel=1e-9, abs=1e-2)
        assert value == pytest.approx(np.nansum(trace.value[mine]))


def test_records_of_a_line_are_ordered_and_disjoint(show: Show) -> None:
    page = show(odd())
    code = """(async () => {
        let wrong = 0, lines = 0;
        const { rows } = await placeSlices(view.place);
        for (const line of rows.flatMap((row) => row.warps).flatMap((warp) => warp.lines)) {
            lines++;
            for (let i = line.from + 1; i < line.to; i++) wrong += line.end[i] - line.dur[i] < line.end[i - 1];
        }
        return [wrong, lines]; })()"""
    assert page.run(code) == [0, 3 * 4]


def test_the_zoomed_overview_is_drawn_from_records(show: Show) -> None:
    page = show(bulk())
    start = page.run("model.warps.start[model.placeWarps[view.place]]")
    page.run(f"setWindow({start} + 900, {start} + 1100)")
    page.until("ready.size === model.about.places.length")
    assert painted(page, "#overview") > 1000
    code = """(() => {
        const found = ready.get(view.place);
        let covered = 0, wrong = 0;
        const pixels = overview.image.width, data = new Uint32Array(overview.image.data.buffer);
        for (let x = 0; x < pixels; x += 7) {
            const ns = view.begin + ((x + 0.5) / pixels) * (view.end - view.begin);
            const names = new Set();
            for (const row of found.rows) for (const { lines } of row.warps) {
                let top = null;
                for (const line of lines) for (let i = line.from; i < line.to; i++) {
                    const [a, b] = timesOf(line, i);
                    if (a <= ns && ns < b) top = nameOf(line.code[i]);
                }
                if (top !== null) names.add(top);
            }
            const color = data[view.place * pixels + x] & 0xffffff;
            if (names.size) covered++;
            if (names.size && ![...names].some((name) => colors.packed[name] === color)) wrong++;
        }
        return [covered, wrong]; })()"""
    covered, wrong = page.run(f"{FRAME}.then(() => {code})")
    assert covered > 50
    assert wrong <= covered / 50  # a pixel at the edge of two boxes


def test_points_counters_and_crossing_spans_are_drawn(show: Show) -> None:
    page = show(odd())
    assert painted(page, "#warps") > 5_000
    assert "unfinished" in text(page, "#warps-about")
    assert "queue, 60 counters" in text(page, "#table .body")
    page.run("search('mark')")
    page.run("nextMatch(1)")
    page.until("view.selection")
    assert "mark" in text(page, "#details .what")


@pytest.mark.parametrize("make", [lambda: decode(synth.capture()), lambda: decode(synth.capture(synth.slab([])))])
def test_reports_without_records_open(show: Show, make: Callable[[], Trace]) -> None:
    page = show(make())
    for key in "wasd0fn.[]t":
        page.key(key)
    page.key("ArrowDown")
    x, y = middle(page, "#overview")
    page.mouse("mouseMoved", x, y)
    page.click(x, y)
    assert "0 records" in text(page, "#facts")


@pytest.mark.parametrize("seed", range(6))
def test_damaged_captures_are_drawn(show: Show, seed: int) -> None:
    rng = np.random.default_rng(seed)
    capture = load_capture(GOLDEN / ["matmul.kscope", "block.kscope", "warp_specialized.kscope"][seed % 3])
    words = capture.devices[0].lines.copy().reshape(-1)
    words[rng.integers(0, len(words), 40)] ^= np.uint32(1) << rng.integers(0, 32, 40, np.uint32)
    device = replace(capture.devices[0], lines=words.reshape(-1, 16))
    page = show(decode(replace(capture, devices=(device,))))
    for key in ("n", "f", "w", "w", "ArrowDown", "n", "f", "s", "]", "0", "t"):
        page.key(key)
        window(page)
    assert page.run("Number.isFinite(view.begin) && Number.isFinite(view.end)")


def test_the_report_opens_in_a_browser_without_from_base64(show: Show) -> None:
    page = show(bulk())
    found = page.call("Page.addScriptToEvaluateOnNewDocument", source="delete Uint8Array.fromBase64")
    try:
        page.open(page.run("location.href").partition("#")[0])
        page.until("window.report && report.ready")
        assert page.run("Uint8Array.fromBase64") is None
        assert painted(page, "#warps") > 5_000
    finally:
        page.call("Page.removeScriptToEvaluateOnNewDocument", identifier=found["identifier"])
