"""`kscope watch --serve`: what is known now, as a page for this machine's user alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from http.client import HTTPConnection
from pathlib import Path

import pytest

import kscope
import kscope_sim
from kscope.capture.pools import pool_folder
from kscope.capture.pools.pool_reading import open_pool
from kscope.cli import main
from kscope.cli.common.server import Server
from kscope.cli.watch_page import create_server

HOSTILE = "<script>alert(1)</script>&\"'"


@pytest.fixture
def pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pools"
    monkeypatch.setenv(pool_folder.VARIABLE, str(folder))
    return folder


def get(server: Server, name: str) -> str:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        connection.request("GET", f"/{server.token}/{name}")
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read().decode()
    finally:
        connection.close()


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    server = create_server([open_pool(path) for path in folder.iterdir()], 0.5, 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Text(HTMLParser):
    """The elements of a page, and the text of its cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.cells = list[str](), list[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells and self.tags[-1] == "td":
            self.cells[-1] += data


def test_the_page_shows_a_running_kernel_and_renews_itself(pools: Path) -> None:
    pages = list[str]()

    def kernel(warp: kscope_sim.Warp) -> None:
        for turn in range(3):
            with kscope.region(HOSTILE, value=turn):
                pages.append(get(server, "now.html"))

    with kscope.profile(survive="shm"), running(pools) as server:
        kscope_sim.launch(kernel, grid=1, block=32)
        reports = [get(server, "report0.html"), get(server, "")]
    assert all('http-equiv="refresh" content="0.5"' in page for page in pages)
    for turn, page in enumerate(pages):
        found = Text(page)
        assert "script" not in found.tags, "what a program names is text"
        role, state, region, value, warps, blocks, count, _ = found.cells
        assert (role, state, value, warps, blocks, count) == ("", "in", str(turn), "0", "0", "1")
        assert region.startswith(f"{HOSTILE} at ")
        assert ("polyline" in found.tags) == (turn > 0), "rates, from the second look on"
    assert "kscope report" in reports[0], "the timeline up to now is the report page"
    assert Text(reports[1]).tags.count("iframe") == 2


def test_the_page_needs_the_token_and_loads_nothing_from_elsewhere(pools: Path) -> None:
    with kscope.profile(survive="shm"), running(pools) as server:
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        connection.request("GET", "/now.html")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 404
        assert server.server_address[0] == "127.0.0.1"
        assert "default-src 'none'" in server.policy and "http" not in server.policy
        assert not re.search(r"https?://", get(server, "") + get(server, "now.html"))
        connection.close()


def test_the_command_prints_the_address_and_refuses_what_is_not_the_users(
    pools: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with kscope.profile(survive="shm"):
        (file,) = pools.iterdir()
        command = [sys.executable, "-m", "kscope", "watch", str(file), "--serve", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                url = process.stdout.readline()
                assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/\n", url)
            finally:
                process.terminate()
        with monkeypatch.context() as other:
            other.setattr(os, "geteuid", lambda: 12345)
            assert main(["watch", str(file), "--serve", "0"]) == 2
        assert "belongs to another user" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["watch", "--serve", "70000"])
    assert "expected a port from 0 to 65535" in capsys.readouterr().err
