"""Names of regions, with their tracks and their work, and the types of their values."""

from __future__ import annotations

from typing import Literal

from ..errors import UsageError

ValueType = Literal["i32", "u32", "f32", "i64", "u64", "f64"]
MAX_NAME_BYTES = 512
TRACK = "\x1f"
"""Separates a region's name from its track in Mark.name."""
WORK = "\x1e"
"""Separates both from the region's work, see work.py."""
ROLE_TRACK = "kscope.role"
"""The track of instants that name the role of their warp."""
BEGIN_TRACK, END_TRACK = "kscope.begin", "kscope.end"
"""The tracks of instants that are the two ends of a span."""


def check_name(name: object, track: object = None, work: str = "") -> str:
    """Validate a region's name and track.

    Args:
        name: a constant string of at most MAX_NAME_BYTES bytes, or a DSL's constant with a `value`.
        track: the same, or None.
        work: the text of its work; empty without.

    Returns:
        The name, with the track after TRACK and the work after WORK.

    Raises:
        UsageError: either is not a constant, non-empty string of valid Unicode without U+001E.
    """
    name, track = getattr(name, "value", name), getattr(track, "value", track)
    if WORK in f"{name}{track}":
        raise UsageError(f"kscope.region({name!r}): kscope uses the character U+001E itself; leave it out")
    if work:
        return _checked(f"{check_name(name, track)}{WORK}{work}")
    if track is not None:
        if not isinstance(track, str) or not track or TRACK in f"{name}{track}":
            raise UsageError(
                f"kscope.region({name!r}, track={track!r}): the track must be a non-empty string known at compile time"
            )
        return _checked(f"{_checked(name)}{TRACK}{track}")
    return _checked(name)


def split(name: str) -> tuple[str, str | None]:
    """Split the result of check_name() into a region's name and its track or None; its work is left out."""
    name = name.partition(WORK)[0] or name
    region, _, track = name.partition(TRACK)
    return (region, track) if region and track else (name, None)


def work_of(name: str) -> str:
    """The text of a region's work; empty without."""
    return name.partition(WORK)[2]


def format_name(name: str) -> str:
    """A name for messages: ``'load'``, ``'load' (track 'loads')``."""
    region, track = split(name)
    return repr(region) if track is None else f"{region!r} (track {track!r})"


def _checked(name: object) -> str:
    if not isinstance(name, str):
        raise UsageError(
            f"kscope.region({name!r}): the name must be a string known at compile time; pass runtime data as value="
        )
    if not name or len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise UsageError(
            f"kscope.region({name[:40]!r}): a name and its track must have 1 to {MAX_NAME_BYTES} bytes of UTF-8"
        )
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"kscope.region({name!r}): the name is not valid Unicode ({error.reason})") from None
    return name
