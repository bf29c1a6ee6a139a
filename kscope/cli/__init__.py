"""The command line: one small file per command, and one place where errors become exit codes.

    0  done            2  kscope cannot do that: one line on stderr says what, and what to do (--debug: the traceback)
    1  what was asked does not hold: a part is broken (doctor), a region slower (compare), a condition false (assert),
       counts and regions do not fit (ipc), no kernel could be compared (perturb)
    3  --strict, and the data has problems    141  nobody reads the output

`kscope run` ends as its script does. What lives here: the parser, and the way from an error to a code.
What does not: what a command does.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import TextIO

from .._version import __version__
from ..analysis.table import cut
from ..errors import KscopeError
from . import (
    asserting,
    comparing,
    demo,
    doctor,
    gaps,
    include,
    ipc,
    occupancy,
    overhead,
    perturb,
    reading,
    run,
    summary,
    view,
)

__all__ = ["main", "parser"]

ERROR, BROKEN_PIPE = 2, 141
_LONGEST = 4000
"""Characters of an error: names in it may be a stranger's. What is cut out stands in its middle."""


def parser() -> argparse.ArgumentParser:
    """The whole grammar."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )
    top = argparse.ArgumentParser(
        prog="kscope", description="Shows what happens inside a GPU kernel.", parents=[common], allow_abbrev=False
    )
    top.add_argument("--version", action="version", version=f"kscope {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    looking = (summary, gaps, occupancy, comparing, asserting, overhead, perturb, ipc)
    for command in (demo, run, *looking, reading, view, doctor, include):
        command.add(commands, common)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code. argv: without the program's name; None: sys.argv's."""
    options = parser().parse_args(argv)
    if options.command is not run.run:  # a script's streams are the script's
        _escaping(sys.stdout)
    try:
        code: int = options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # what is still buffered would fail again when the interpreter closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (KscopeError, OSError) as error:
        if getattr(options, "debug", False):
            raise
        print(f"kscope: {_line(error)}", file=sys.stderr)
        return ERROR
    except MemoryError as error:
        if getattr(options, "debug", False):
            raise
        why = f" ({error})" if str(error) else ""
        print(f"kscope: this needs more memory than there is{why}: choose fewer records", file=sys.stderr)
        return ERROR
    return code


def _escaping(stream: TextIO) -> None:
    """A name that is no UTF-8 (a file's may be anything) is printed with escapes, and is no reason to fail."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def _line(error: Exception) -> str:
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, KscopeError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
    return cut(text, len(text))
