"""The page in a notebook's frame."""

from __future__ import annotations

from pathlib import Path

from browser.asking import golden
from browser.chromium import Page


def test_a_plot_is_drawn_in_a_frame_without_a_network(page: Page, tmp_path: Path) -> None:
    frame = golden("matmul").plot()._repr_html_()
    open_frame = frame.replace('sandbox="allow-scripts" ', "")  # the test looks inside
    assert open_frame != frame
    (tmp_path / "cell.html").write_text(f"<!doctype html><body>{open_frame}", encoding="utf-8")
    page.open(tmp_path / "cell.html")
    page.until("Boolean(frames[0]?.eval && document.querySelector('iframe').contentWindow.report?.ready)")
    inside = "document.querySelector('iframe').contentDocument"
    assert page.run(f"{inside}.querySelector('#warps canvas').width") > 0
    page.run("new Promise((done) => setTimeout(done, 600))")  # the address is written after 0.4 s
    assert [where for where in page.requests if not where.startswith(("file:", "about:", "data:", "blob:"))] == []
