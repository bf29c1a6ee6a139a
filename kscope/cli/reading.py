"""`kscope summary CAPTURE` and `kscope export CAPTURE -o FILE`: what was recorded, read again.

What lives here: the two commands. What does not: the numbers (analysis/), formats (export/).
"""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from ..capture import load
from ..errors import UsageError
from ..export import HUGE, LIMIT, check, suffixes
from ..trace import decode

STRICT = 3
"""Exit code of --strict where the data has problems."""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Adds the commands to the grammar."""
    show = commands.add_parser(
        "summary", parents=[common], help="where the time went, per kernel and region", allow_abbrev=False
    )
    show.add_argument("capture", metavar="CAPTURE", type=Path, help="a .kscope file")
    show.add_argument("--json", action="store_true", help="the same as JSON")
    show.add_argument("--strict", action="store_true", help=f"exit code {STRICT} where records were lost or doubtful")
    show.set_defaults(command=summary)
    write = commands.add_parser("export", parents=[common], help="turn a capture into a timeline", allow_abbrev=False)
    write.add_argument("capture", metavar="CAPTURE", type=Path, help="a .kscope file")
    write.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        required=True,
        help=f"the suffix says the format: {', '.join(suffixes())}",
    )
    write.add_argument(
        "--limit", metavar="N", default=LIMIT, type=_limit, help=f"the first N by time, or all ({LIMIT})"
    )
    write.add_argument("--force", action="store_true", help=f"more than the {HUGE:,} that a viewer opens")
    write.set_defaults(command=export)


def summary(options: argparse.Namespace) -> int:
    """Runs `kscope summary`."""
    trace = decode(load(options.capture))
    found = trace.summary()
    print(_json(asdict(found)) if options.json else found)
    return STRICT if options.strict and trace.problems else 0


def export(options: argparse.Namespace) -> int:
    """Runs `kscope export`. Raises UsageError where the file would replace the capture."""
    if options.output.resolve() == options.capture.resolve():
        raise UsageError(f"-o {options.output}: that is the capture itself; name another file")
    trace = decode(load(options.capture))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace.export(options.output, limit=options.limit, force=options.force)
    for warning in caught:
        print(f"kscope: {warning.message}", file=sys.stderr)
    written = len(trace) if options.limit is None else min(len(trace), options.limit)
    of = f" of {len(trace):,}" if written < len(trace) else ""
    print(f"{options.output}: {written:,}{of} records, {options.output.stat().st_size:,} bytes")
    return 0


def _limit(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: expected a number of records, or all")
    return int(text)


def _json(data: dict[str, Any]) -> str:
    """Indented JSON; a number that is not known (NaN) is null."""
    return orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode()
