"""Pages for the browser of this machine, and for nobody else.

    bound to 127.0.0.1           no other machine reaches it
    Host must be that address    no name that a stranger's page made point here (DNS rebinding)
    a random word in every path  no other user and no other page of this machine guesses it
    a fixed table of resources   a path is looked up, never opened: nothing to escape from, no folder to list

What lives here: this server. What does not: what is served (view.py).
"""

from __future__ import annotations

import hmac
import secrets
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LOCAL = "127.0.0.1"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_PATIENCE = 30  # seconds that a connection may be silent


@dataclass(frozen=True)
class Resource:
    """Bytes, or a file, under a name such as ``index.html``: its suffix says the type."""

    body: bytes | Path


def below(folder: Path) -> dict[str, Resource]:
    """Every file of a folder by its path in it; links that lead out of it are left out."""
    root = folder.resolve()
    files = (path for path in root.rglob("*") if path.is_file() and path.resolve().is_relative_to(root))
    return {path.relative_to(root).as_posix(): Resource(path) for path in files}


class Server(ThreadingHTTPServer):
    """Serves `resources` below a random word; the name "" is the first page. policy: the Content-Security-Policy of
    every answer. port: 0 takes a free one. Raises OSError for a port that is taken."""

    daemon_threads = True

    def __init__(self, resources: Mapping[str, Resource], policy: str, port: int = 0) -> None:
        super().__init__((LOCAL, port), _Handler)
        self.resources, self.policy = dict(resources), policy
        self.word = secrets.token_urlsafe(24)

    @property
    def url(self) -> str:
        """Where the first page is."""
        return f"http://{LOCAL}:{self.server_port}/{self.word}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up while it is served is no event; anything else is printed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "kscope", ""
    timeout = _PATIENCE

    @property
    def _of(self) -> Server:
        assert isinstance(self.server, Server)
        return self.server

    def do_GET(self) -> None:  # the name that http.server looks for
        self._answer(body=True)

    def do_HEAD(self) -> None:  # the name that http.server looks for
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        hosts = [[f"{name}:{self._of.server_port}"] for name in (LOCAL, "localhost")]
        if self.headers.get_all("Host") not in hosts:
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
        empty, _, rest = self.path.partition("/")
        word, slash, name = rest.partition("?")[0].partition("/")
        if empty or not slash or not hmac.compare_digest(word.encode("utf-8", "replace"), self._of.word.encode()):
            return self._refuse(HTTPStatus.NOT_FOUND)
        resource = self._of.resources.get(name)
        if resource is None:
            return self._refuse(HTTPStatus.NOT_FOUND)
        kind = _TYPES.get(Path(name or "index.html").suffix, "application/octet-stream")
        if isinstance(resource.body, bytes):
            self._head(HTTPStatus.OK, kind, len(resource.body))
            if body:
                self.wfile.write(resource.body)
            return None
        with open(resource.body, "rb") as file:
            self._head(HTTPStatus.OK, kind, resource.body.stat().st_size)
            if body:
                shutil.copyfileobj(file, self.wfile)
        return None

    def _head(self, status: HTTPStatus, kind: str, length: int) -> None:
        self.send_response(status)
        policy = {"Content-Security-Policy": self._of.policy}
        for name, value in {**_HEADERS, **policy, "Content-Type": kind, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus) -> None:
        text = f"{status.value} {status.phrase}\n".encode()
        self.close_connection = True
        self._head(status, "text/plain; charset=utf-8", len(text))
        if self.command != "HEAD":
            self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # as http.server names it
        """Paths have the word in them: they are not printed."""
