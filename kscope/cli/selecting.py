"""Which records a command looks at: `--kernel 'attn_*' --region load --launch 0 --sm 0-7 --time 2us:5us`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis.table import cut
from ..capture.capture import load_capture
from ..errors import UsageError
from ..trace import Trace, decode
from ..util import portable
from ..util.progress import Step, no_progress, progress_bar
from . import foreign, naming
from .options import members, size

_NUMBERS = {
    "launch": "launches, counted from 0",
    "block": "blocks by their linear index x + nx * (y + ny * z)",
    "warp": "warps of a block",
    "sm": "SMs",
    "device": "devices by CUDA's number",
}
_LARGE = 64 << 20
_UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def add(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Adds CAPTURE and the flags."""
    parser.add_argument("capture", metavar="CAPTURE", type=Path, nargs="?" if optional else None, help="a .kscope file")
    group = parser.add_argument_group("which records")
    flag = group.add_argument
    flag("--kernel", metavar="GLOB", action="append", help="of these kernels: 'attn_*', or a hash; may be given again")
    flag("--region", metavar="GLOB", action="append", help="of these regions; may be given again")
    for name in _NUMBERS:
        flag(f"--{name}", metavar="LIST", help=f"{_NUMBERS[name]}, such as 0,4-7")
    flag("--time", metavar="FROM:TO", help="that overlap this time after the capture's first record: 2us:1ms")
    naming.add(parser)
    add_opening(parser)


def add_opening(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say how a file is opened."""
    foreign.add(parser)
    parser.add_argument(
        "--max-bytes", metavar="SIZE", help="memory that a capture may take, of a file that you trust: 24GiB"
    )


def opened(path: Path, options: argparse.Namespace) -> Trace:
    """The trace of a file. Raises UsageError for flags that mean nothing, FormatError for a file that is no capture, or
    none that may take so much memory."""
    most = None if options.max_bytes is None else size("--max-bytes", options.max_bytes)
    if options.reader is None and options.names is not None:
        raise UsageError(
            f"--names {options.names}: it is for data of another profiler, see --from; --rename for captures"
        )
    if options.reader is not None:
        if most is not None:
            raise UsageError(f"--max-bytes {options.max_bytes}: it is for captures, not for data of another profiler")
        return foreign.read(path, options)
    with watched(path.stat().st_size if path.is_file() else 0, path.name, _LARGE) as step:
        return decode(load_capture(path, max_bytes=most, step=step))


def read(options: argparse.Namespace, *, shows_problems: bool = False) -> Trace:
    """The trace of the capture that was named, with the records that were asked for. What is wrong with it goes to
    stderr, but for a command that shows it itself. Raises UsageError for what matches nothing, FormatError for a file
    that is no capture."""
    trace = opened(options.capture, options)
    for problem in () if shows_problems else trace.problems:
        print(f"kscope: {cut(problem.text, 2000)}", file=sys.stderr)
    given: dict[str, Any] = {name: getattr(options, name) for name in ("kernel", "region") if getattr(options, name)}
    for name in _NUMBERS:
        if getattr(options, name) is not None:
            given[name] = members(f"--{name}", getattr(options, name))
    if options.time is not None:
        given["time"] = _window(options.time)
    trace = naming.named(trace, options)
    for name in _NUMBERS:
        if name in given:
            _there(trace, name, given[name])
    selected = trace.filter(**given) if given else trace
    if "time" in given and len(trace) and not len(trace.filter(time=given["time"])):
        last = float((trace.start_ns + np.nan_to_num(trace.dur_ns)).max())
        raise UsageError(f"--time {options.time}: no record then; this capture's last one ends at {last / 1e3:,.3f}us")
    return selected


def _there(trace: Trace, name: str, numbers: list[int]) -> None:
    """Raises UsageError where none of these numbers is in the capture: a typing error shall not pass."""
    warps = trace.warps
    having = np.array(trace.devices, np.int64)[warps.device] if name == "device" else getattr(warps, name)
    known = np.unique(having).tolist()
    if known and not set(known) & set(numbers):
        raise UsageError(f"--{name} {_spans(numbers)}: there is none; this capture has {name} {_spans(known)}")


def _spans(numbers: Sequence[int], most: int = 8) -> str:
    """Ascending numbers as 0-3,7: a row of them is a range."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [f"{first}-{last}" if first < last else f"{first}" for first, last in runs]
    return ",".join(parts[:most]) + (f" and {len(parts) - most:,} more" if len(parts) > most else "")


def narrowed(options: argparse.Namespace) -> list[str]:
    """The flags that were typed of those that choose records."""
    return [f"--{name}" for name in ("kernel", "region", *_NUMBERS, "time") if getattr(options, name) is not None]


def watched(total: int, what: str, least: int = 1 << 19) -> AbstractContextManager[Step]:
    """A bar over `total` in a terminal, where that is `least` or more: else it would flicker."""
    return progress_bar(total, what) if total >= least and sys.stderr.isatty() else nullcontext(no_progress)


def roles(typed: list[str] | None) -> dict[str, list[int]] | None:
    """`--role producer=0,4-7` as names with numbers of warps; None where none was typed. Raises UsageError."""
    found: dict[str, list[int]] = {}
    for text in typed or []:
        name, equals, warps = text.partition("=")
        if not name or not equals or not warps:
            raise UsageError(f"--role {text}: expected NAME=WARPS, such as producer=0,4-7")
        name = portable.clean(name)
        if name in found:
            raise UsageError(f"--role {text}: the role {name!r} was given before")
        found[name] = members(f"--role {name}=", warps)
    return found or None


def add_roles(parser: argparse.ArgumentParser) -> None:
    """Adds --role."""
    parser.add_argument(
        "--role", metavar="NAME=WARPS", action="append", help="what these warps of a block are called: producer=0,4-7"
    )


def nanoseconds(flag: str, text: str) -> float:
    """`2us`, `1.5 ms`, `300` as ns. Raises UsageError that names the flag."""
    number = text.strip().rstrip("nums").strip()
    unit = text.strip()[len(number) :].strip() or "ns"
    try:
        return float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise UsageError(f"{flag} {text}: expected a time, such as 300ns, 2us or 1.5ms") from None


def json(data: Any) -> str:
    """Indented JSON; a number that is not known (NaN) is null."""
    return portable.dump_json(data, indent=True).decode()


def _window(text: str) -> tuple[float, float]:
    first, colon, last = text.partition(":")
    if not colon:
        raise UsageError(f"--time {text}: expected FROM:TO, such as 2us:1ms, :5us or 1ms:")
    begin = nanoseconds("--time", first) if first else 0.0
    end = nanoseconds("--time", last) if last else float("inf")
    if end < begin:
        raise UsageError(f"--time {text}: it ends before it begins")
    return begin, end
