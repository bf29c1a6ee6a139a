"""`kscope watch`: where the warps of a program are: while it runs, when it hangs, and after it died."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from ..capture.pools import pool_folder
from ..capture.pools.pool_reading import Pool, open_pool
from ..errors import FormatError, UsageError
from ..util import processes
from ..util.text import counted, is_number
from ..watching import text
from ..watching.observing import Observer
from ..watching.verdict import Verdict, verdict
from .common.command_parser import Command
from .common.numbers import port

_FIRST_S = 0.1
"""Seconds between the first observation and the second one, which shows what changes."""


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command(
        "watch", run,
        description="Shows where the warps of a program that records with survive= are: while it runs, when it hangs,"
        " and after it died. Uses no CUDA.",
    )  # fmt: skip
    parser.add_argument(
        "program", metavar="PID|FILE", nargs="?",
        help="a process, or a pool file (default: the newest of this user); with --core also a core dump",
    )  # fmt: skip
    parser.add_argument("--every", metavar="SECONDS", default="1", help="how often to look (default: 1)")
    parser.add_argument("--once", action="store_true", help="look once, and do not wait to see what changes")
    parser.add_argument("--json", action="store_true", help="one JSON object per look")
    parser.add_argument("--top", metavar="N", type=int, help="the first N of each list of --json (100)")
    parser.add_argument(
        "--core", action="store_true",
        help="every warp's source line, of a program without marks that kscope run --core has started: has the driver"
        " dump its GPU, which ENDS the program; or read such a dump",
    )  # fmt: skip
    parser.add_argument(
        "--serve", metavar="PORT", type=port, help="a live page on 127.0.0.1 until Ctrl-C; 0: any free port"
    )
    parser.add_argument("--list", action="store_true", help="list the pool files of this user")
    parser.add_argument(
        "--clean", action="store_true", help="remove the pool files of sessions and processes that ended"
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.clean:
        gone = pool_folder.remove_ended()
        print(f"{counted(len(gone), 'file')} removed from {pool_folder.folder()}")
        return 0
    if options.list:
        return _list()
    if options.core:
        from . import watch_core  # runs a disassembler

        return watch_core.show(options)
    every, pools = _seconds(options.every), find(options.program)
    if options.serve is not None:
        from . import view, watch_page  # import the report

        return view.serve(watch_page.create_server(pools, every, options.serve))
    observers = [None if options.once else Observer() for _ in pools]
    wait = _FIRST_S
    while True:
        found = [verdict(pool, observer) for pool, observer in zip(pools, observers, strict=True)]
        sys.stdout.write("".join(f"{line}\n" for one in found for line in _shown(one, options)))
        sys.stdout.flush()
        if options.once or not any(one.running and not one.ended for one in found):
            return 0
        time.sleep(wait)
        wait = every


def _shown(found: Verdict, options: argparse.Namespace) -> Iterator[str]:
    if options.json:
        from .common import json_output  # only for programs

        yield json_output.answer(options, asdict(found), indent=False)
    else:
        yield from text.lines(found)
        yield ""


def find(program: str | None) -> list[Pool]:
    """The pool files of a process, the newest session of it; or one file. Raises UsageError, FormatError."""
    if program is None:
        newest = [*pool_folder.pools()][-1:]
        if not newest:
            raise UsageError(
                f"no program of this user records with survive=: there is no pool file in {pool_folder.folder()};"
                " start it with kscope run --survive shm, or KSCOPE_SURVIVE=shm"
            )
        return newest
    if not program.isdecimal() or Path(program).exists():
        return [_opened(program)]
    pids = [int(program), *processes.children(int(program))]
    paths = next((found for pid in pids if (found := pool_folder.of_process(pid))), [])
    if not paths:
        raise UsageError(
            f"process {program} has no pool file in {pool_folder.folder()}: it does not record with survive=, its"
            " session has ended, or it runs as another user; kscope watch --list shows what is there"
        )
    pools = [open_pool(path) for path in paths]
    return [pool for pool in pools if pool.epoch == pools[-1].epoch]


def _opened(path: str) -> Pool:
    try:
        return open_pool(path)
    except FormatError:
        from ..core_dumps.tables import is_core_dump  # only for the error

        if is_core_dump(Path(path)):
            raise UsageError(f"{path}: a core dump of a GPU, not a pool file: kscope watch --core {path}") from None
        raise


def _list() -> int:
    pools = [*pool_folder.pools()]
    for pool in pools:
        state = "ended" if pool.has_ended else "recording" if pool.is_running() else "its process is gone"
        print(f"{pool.path}  {len(pool.data) >> 20:,} MiB  {state}")
    if not pools:
        print(f"no pool files in {pool_folder.folder()}")
    elif any(pool.has_ended or not pool.is_running() for pool in pools):
        print("kscope watch --clean removes those that ended or whose process is gone")
    return 0


def _seconds(text_: str) -> float:
    number = text_.removesuffix("s")
    whole, _, part = number.partition(".")
    if not is_number(whole) or (part and not is_number(part)) or not float(number):
        raise UsageError(f"--every {text_}: expected seconds, such as 1 or 0.5s")
    return float(number)
