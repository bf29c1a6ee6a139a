"""The command line: the parser, and exit codes. Each command has a file, which only its command line imports.

0    success
1    a check failed: a broken component (doctor), a slower region (compare), a false condition (assert),
     counts that do not match regions (ipc), no comparable kernel (perturb)
2    an error: one line on stderr with the remedy (--debug: the traceback)
3    --strict, and the data has problems
141  broken pipe: the output's reader is gone
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
from .common.command_parser import Parser, commands, listing

__all__ = ["main", "parser"]

ERROR, BROKEN_PIPE = 2, 141
GROUPS: dict[str, dict[str, str]] = {
    "record": {
        "demo": "record a small kernel and show it",
        "run": "record a script with annotated kernels",
        "sample": "sample where warps wait in every kernel of a script, without marks",
        "include": "the folder of kscope.cuh: nvcc -I$(kscope include)",
        "doctor": "what works on this machine, and what a region costs on it",
    },
    "why does it hang": {
        "watch": "show where warps are while a kernel runs, hangs, or after it died",
    },
    "look": {
        "summary": "where the time went, per kernel and region",
        "view": "show a capture in the browser",
        "export": "turn a capture into a timeline, a table or a flame graph",
        "merge": "put torch.profiler's trace, or the ranks of a job, on one timeline",
        "query": "SQL over the records of a capture or of a job's ranks",
        "info": "how and where a capture was recorded: GPU, versions, command, blocks",
    },
    "why is it slow": {
        "gaps": "time in no region and in waits, and what other warps did meanwhile",
        "overlap": "what the warps of a block did at the same time",
        "path": "the critical path of one block, over signals and waits that you name",
        "pipeline": "stages, waits and copies in flight",
        "occupancy": "warps alive per SM over time, waves of blocks and the tail",
        "stalls": "where warps waited and why, of a capture with samples",
        "annotate": "the source beside the samples of each line, of a capture with samples",
        "rates": "how fast regions move bytes and compute",
        "ranks": "which rank of a job is late to collectives, and why",
    },
    "compare and check": {
        "compare": "what became slower between two captures",
        "assert": "check conditions on a capture: 'load.p99 < 2us' 'dropped == 0'",
    },
    "can I trust this": {
        "trust": "the cost of recording, kernels with marks and without, instruction counts",
        "crosscheck": "whether regions' times agree with samples, which do not depend on the marks",
    },
}
"""The commands and their help, grouped by the user's question."""
_MODULES = {"overlap": "gaps", "path": "gaps", "assert": "assertions"}
"""The modules of commands that have another name; every one has add(command)."""
_MAX_ERROR = 4000
"""Most characters of an error message. The middle of a longer one, with names from untrusted files, is cut."""


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands.

    Args:
        only: a command; commands of other files are left out. "": no command, only their list.

    Returns:
        A parser whose namespaces have `command`: the function to call with the namespace.
    """
    common = argparse.ArgumentParser(add_help=False)
    about = "show the traceback of an error"
    common.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=about)
    top = Parser(
        prog="kscope", description="Shows what happens inside a GPU kernel.", parents=[common],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    top.add_argument("--version", action="version", version=f"kscope {__version__}")
    add = commands(top, {name: does for members in GROUPS.values() for name, does in members.items()}, common)
    for members in GROUPS.values():
        for module in dict.fromkeys(_MODULES.get(name, name) for name in members if only in (None, name)):
            import_module(f".{module}", __name__).add(add)
    top.epilog = listing(GROUPS)
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
    if word == "watch" and "numpy" not in sys.modules:  # for a quick answer: numpy would start a thread on each core
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    known = any(word in members for members in GROUPS.values())
    options, rest = parser(word if known else "" if word is None else None).parse_known_args(typed)
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
    from ..util.terminal import cut  # only for errors

    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, KscopeError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if len(text) > _MAX_ERROR:
        text = f"{text[: _MAX_ERROR // 2]} ... {text[-_MAX_ERROR // 2 :]}"
    return cut(text, len(text))
