"""Phrases shared by messages and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_LONG = 200
"""Letters of a typed name that are compared."""


def counted(count: int, noun: str) -> str:
    """``1 record``, ``1,000 records``, ``2 launches``."""
    plural = noun + ("es" if noun.endswith(("s", "ch")) else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def is_number(text: str) -> bool:
    """True for a whole number of at most 18 digits, which fits 64 bits."""
    return text.isdecimal() and text.isascii() and len(text) <= 18


def install_command(extra: str) -> str:
    """The command that installs an extra of kscope."""
    return f"pip install '.[{extra}]' in a checkout of kscope"


def number_ranges(numbers: Iterable[int], most: int | None = None) -> str:
    """``0-3,8`` for ascending numbers; after `most` ranges the number of the others."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [f"{first}-{last}" if first < last else f"{first}" for first, last in runs]
    more = "" if most is None or len(parts) <= most else f" and {len(parts) - most:,} more"
    return ",".join(parts[:most]) + more


def some(names: Sequence[str], most: int = 20) -> str:
    """Names for an error: `most` of them, and the number of others; "none" without names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "none"


def nearest(typed: str, names: Iterable[str]) -> str:
    """``; did you mean load?`` if one of the names is similar to the typed one, else empty."""
    from difflib import get_close_matches  # only for errors

    by_letters = {name.lower(): name for name in reversed(list(names))}
    found = get_close_matches(typed.lower()[:_LONG], by_letters, 1, 0.6)
    return f"; did you mean {by_letters[found[0]]}?" if found else ""
