"""Filters of commands: `--kernel 'attn_*' --region load --block 0,8 --sm 0-7 --time 2us:5us`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...capture.capture import Capture, load_capture
from ...capture.samples import Samples
from ...errors import FormatError, UsageError
from ...merging.entry import merge
from ...session import capture_path
from ...trace import Trace, decode
from ...tracedata.info import info
from ...util import json_values
from ...util.progress import Step, no_progress, progress_bar, pulse
from ...util.terminal import cut, paragraph
from ...util.text import nearest, some
from . import foreign, transforms
from .numbers import members, parts, size

_NUMBERS = {
    "launch": "launches, counted from 0",
    "warp": "warps of a block",
    "sm": "SMs",
    "device": "devices by CUDA's number",
}
STDIN = "-"
_TEXTS = ("kernel", "region", "block")
_LARGE = 64 << 20
"""Bytes of a file whose reading takes about a second."""
_MANY = 1 << 19
"""Records whose analysis takes about a second."""
_UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def add(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add CAPTURE and the flags."""
    about = "a .kscope file; - for stdin"
    parser.add_argument("capture", metavar="CAPTURE", type=Path, nargs="?" if optional else None, help=about)
    group = parser.add_argument_group("which records")
    flag = group.add_argument
    flag("--kernel", metavar="GLOB", action="append", help="in these kernels: 'attn_*', or a hash; may be repeated")
    flag("--region", metavar="GLOB", action="append", help="of these regions; may be repeated")
    block = "a block by its coordinates: 0,8; ranges: 0:4,8; linear numbers: '#40', 0:100; may be repeated"
    flag("--block", metavar="BLOCKS", action="append", help=block)
    for name in _NUMBERS:
        flag(f"--{name}", metavar="LIST", action="append", help=f"{_NUMBERS[name]}, such as 0,4-7; may be repeated")
    flag("--time", metavar="FROM:TO", help="that overlap this time after the capture's first record: 2us:1ms")
    transforms.add(parser)
    add_opening(parser)


def add_opening(parser: argparse.ArgumentParser) -> None:
    """Add the flags for opening a file."""
    foreign.add(parser)
    parser.add_argument("--max-bytes", metavar="SIZE", help="memory limit for a capture that you trust: 24GiB")


@dataclass(frozen=True)
class Undecoded:
    """A file that was read; its records are decoded when its trace is first used.

    Attributes:
        samples: samples of stalls; None without any.
        decode: decodes the records.
    """

    samples: Samples | None
    decode: Callable[[], Trace]

    @cached_property
    def trace(self) -> Trace:
        """The trace."""
        return self.decode()


def open_trace(path: Path, options: argparse.Namespace) -> Trace:
    """The trace of a file; arguments and errors as for open_lazily()."""
    return open_lazily(path, options).trace


def open_lazily(path: Path, options: argparse.Namespace) -> Undecoded:
    """Read a file, and decode its records when its trace is first used.

    Args:
        path: the file, or `-`.
        options: the namespace with the flags of add_opening().

    Raises:
        UsageError: a flag does not apply.
        FormatError: the file is not a capture, or needs too much memory.
    """
    most = None if options.max_bytes is None else size("--max-bytes", options.max_bytes)
    if options.reader is None and options.names is not None:
        raise UsageError(
            f"--names {options.names}: only for other profilers' data, see --from; for captures use --rename"
        )
    if options.reader is not None:
        if most is not None:
            raise UsageError(f"--max-bytes {options.max_bytes}: only for captures, not for other profilers' data")
        trace = foreign.read(path, options)
        return Undecoded(trace.samples, lambda: trace)
    with capture_file(path) as file:
        size_of_file = file.stat().st_size if file.is_file() else 0
        with progress(size_of_file, path.name, _LARGE) as step:
            capture = _loaded(file, path, most, step)

    held = [capture]  # its memory is free after decoding

    def decoded() -> Trace:
        with busy_bar(size_of_file, f"decoding {path.name}", _LARGE):
            return decode(held.pop())

    return Undecoded(capture.samples, decoded)


def _loaded(file: Path, typed: Path, most: int | None, step: Step) -> Capture:
    """The capture in a file. An error names the user's argument: `-` instead of the temporary file."""
    try:
        return load_capture(file, max_bytes=most, step=step)
    except FormatError as error:
        raise FormatError(str(error).replace(str(file), str(typed))) from None if file == typed else error


@contextmanager
def capture_file(path: Path) -> Generator[Path]:
    """The capture's file; for `-` a temporary one with the data of stdin.

    Raises:
        UsageError: there is no such file, or stdin is a terminal.
    """
    if str(path) != STDIN:
        if not path.exists() and not path.is_symlink():
            raise UsageError(f"{path}: no such file; {_captures(path)}")
        if path.is_dir():
            raise UsageError(f"{path}: is a folder, expected a capture; {_captures(path / capture_path.SUFFIX)}")
        yield path
        return
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("-: expected a capture on stdin, such as ssh host cat run.kscope | kscope summary -")
    with tempfile.NamedTemporaryFile(prefix="kscope-", suffix=capture_path.SUFFIX) as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        yield Path(file.name)


def _captures(path: Path) -> str:
    """The captures beside a path that does not exist."""
    folder = path.parent
    try:
        names = sorted(one.name for one in folder.iterdir() if one.suffix == capture_path.SUFFIX)
    except OSError:
        return f"there is no folder {folder}"
    where = "here" if str(folder) == "." else f"in {folder}"
    return f"captures {where}: {some(names, 10)}{nearest(path.name, names)}"


def filtered_trace(options: argparse.Namespace, *, shows_problems: bool = False) -> Trace:
    """The trace of the capture, filtered. Its problems go to stderr, unless the command shows them.

    Args:
        options: the namespace with the flags of add().
        shows_problems: True if the command shows the trace's problems.

    Raises:
        UsageError: a filter matches nothing.
        FormatError: the file is not a capture.
    """
    trace = open_trace(options.capture, options)
    if getattr(options, "torch", None) is not None:
        trace = merge(trace, options.torch).trace
    for problem in () if shows_problems else trace.problems:
        print(f"kscope: {cut(problem.text, 2000)}", file=sys.stderr)
    given: dict[str, Any] = {name: getattr(options, name) for name in _TEXTS if getattr(options, name)}
    for name in _NUMBERS:
        if getattr(options, name) is not None:
            given[name] = [part for text in getattr(options, name) for part in parts(f"--{name}", text)]
    if options.time is not None:
        given["time"] = _window(options.time)
    trace = transforms.with_new_names(trace, options)
    with busy_bar(len(trace) if given else 0, "selecting records"):
        return trace.filter(**given) if given else trace


def caveat(trace: Trace, width: int) -> list[str]:
    """Lines that name a clock other than a GPU's, and the number of recorded blocks if not all recorded; none without
    either.
    """
    return paragraph(info(trace).caveat, width)


def filter_flags(options: argparse.Namespace) -> list[str]:
    """The given flags that select records."""
    return [f"--{name}" for name in (*_TEXTS, *_NUMBERS, "time") if getattr(options, name) is not None]


def progress(total: int, what: str, least: int = _MANY) -> AbstractContextManager[Step]:
    """A progress bar over `total` in a terminal, if `total` is at least `least`: a shorter one would flicker."""
    return progress_bar(total, what) if total >= least and sys.stderr.isatty() else nullcontext(no_progress)


def busy_bar(total: int, what: str, least: int = _MANY) -> AbstractContextManager[None]:
    """Like progress(), a moving bar for work that does not report its steps."""
    return pulse(what) if total >= least and sys.stderr.isatty() else nullcontext()


def roles(typed: list[str] | None) -> dict[str, list[int]] | None:
    """`--role producer=0,4-7` as warp numbers by name; None if not given. Raises UsageError."""
    found: dict[str, list[int]] = {}
    for text in typed or []:
        name, equals, warps = text.partition("=")
        if not name or not equals or not warps:
            raise UsageError(f"--role {text}: expected NAME=WARPS, such as producer=0,4-7")
        name = json_values.clean(name)
        if name in found:
            raise UsageError(f"--role {text}: the role {name!r} was already given")
        found[name] = members(f"--role {name}=", warps)
    return found or None


def add_roles(parser: argparse.ArgumentParser) -> None:
    """Add --role."""
    about = "a name for these warps of a block: producer=0,4-7"
    parser.add_argument("--role", metavar="NAME=WARPS", action="append", help=about)


def nanoseconds(flag: str, text: str) -> float:
    """`2us`, `1.5 ms`, `300` as ns. Raises UsageError naming the flag."""
    number = text.strip().rstrip("nums").strip()
    unit = text.strip()[len(number) :].strip() or "ns"
    try:
        return float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise UsageError(f"{flag} {text}: expected a time, such as 300ns, 2us or 1.5ms") from None


def _window(text: str) -> tuple[float, float]:
    first, colon, last = text.partition(":")
    if not colon:
        raise UsageError(f"--time {text}: expected FROM:TO, such as 2us:1ms, :5us or 1ms:")
    begin = nanoseconds("--time", first) if first else 0.0
    end = nanoseconds("--time", last) if last else float("inf")
    if end < begin:
        raise UsageError(f"--time {text}: it ends before it begins")
    return begin, end
