"""Options of a recording as words of the command line.

    --strategy warps:0+4 --records 1024 --blocks 0:1000:8 --warps 0,4-7 --pool 512MiB

What lives here: flags, and text to values. What does not: defaults and what a value may be; those
stand with the options themselves (recording.py, sampling.py, session.py): a flag that was not given
is not passed on.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

from ..errors import UsageError
from ..instrument.selection.auto import DEFAULT, KINDS
from ..marks.strategies import parse_strategy

_SIZE = re.compile(r"([0-9]{1,18})\s*([kmgt]?)(?:i?b)?", re.I)
_POWER = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
MOST_MEMBERS = 1 << 20
"""Numbers that a list such as 0,4-7 may name: they are counted before they are made."""
LEAST_POOL = 16 << 10
"""Bytes that no device does with less of; which one is there is known when recording begins."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of kscope.profile()."""
    group = parser.add_argument_group("recording")
    flag = group.add_argument
    flag(
        "--strategy", metavar="WHO", help="who records: warp (lane 0 of each), warp:any, block, lanes (all), warps:0+4"
    )
    flag("--records", metavar="N", help="records that a lane keeps per launch; auto: what the kernel needs, else 256")
    flag("--fill", metavar="KEEP", help="ring keeps the newest records, stop the oldest")
    flag("--clock", metavar="CLOCK", help="cycles, or globaltimer")
    flag("--live", action="store_true", default=None, help="store where a region ends: for kernels that hang")
    flag("--blocks", metavar="RANGE", help="blocks that record: 100 (the first 100), or first:stop:step")
    flag("--warps", metavar="LIST", help="warps of a block that record: 0,4-7")
    flag("--sms", metavar="LIST", help="SMs that record: 0,4-7")
    flag(
        "--pool",
        metavar="SIZE",
        help="GPU memory for records per device: 512MiB (default: 1/32 of what is free, at most 1GiB)",
    )
    flag(
        "--kernels",
        metavar="GLOB",
        help="kernels to keep, by name: 'attn_*', or hash; the others are left out at the end",
    )
    flag("--export", metavar="FILE", action="append", help="write the trace as well, by suffix; may be given again")
    group = parser.add_argument_group("kernels that are not annotated")
    flag = group.add_argument
    flag("--auto", action="store_true", default=None, help=f"mark the usual operations: {', '.join(DEFAULT)}")
    flag("--kinds", metavar="LIST", help=f"mark operations of these kinds: {', '.join(KINDS)}")
    flag(
        "--region",
        metavar="NAME=FILE:FIRST-LAST",
        action="append",
        dest="regions",
        help="mark these lines of source; may be given several times",
    )
    flag("--dry-run", action="store_true", help="record nothing; list kernels, what would be marked, and its cost")


def given(options: argparse.Namespace) -> dict[str, Any]:
    """What was typed, as arguments of kscope.profile(). Raises UsageError for what cannot be read."""
    read: dict[str, Callable[[str], Any]] = {
        "strategy": parse_strategy,
        "records": lambda text: text if text == "auto" else _number("--records", text),
        "blocks": _blocks,
        "warps": lambda text: members("--warps", text),
        "sms": lambda text: members("--sms", text),
        "pool": _pool,
    }
    names = ("strategy", "records", "fill", "clock", "live", "blocks", "warps", "sms", "pool", "kernels", "regions")
    typed = {name: getattr(options, name) for name in (*names, "export") if getattr(options, name) is not None}
    if options.auto or options.kinds is not None:
        typed["auto"] = True if options.kinds is None else options.kinds
    return {name: read[name](value) if name in read else value for name, value in typed.items()}


def _pool(text: str) -> int:
    """What is too small for any device is refused here; for the one that is there, when recording begins."""
    found = size("--pool", text)
    if found < LEAST_POOL:
        raise UsageError(f"--pool {text}: expected at least {LEAST_POOL >> 10}KiB; a GPU with many SMs needs more")
    return found


def is_number(text: str) -> bool:
    """Whether it is a whole number that fits 64 bits: digits, and no more than eighteen of them."""
    return text.isdecimal() and text.isascii() and len(text) <= 18


def _number(flag: str, text: str) -> int:
    if not is_number(text):
        raise UsageError(f"{flag} {text}: expected a number")
    return int(text)


def _blocks(text: str) -> int | slice:
    parts = text.split(":")
    if len(parts) > 3 or not all(part == "" or is_number(part) for part in parts) or text == "":
        raise UsageError(f"--blocks {text}: expected a number (the first so many), or first:stop:step such as ::8")
    if len(parts) == 1:
        return int(text)
    return slice(*(int(part) if part else None for part in parts))


def members(flag: str, text: str) -> list[int]:
    """0,4-7 as numbers. Raises UsageError that names the flag."""
    members: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not is_number(first) or (dash and not is_number(last)):
            raise UsageError(f"{flag} {text}: expected numbers and ranges, such as 0,4-7")
        found = range(int(first), int(last or first) + 1)
        if not found:
            raise UsageError(f"{flag} {text}: {part} has no number, expected {last}-{first}")
        if len(found) > MOST_MEMBERS - len(members):
            raise UsageError(f"{flag} {text}: expected at most {MOST_MEMBERS:,} numbers")
        members += found
    return members


def size(flag: str, text: str) -> int:
    """64MiB as bytes. Raises UsageError that names the flag."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{flag} {text}: expected a size, such as 64MiB or 1G")
    return int(found[1]) << _POWER[found[2].lower()]
