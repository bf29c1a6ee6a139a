"""Numbers, ranges and sizes as the text of flags."""

from __future__ import annotations

import argparse
import re

from ...errors import UsageError
from ...util.text import is_number

_SIZE = r"(?i)([0-9]{1,18})\s*([kmgt]?)(?:i?b)?"
_POWER = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
MOST_MEMBERS = 1 << 20
"""Most numbers in a list such as 0,4-7; they are counted before the list is made."""


def port(text: str) -> int:
    """For argparse: the number of a port."""
    if not is_number(text) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text}: expected a port from 0 to 65535")
    return int(text)


def number(flag: str, text: str) -> int:
    """A whole number. Raises UsageError naming the flag."""
    if not is_number(text):
        raise UsageError(f"{flag} {text}: expected a number")
    return int(text)


def parts(flag: str, text: str) -> list[int | range]:
    """0,4-7 as numbers and ranges. Raises UsageError naming the flag."""
    return [one.start if len(one) == 1 else one for one in _ranges(flag, text)]


def members(flag: str, text: str) -> list[int]:
    """0,4-7 as numbers. Raises UsageError naming the flag."""
    return [member for one in _ranges(flag, text) for member in one]


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
    return [member for text in texts for member in members(flag, text)]


def size(flag: str, text: str) -> int:
    """64MiB as bytes. Raises UsageError naming the flag."""
    found = re.fullmatch(_SIZE, text.strip())
    if found is None:
        raise UsageError(f"{flag} {text}: expected a size, such as 64MiB or 1G")
    return int(found[1]) << _POWER[found[2].lower()]
