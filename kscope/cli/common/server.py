"""A web server for the browser of this machine only.

bound to 127.0.0.1           unreachable from other machines
Host must be that address    a foreign page's name that resolves here is refused (DNS rebinding)
a random token in each path  other users and other pages cannot guess it
a fixed table of resources   paths are looked up, never opened: no traversal, no listing
"""

from __future__ import annotations

import hmac
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping
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
_TIMEOUT = 30  # seconds


@dataclass(frozen=True)
class Resource:
    """A page or a file. The suffix of its name in the table determines its content type.

    Attributes:
        body: its bytes, a file to read them from, or a function that makes them for each request, in any thread.
    """

    body: bytes | Path | Callable[[], bytes]


def files_in(folder: Path) -> dict[str, Resource]:
    """The files below a folder.

    Args:
        folder: the folder. Links that lead out of it are skipped.

    Returns:
        Resources by their relative path, with forward slashes.
    """
    root = folder.resolve()
    files = (path for path in root.rglob("*") if path.is_file() and path.resolve().is_relative_to(root))
    return {path.relative_to(root).as_posix(): Resource(path) for path in files}


class Server(ThreadingHTTPServer):
    """Serves resources under a random token.

    Args:
        resources: by name; "" is the first page.
        policy: Content-Security-Policy of every response.
        port: 0 for any free port.

    Raises:
        OSError: the port is in use.
    """

    daemon_threads = True

    def __init__(self, resources: Mapping[str, Resource], policy: str, port: int = 0) -> None:
        super().__init__((LOCAL, port), _Handler)
        self.resources, self.policy = dict(resources), policy
        self.token = secrets.token_urlsafe(24)

    @property
    def url(self) -> str:
        """Address of the first page."""
        return f"http://{LOCAL}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that close the connection; print other errors."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "kscope", ""
    timeout = _TIMEOUT

    @property
    def _server(self) -> Server:
        assert isinstance(self.server, Server)
        return self.server

    def do_GET(self) -> None:  # called by http.server
        self._answer(body=True)

    def do_HEAD(self) -> None:  # called by http.server
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        server = self._server
        hosts = [[f"{name}:{server.server_port}"] for name in (LOCAL, "localhost")]
        if self.headers.get_all("Host") not in hosts:
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
        empty, _, rest = self.path.partition("/")
        token, slash, name = rest.partition("?")[0].partition("/")
        if empty or not slash or not hmac.compare_digest(token.encode("utf-8", "replace"), server.token.encode()):
            return self._refuse(HTTPStatus.NOT_FOUND)
        resource = server.resources.get(name)
        if resource is None:
            return self._refuse(HTTPStatus.NOT_FOUND)
        kind = _TYPES.get(Path(name or "index.html").suffix, "application/octet-stream")
        if not isinstance(resource.body, Path):
            text = resource.body if isinstance(resource.body, bytes) else resource.body()
            self._head(HTTPStatus.OK, kind, len(text))
            if body:
                self.wfile.write(text)
            return None
        with open(resource.body, "rb") as file:
            self._head(HTTPStatus.OK, kind, resource.body.stat().st_size)
            if body:
                shutil.copyfileobj(file, self.wfile)
        return None

    def _head(self, status: HTTPStatus, kind: str, length: int) -> None:
        self.send_response(status)
        policy = {"Content-Security-Policy": self._server.policy}
        for name, value in {**_HEADERS, **policy, "Content-Type": kind, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus) -> None:
        text = f"{status.value} {status.phrase}\n".encode()
        self.close_connection = True
        self._head(status, "text/plain; charset=utf-8", len(text))
        if self.command != "HEAD":
            self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # called by http.server
        """Print nothing: paths contain the token."""
