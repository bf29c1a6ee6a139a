"""The report at common window sizes: nothing is cut, rows name their blocks, and the tabs hold the other tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import traces
from browser.asking import FRAME, Show, golden, text
from browser.chromium import Page

import kscope
import kscope_sim

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "slow.kscope"
_CUT = """[...document.querySelectorAll('body *')].filter((one) => {
    const { width, left, right } = one.getBoundingClientRect();
    if (!width) return false;
    const hides = getComputedStyle(one).overflowX !== 'visible';
    return left < -1 || right > innerWidth + 1 || (hides && one.scrollWidth > one.clientWidth + 1);
}).map((one) => `${one.tagName} ${one.id} ${one.className}: ${one.textContent.slice(0, 40)}`)"""
"""Elements that reach out of the window or of the element that holds them."""
LABELS = """(() => {
    const written = [], original = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
        if (this.canvas.closest('#warps, #balance')) written.push(text);
        return original.call(this, text, ...more);
    };
    drawWarps();
    drawBalance();
    CanvasRenderingContext2D.prototype.fillText = original;
    return written; })()"""
"""The texts on the canvases of the rows and of the imbalance."""


def choose(page: Page, tab: str) -> None:
    """Click a tab of the tables."""
    buttons = "[...document.querySelectorAll('#table .choice button')]"
    page.run(f"{buttons}.find((one) => one.textContent === '{tab}').click()")


@pytest.fixture(params=[(1280, 800), (1600, 1000)], ids=["1280", "1600"])
def sized(page: Page, request: pytest.FixtureRequest) -> Iterator[Page]:
    width, height = request.param
    size = {"deviceScaleFactor": 1, "mobile": False}
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, **size)
    yield page
    page.call("Emulation.setDeviceMetricsOverride", width=1440, height=900, **size)


@pytest.mark.parametrize("name", ["attention", "warp_specialized", "softmax_cute", "graph", "tutorial"])
def test_nothing_is_cut(sized: Page, show: Show, name: str) -> None:
    page = show(kscope.load(TUTORIAL) if name == "tutorial" else golden(name))
    for tab in ("regions", "roles", "occupancy", "gaps", "path"):
        page.run(
            f"[...document.querySelectorAll('#table .choice button')].find((b) => b.textContent === '{tab}').click()"
        )
        assert page.run(f"{FRAME}.then(() => {_CUT})") == []
    assert not any("…" in label for label in page.run(LABELS))
    assert page.run("document.documentElement.scrollWidth <= innerWidth")


def test_rows_name_their_block_and_warp(sized: Page, show: Show) -> None:
    labels = show(golden("attention")).run(LABELS)
    assert {f"0,16 · warp {warp}" for warp in range(8)} <= set(labels)


def test_rows_and_the_selection_have_the_role_that_the_kernel_names(show: Show) -> None:
    def kernel(warp) -> None:
        kscope.role("producer" if warp.index else "consumer")
        with kscope.region("work"):
            warp.work(5)

    with kscope.profile() as prof:
        kscope_sim.launch(kernel, grid=1, block=64)
    page = show(prof.trace)
    assert {"0 · consumer 0", "0 · producer 1"} <= set(page.run(LABELS))
    page.run("search('work')")
    page.run("nextMatch(1)")
    page.until("view.selection")
    assert "roleconsumer" in text(page, "#details .body")


def test_tabs_show_roles_occupancy_gaps_and_the_path(show: Show) -> None:
    page = show(golden("warp_specialized"))
    shown = {}
    for tab in ("roles", "occupancy", "gaps", "path", "regions"):
        page.run(
            f"[...document.querySelectorAll('#table .choice button')].find((b) => b.textContent === '{tab}').click()"
        )
        shown[tab] = text(page, "#table tbody")
        assert page.run("document.querySelector('#table [aria-pressed=true]').textContent") == tab
    assert "multiply (warp 0-3, inferred)" in shown["roles"]
    assert shown["occupancy"].startswith("matmul #0")
    assert shown["gaps"].startswith("(begin)wait_ready")
    assert shown["path"].startswith("matmul #01,0multiply")
    assert shown["regions"].startswith("multiply")


def test_the_worst_imbalance_is_the_one_that_costs_most(show: Show) -> None:
    """Not a short region, however far it is from its median, and not one that takes less time than others."""
    lanes = [
        traces.Lane(
            sm=sm, block=sm, end=90_000,
            spans=[("load", 1000, 41_000 + 8_000 * (sm == 2)), ("dot", 60_000, 60_010 + 390 * (sm != 3))],
        )
        for sm in range(4)
    ]  # fmt: skip
    page = show(traces.trace(lanes))
    assert text(page, "#balance .scale") == "farthest above the median: SM 2, 1.20\u00d7 the median of load"
