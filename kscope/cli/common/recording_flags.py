"""Options of a recording as command-line flags.

    --strategy warps:0,4 --records 1024 --block 0:1000:8 --warp 0,4-7 --pool 512MiB

A flag that is not given is not passed on: the defaults are those of kscope.profile().
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ...errors import UsageError
from ...instrument.options import LEAST_PERIOD, MOST_PERIOD, OPTIONS, fits
from ...instrument.selection.auto import DEFAULT, KINDS
from ...marks.strategies import parse_strategy
from ...util.text import is_number
from .numbers import number, numbers, size

_REPEATED = ("block", "warp", "sm", "kernel", "mark")
LEAST_POOL = 16 << 10
"""The minimum for every device; the device in use is known when recording begins."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each option of kscope.profile()."""
    recording = parser.add_argument_group("recording")
    selection = parser.add_argument_group("kernels without annotations")
    for option in OPTIONS:
        help, metavar = option.metadata["help"], option.metadata["metavar"]
        if option.name == "auto":
            usual = f"mark the usual operations: {', '.join(DEFAULT)}"
            selection.add_argument("--auto", action="store_true", default=None, help=usual)
            selection.add_argument("--kinds", metavar=metavar, help=f"{help}: {', '.join(KINDS)}")
        elif option.name in _REPEATED:
            group = selection if option.name == "mark" else recording
            group.add_argument(f"--{option.name}", metavar=metavar, action="append", help=f"{help}; may be repeated")
        elif metavar:
            recording.add_argument(f"--{option.name}", metavar=metavar, help=help)
        else:
            flag = f"--{option.name.replace('_', '-')}"
            recording.add_argument(flag, action="store_true", default=None, help=help)
    exported = "write the trace as well, in the format of its suffix; may be repeated"
    recording.add_argument("--export", metavar="FILE", action="append", help=exported)
    listed = "record nothing; list the kernels, what would be marked, and its cost"
    selection.add_argument("--dry-run", action="store_true", help=listed)


def profile_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """The given flags as arguments of kscope.profile().

    Raises:
        UsageError: the text of a flag cannot be parsed, or it needs another one.
    """
    if options.period is not None and not options.stalls:
        raise UsageError(f"--period {options.period}: needs --stalls")
    names = [option.name for option in OPTIONS if option.name != "auto"]
    typed = {name: getattr(options, name) for name in (*names, "export") if getattr(options, name) is not None}
    if options.auto or options.kinds is not None:
        typed["auto"] = True if options.kinds is None else options.kinds
    return {name: _READ[name](value) if name in _READ else value for name, value in typed.items()}


def period(text: str) -> int:
    """The cycles of --period 2^10 or 1024. Raises UsageError."""
    base, power, exponent = text.partition("^")
    known = is_number(base) and (not power or (base == "2" and is_number(exponent) and int(exponent) < 64))
    found = (1 << int(exponent) if power else int(base)) if known else 0
    if not fits(found):
        most = f"2^{LEAST_PERIOD.bit_length() - 1} to 2^{MOST_PERIOD.bit_length() - 1}"
        raise UsageError(f"--period {text}: expected a power of two from {most} cycles, such as 2^10 or 1024")
    return found


def _pool(text: str) -> int:
    found = size("--pool", text)
    if found < LEAST_POOL:
        raise UsageError(f"--pool {text}: expected at least {LEAST_POOL >> 10}KiB; a GPU with many SMs needs more")
    return found


_READ: dict[str, Callable[[Any], Any]] = {
    "strategy": parse_strategy,
    "records": lambda text: text if text == "auto" else number("--records", text),
    "warp": lambda texts: numbers("--warp", texts),
    "sm": lambda texts: numbers("--sm", texts),
    "pool": _pool,
    "period": period,
}
"""Parsers of options; those not listed are passed as text."""
