"""The page of `kscope annotate -o page.html`, and the report's tab of source lines, in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.asking import GOLDEN, Show, golden, text
from browser.chromium import Page

from kscope.cli import main


@pytest.fixture
def annotated(page: Page, tmp_path: Path) -> Page:
    """The page of a matmul that was sampled on an H200."""
    assert main(["annotate", str(GOLDEN / "stalls.kscope"), "-o", str(tmp_path / "page.html")]) == 0
    page.open(tmp_path / "page.html")
    return page


def test_the_page_needs_no_other_file_and_no_script(annotated: Page) -> None:
    assert len(annotated.requests) == 1
    assert annotated.run("document.scripts.length") == 0


def test_no_name_makes_the_page_wider_than_the_window(annotated: Page) -> None:
    assert annotated.run("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_bar_is_filled_by_its_reasons_in_the_legend_s_colors(annotated: Page) -> None:
    legend = annotated.run("[...document.querySelectorAll('.legend i')].map((one) => one.style.background)")
    assert len(set(legend)) == len(legend)
    bars = annotated.run("""[...document.querySelectorAll('.bar')].map((bar) => [
        [...bar.children].reduce((sum, one) => sum + one.getBoundingClientRect().width, 0) / bar.clientWidth,
        [...bar.children].map((one) => one.style.background),
    ])""")
    assert bars
    for filled, colors in bars:
        assert filled == pytest.approx(1, abs=0.01)
        assert set(colors) <= set(legend)


def test_a_line_opens_its_instructions(annotated: Page) -> None:
    line = "[...document.querySelectorAll('td.source details')].find((one) => one.textContent.includes('tl.dot'))"
    seen = f"{line}.querySelector('pre').checkVisibility()"
    assert not annotated.run(seen)
    annotated.run(f"{line}.querySelector('summary').click()")
    assert annotated.run(seen)
    assert "HGMMA" in str(annotated.run(f"{line}.querySelector('pre').textContent"))


def test_the_report_shows_the_source_in_lines_as_they_are_indented(show: Show) -> None:
    page = show(golden("stalls"))
    page.run(
        "[...document.querySelectorAll('#table .choice button')].find((one) => one.textContent === 'source').click()"
    )
    assert "        x = tl.load(" in text(page, "#table .body")
    code = "[...document.querySelectorAll('#table td.code')].find((one) => one.textContent.includes('tl.dot'))"
    assert page.run(f"getComputedStyle({code}).whiteSpace") == "pre"
