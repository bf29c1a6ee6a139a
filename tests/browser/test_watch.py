"""`kscope watch --serve` in a browser: a page that renews itself, with a report inside."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from browser.chromium import Page

import kscope
import kscope_sim
from kscope.capture.pools import pool_folder
from kscope.capture.pools.pool_reading import open_pool
from kscope.cli.watch_page import create_server


def test_the_page_renews_itself_and_shows_the_report(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(pool_folder.VARIABLE, str(tmp_path / "pools"))

    def kernel(warp: kscope_sim.Warp) -> None:
        for turn in range(3):
            with kscope.region("wait", value=turn):
                page.until(f"frames[0].document.querySelector('td:nth-child(4)')?.textContent === '{turn}'")

    with kscope.profile(survive="shm"):
        (path,) = (tmp_path / "pools").iterdir()
        server = create_server([open_pool(path)], 0.2, 0)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            page.open(server.url)
            kscope_sim.launch(kernel, grid=1, block=32)
            page.run("document.querySelector('a').click()")
            page.until("frames[1].report && frames[1].report.ready")
            assert [where for where in page.requests if not where.startswith(server.url)] == []
        finally:
            page.open("about:blank")  # which no longer requests anything
            server.shutdown()
            thread.join()
            server.server_close()
