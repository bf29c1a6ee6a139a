"""The command line: one file per command. This file has the parser and maps errors to exit codes. A command line
imports only the file of its command.

    0    success
    1    a check failed: a broken component (doctor), a slower region (compare), a false condition (assert),
         counts that do not match regions (ipc), no comparable kernel (perturb)
    2    an error: one line on stderr with the remedy (--debug: the traceback)
    3    --strict, and the data has problems
    141  broken pipe: the output's reader is gone

`kscope run` exits as its script does.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TextIO

from .._version import __version__
from ..errors import KscopeError
from .command import Listed, Parser, commands

__all__ = ["main", "parser"]

ERROR, BROKEN_PIPE = 2, 141
GROUPS: dict[str, tuple[str, ...]] = {
    "record": ("demo", "run", "sample", "include", "doctor"),
    "why does it hang": ("watch",),
    "look": ("summary", "view", "export", "merge", "query", "info"),
    "why is it slow": ("gaps", "overlap", "path", "pipeline", "occupancy", "stalls", "annotate", "rates", "ranks"),
    "compare and check": ("compare", "assert"),
    "can I trust this": ("trust", "crosscheck"),
}
"""The commands, by the user's question."""
_MODULES = {"overlap": "gaps", "path": "gaps", "assert": "assertions"}
"""The modules of commands that have another name; every one has add(command)."""
_MAX_ERROR = 4000
"""Characters of an error message; longer ones, with names from untrusted files, lose their middle."""


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands.

    Args:
        only: a command; others of other files are left out.

    Returns:
        A parser whose namespaces have `command`: the function to call with the namespace.
    """
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )
    top = Parser(
        prog="kscope", description="Shows what happens inside a GPU kernel.", parents=[common],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    top.add_argument("--version", action="version", version=f"kscope {__version__}")
    add = Listed(commands(top, common))
    for title, members in GROUPS.items():
        add.group(title)
        for module in dict.fromkeys(_MODULES.get(name, name) for name in members if only in (None, name)):
            import_module(f".{module}", __name__).add(add)
    top.epilog = add.text()
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: arguments without the program's name; None for sys.argv's.

    Returns:
        The exit code.
    """
    typed = sys.argv[1:] if argv is None else argv
    word = next((word for word in typed if not word.startswith("-")), None)
    known = any(word in members for members in GROUPS.values())
    options, rest = parser(word if known else None).parse_known_args(typed)
    if rest:
        options.parser.refuse(rest)
    options.typed = typed
    if word != "run":  # a script configures its own streams
        _escape_surrogates(sys.stdout)
    try:
        code: int = options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # the rest of the buffer would fail again when the interpreter closes stdout
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
        print(f"kscope: out of memory{why}: select fewer records", file=sys.stderr)
        return ERROR
    return code


def _escape_surrogates(stream: TextIO) -> None:
    """Print undecodable characters of file names as escapes instead of failing."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def _line(error: Exception) -> str:
    from ..util.terminal import cut  # imports numpy

    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, KscopeError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if len(text) > _MAX_ERROR:
        text = f"{text[: _MAX_ERROR // 2]} ... {text[-_MAX_ERROR // 2 :]}"
    return cut(text, len(text))
