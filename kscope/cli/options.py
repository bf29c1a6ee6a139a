"""Options of a recording as command-line flags.

    --strategy warps:0,4 --records 1024 --block 0:1000:8 --warp 0,4-7 --pool 512MiB

A flag that is not given is not passed on: the defaults are those of kscope.profile().
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

from ..errors import UsageError
from ..instrument.options import OPTIONS
from ..instrument.selection.auto import DEFAULT, KINDS
from ..marks.strategies import parse_strategy
from ..util.text import is_number

_SIZE = re.compile(r"([0-9]{1,18})\s*([kmgt]?)(?:i?b)?", re.I)
_POWER = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_REPEATED = ("block", "warp", "sm", "kernel", "mark")
MOST_MEMBERS = 1 << 20
"""Most numbers in a list such as 0,4-7; they are counted before the list is made."""
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


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The given flags as arguments of kscope.profile().

    Raises:
        UsageError: the text of a flag cannot be parsed.
    """
    names = [option.name for option in OPTIONS if option.name != "auto"]
    typed = {name: getattr(options, name) for name in (*names, "export") if getattr(options, name) is not None}
    if options.auto or options.kinds is not None:
        typed["auto"] = True if options.kinds is None else options.kinds
    return {name: _READ[name](value) if name in _READ else value for name, value in typed.items()}


def _pool(text: str) -> int:
    found = size("--pool", text)
    if found < LEAST_POOL:
        raise UsageError(f"--pool {text}: expected at least {LEAST_POOL >> 10}KiB; a GPU with many SMs needs more")
    return found


def period(flag: str, text: str) -> int:
    """2^10 or 1024 as cycles. Raises UsageError naming the flag."""
    base, power, exponent = text.partition("^")
    if not is_number(base) or (power and not (base == "2" and is_number(exponent) and int(exponent) < 64)):
        raise UsageError(f"{flag} {text}: expected a power of two, such as 2^10 or 1024")
    return 1 << int(exponent) if power else int(base)


def port(text: str) -> int:
    """For argparse: the number of a port."""
    if not is_number(text) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text}: expected a port from 0 to 65535")
    return int(text)


def _number(flag: str, text: str) -> int:
    if not is_number(text):
        raise UsageError(f"{flag} {text}: expected a number")
    return int(text)


def parts(flag: str, text: str) -> list[int | range]:
    """0,4-7 as numbers and ranges. Raises UsageError naming the flag."""
    return [one.start if len(one) == 1 else one for one in _ranges(flag, text)]


def members(flag: str, text: str) -> list[int]:
    """0,4-7 as numbers. Raises UsageError naming the flag."""
    return [number for one in _ranges(flag, text) for number in one]


def _ranges(flag: str, text: str) -> list[range]:
    ranges, count = list[range](), 0
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not is_number(first) or (dash and not is_number(last)):
            raise UsageError(f"{flag} {text}: expected numbers and ranges, such as 0,4-7")
        found = range(int(first), int(last or first) + 1)
        if not found:
            raise UsageError(f"{flag} {text}: {part} has no number, expected {last}-{first}")
        if len(found) > MOST_MEMBERS - count:
            raise UsageError(f"{flag} {text}: expected at most {MOST_MEMBERS:,} numbers")
        ranges.append(found)
        count += len(found)
    return ranges


def numbers(flag: str, texts: list[str]) -> list[int]:
    """The numbers of a repeated flag. Raises UsageError."""
    return [number for text in texts for number in members(flag, text)]


def size(flag: str, text: str) -> int:
    """64MiB as bytes. Raises UsageError naming the flag."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{flag} {text}: expected a size, such as 64MiB or 1G")
    return int(found[1]) << _POWER[found[2].lower()]


_READ: dict[str, Callable[[Any], Any]] = {
    "strategy": parse_strategy,
    "records": lambda text: text if text == "auto" else _number("--records", text),
    "warp": lambda texts: numbers("--warp", texts),
    "sm": lambda texts: numbers("--sm", texts),
    "pool": _pool,
    "period": lambda text: period("--period", text),
}
"""How the text of an option is read; those not listed are passed as text."""
