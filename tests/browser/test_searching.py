"""Searching in the report finds what numpy finds."""

from __future__ import annotations

import numpy as np
import pytest
import synth
from browser.asking import FRAME, Show, bulk, golden, text, window

from kscope.capture.capture import Capture
from kscope.trace import decode

WARP = "view.selection.line.warp"
BEGIN, END = (f"timesOf(view.selection.line, view.selection.index)[{at}]" for at in (0, 1))


def test_search_finds_names_and_durations_and_enter_goes_through_them(show: Show) -> None:
    trace = bulk()
    page = show(trace)
    page.key("/")
    page.type("LOA >150ns")
    names = trace.region_names()[trace.region]
    mine = (names == "load") & (trace.dur_ns > 150)
    page.until("byId('found').textContent.includes('SM')")
    here = mine & (trace.sm == page.run("model.about.places[view.place][1]"))
    assert text(page, "#found") == f"{here.sum():,} on SM 0"
    base = page.run("model.about.base")
    expected = np.sort(trace.start_ns[here] - base)
    for expected_rows in expected[:3]:
        page.key("Enter")
        page.run(FRAME)
        page.until(f"view.selection && Math.abs({BEGIN} - {expected_rows}) < 0.01")
    page.key("Enter", shift=True)
    page.until(f"Math.abs({BEGIN} - {expected[1]}) < 0.01")
    begin, end = window(page)
    assert begin <= expected[1] <= end
    rows = page.run("[...document.querySelectorAll('#table tbody tr .name')].map((one) => one.textContent)")
    assert rows == ["load"]
    page.key("Escape")
    assert page.run("view.query") is None


def test_search_continues_on_the_next_sm(show: Show) -> None:
    trace = golden("matmul")
    page = show(trace)
    longest = trace.dur_ns.max()
    place = page.run("model.about.places")
    where = place.index([0, int(trace.sm[trace.dur_ns.argmax()])])
    page.run(f"choosePlace({(where + 1) % len(place)})")
    page.run(f"search('>{longest * 0.999:.3f}ns')")
    page.run("nextMatch(1)")
    page.until("view.selection")
    assert page.run(f"{END} - {BEGIN}") == pytest.approx(longest, rel=1e-3)
    assert page.run("view.place") == where


@pytest.mark.parametrize(
    ("typed", "check"),
    [
        ("sm 17", "view.place === model.about.places.findIndex(([, sm]) => sm === 17)"),
        ("SM:3", "view.place === 3"),
        ("block #9", f"view.selection && model.warps.block[{WARP}] === 9"),
        ("block 7 warp 2", f"view.selection && model.warps.block[{WARP}] === 7 && model.warps.warp[{WARP}] === 2"),
    ],
)  # fmt: skip
def test_search_goes_to_places(show: Show, typed: str, check: str) -> None:
    page = show(bulk())
    page.key("/")
    page.type(typed)
    page.key("Enter")
    assert page.until(check)


def test_search_takes_the_coordinates_of_blocks_as_the_command_line_does(show: Show) -> None:
    trace = golden("attention")
    page = show(trace)
    blocks = np.array(trace.warps.blocks(np.arange(len(trace.warps))).strings())
    for typed, chosen in (("0,8", "0,8"), ("#128", "0,8"), ("128", "0,8"), ("0:4,8:9", "0,8")):
        page.run(f"search('block {typed}')")
        selected = "[...model.warps.block.keys()].filter((warp) => view.query.block.some((one) => inBlocks(warp, one)))"
        assert page.run(f"{selected}.length") == int((blocks == chosen).sum()) > 0
        assert set(page.run(f"{selected}.map(blockText)")) == {chosen}
        assert trace.filter(block=typed).block.tolist() == trace.filter(block=chosen).block.tolist()


def test_a_search_without_matches_is_reported(show: Show) -> None:
    page = show(golden("matmul"))
    page.run("search('nothing like it')")
    assert text(page, "#found") == "no such region"
    page.run("search('sm 999')")
    page.run("nextMatch(1)")
    assert text(page, "#status") == "no SM 999 in this recording"


def test_matches_below_a_pixel_are_colored_only_if_long_enough(show: Show) -> None:
    trace = bulk(8, 4000)
    page = show(trace)
    names = trace.region_names()[trace.region]
    warp = page.run("warpsView.found.rows[0].warps[0].warp")
    assert page.run("(({ from, to }) => to - from)(warpsView.found.rows[0].warps[0].lines[1])") > 2600
    ns = trace.dur_ns[(names == "load") & (trace.track == warp)]
    page.run(f"search('load >{np.sort(ns)[-3]:.3f}ns')")
    code = """(() => {
        const { surface, layout } = warpsView;
        const { data } = surface.context.getImageData(118, 0, surface.width - 118, layout[0].top + layout[0].height);
        const [r, g, b] = colors.rgb[model.numbers.get('load')];
        let count = 0;
        const far = (i) => Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b);
        for (let i = 0; i < data.length; i += 4) count += far(i) < 60;
        return count; })()"""
    found = page.run(f"{FRAME}.then(() => {code})")
    page.console.clear()  # about reading pixels back
    assert 2 * 4 <= found <= 2 * 3 * 22


def test_search_matches_kernel_names(show: Show) -> None:
    slabs = [synth.slab([synth.Rec("load", 2000, 2198)], kernel=key, grid_id=key, sm=key) for key in (1, 2)]
    modules = (synth.module(("load",), 1, "attention"), synth.module(("load",), 2, "softmax"))
    page = show(decode(Capture(synth.EPOCH, (synth.device(slabs),), modules)))
    page.run("search('SOFT')")
    assert text(page, "#table tbody").startswith("softmax")
    page.run("nextMatch(1)")
    page.until("view.selection")
    assert page.run("placeText(view.place)") == "SM 2"
