"""Reports in a real browser: Debian's chromium (`apt install chromium`), or the one that $CHROMIUM names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser.chromium import Page, binary

from kscope.trace import Trace

Opened = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Page]:
    program = binary()
    if program is None:
        pytest.skip("no chromium here: apt install chromium, or name one in $CHROMIUM")
    with Page(program) as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    """The browser's page with an empty console; a test whose page logs anything fails."""
    browser.open("about:blank")  # the page of the test before requests nothing any more
    browser.console.clear()
    browser.requests.clear()
    browser.prefer("light")
    yield browser
    assert browser.console == []


@pytest.fixture
def show(page: Page, tmp_path: Path) -> Callable[[Trace], Page]:
    """Write a trace's report, open it, and wait until it is drawn."""

    def opened(trace: Trace) -> Page:
        path = tmp_path / "report.html"
        trace.export(path)
        page.open(path)
        page.until("window.report && report.ready")
        page.run("calm.matches || (glide = (begin, end) => setWindow(begin, end))")  # nothing moves by itself
        return page

    return opened
