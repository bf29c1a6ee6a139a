"""The panels of the report: details, table, histogram, imbalance."""

from __future__ import annotations

import numpy as np
import pytest
import synth
import traces
from browser.asking import FRAME, Show, bulk, corner, golden, middle, painted, text
from synth import Rec

from kscope.trace import decode


def test_clicking_a_span_shows_its_details(show: Show) -> None:
    trace = golden("matmul")
    page = show(trace)
    spot = page.run("""(() => {
        const { line } = warpsView.found.rows[3].warps[0].lines.map((line) => ({ line })).at(-1);
        const index = line.from + 20;
        const [begin, end] = timesOf(line, index);
        setWindow(begin - 3000, end + 3000);
        const box = boxOf({ line, index }, warpsView.surface.width);
        const at = warpsView.surface.canvas.getBoundingClientRect();
        const spot = { x: at.x + (box.a + box.b) / 2, y: at.y + box.y + box.high / 2 };
        return { ...spot, warp: line.warp, end: line.end[index], dur: line.dur[index] };
    })()""")
    page.click(spot["x"], spot["y"])
    assert page.run("[view.selection.line.warp, view.selection.line.end[view.selection.index]]") == [
        spot["warp"],
        spot["end"],
    ]
    body = text(page, "#details .body")
    assert f"cycles{spot['dur']:,}" in body
    assert "longer than" in body and "block" in body
    _, top, _, height = corner(page, "#warps")
    page.click(middle(page, "#warps")[0], top + height - 4)
    assert page.run("view.selection") is None


def test_a_gap_separates_the_blocks_of_an_sm(show: Show) -> None:
    warps = [traces.Lane(block=b, warp=w, end=5000, spans=[("load", 1000, 4000)]) for b in range(2) for w in range(2)]
    page = show(traces.trace(warps))
    layout = "warpsView.layout"
    assert page.run(f"{layout}.map((at) => at.row.thread)") == [0, 32, 0, 32]
    gaps = page.run(f"{layout}.slice(1).map((at, i) => at.top - {layout}[i].top - {layout}[i].height)")
    assert gaps[1] > gaps[0] == gaps[2]


def test_pointing_at_a_box_shows_its_name_as_text(show: Show) -> None:
    page = show(golden("attention"))
    spot = page.run("""(() => {
        const line = warpsView.found.rows[0].warps[0].lines[0];
        const box = boxOf({ line, index: line.from }, warpsView.surface.width);
        const at = warpsView.surface.canvas.getBoundingClientRect();
        const name = model.about.names[nameOf(line.code[line.from])];
        return [at.x + (box.a + box.b) / 2, at.y + box.y + box.high / 2, name];
    })()""")
    page.mouse("mouseMoved", spot[0], spot[1])
    assert page.run("tip.hidden") is False
    assert text(page, "#tip .what") == spot[2]
    page.mouse("mouseMoved", 400, 20)
    assert page.run("tip.hidden") is True


def test_the_table_sorts_and_a_row_looks_for_its_region(show: Show) -> None:
    page = show(golden("attention"))
    column = "[...document.querySelectorAll('#table tbody tr')].map((row) => row.cells[{}].textContent)"
    totals = [row.region for row in golden("attention").summary().regions]
    assert page.run(column.format(0)) == totals
    page.run("[...document.querySelectorAll('#table th button')].find((one) => one.textContent === 'region').click()")
    assert page.run(column.format(0)) == sorted(totals)
    assert page.run("document.querySelector('#table th[aria-sort]').ariaSort") == "ascending"
    rows = "[...document.querySelectorAll('#table tbody tr')]"
    page.run(f"{rows}.find((row) => row.cells[0].textContent === 'store').click()")
    assert text(page, "#durations .of") == "store"
    assert page.run("document.querySelectorAll('#table tr.focused').length") == 1
    assert text(page, "#durations li .num").split()[1] in ("ns", "µs")


def test_clicking_a_histogram_bar_searches_for_its_spans(show: Show) -> None:
    trace = bulk()
    page = show(trace)
    x, y, count = page.run(f"""{FRAME}.then(() => {{
        const bar = histogram.bars[Math.floor(histogram.bars.length / 2)];
        const at = histogram.surface.canvas.getBoundingClientRect();
        const count = histogram.bars.reduce((sum, one) => sum + one.count, 0);
        return [at.x + bar.x + bar.wide / 2, at.y + at.height / 2, count]; }})""")
    assert count == sum(row.count for row in trace.summary().regions if row.region == page.run("model.about.names[0]"))
    page.mouse("mouseMoved", x, y)
    page.click(x, y)
    assert page.run("view.query.least > 0 && view.query.most < Infinity && view.query.names.size === 1")


def test_a_long_span_of_the_list_is_shown(show: Show) -> None:
    trace = bulk()
    page = show(trace)
    page.run("document.querySelectorAll('#durations li button')[2].click()")
    page.until("view.selection")
    ns = page.run("view.selection.line.dur[view.selection.index] * model.warps.pace[view.selection.line.warp]")
    names = trace.region_names()[trace.region]
    assert ns == pytest.approx(np.sort(trace.dur_ns[names == page.run("model.about.names[0]")])[-3])
    page.until("warpsView.found.place === model.warps.place[view.selection.line.warp]")


def test_the_imbalance_map_chooses_an_sm(show: Show) -> None:
    page = show(bulk())
    x, y = page.run(f"""{FRAME}.then(() => {{
        const at = balance.surface.canvas.getBoundingClientRect();
        const wide = (balance.surface.width - balanceGutter() - 10) / balanceColumns();
        return [at.x + balanceGutter() + 11.5 * wide, at.y + 5]; }})""")
    page.click(x, y)
    page.until("warpsView.found.place === 11")
    for across in ("warp", "block"):
        page.run(f"document.querySelector('#balance [data-across={across}]').click()")
        assert painted(page, "#balance") > 1000


def test_problems_are_one_click_away(show: Show) -> None:
    trace = golden("ring")
    page = show(trace)
    assert text(page, "#problems") == f"⚠ {len(trace.problems)} problem"
    page.run("byId('problems').click()")
    assert trace.problems[0].text in text(page, "#doubts")
    page.key("Escape")
    assert page.run("document.querySelector('dialog[open]')") is None
    page.key("?")
    assert "zoom in and out" in text(page, "#keys")


def test_the_table_names_regions_that_end_at_the_issue(show: Show) -> None:
    names = (("copy", None, "a.py:7", None, "source", "cp.async.bulk"), "dot")
    slab = synth.slab([Rec("copy", 2100, 2102), Rec("dot", 2110, 2190)])
    page = show(decode(synth.capture(slab, names=names)))  # type: ignore[arg-type]  # every field of a region
    assert text(page, "#table tbody .hint") == "ends at the issue of cp.async.bulk, not at its arrival; time the wait"
    cells = page.run("[...document.querySelectorAll('#table tbody tr')].map((row) => row.cells[0].children.length)")
    assert cells == [1, 2]


def test_the_table_has_a_bar_of_reasons_as_wide_as_their_shares(show: Show) -> None:
    from unit.stalls import programs

    page = show(decode(programs.recorded()))
    bars = page.run("""[...document.querySelectorAll("#table .waits")].map((bar) =>
        [...bar.children].map((part) => [part.title, part.getBoundingClientRect().width]))""")
    assert len(bars) == 3
    for bar in bars:
        assert sum(width for _, width in bar) > 100
        assert all(title.endswith("%") for title, _ in bar)
    assert any(title.startswith("long_scoreboard") and width > 100 for bar in bars for title, width in bar)
    assert "waits for" not in text(show(golden("matmul")), "#table .body thead")
