"""A region of a trace: name, kind of its records, source line, track."""

from __future__ import annotations

from dataclasses import dataclass

from ..capture.layout import Kind
from ..marks.names import TRACK, WORK

MOST_REGIONS = 0xFF00
"""Most distinct ids; more are noise and share region 0."""


@dataclass(frozen=True)
class Region:
    """A region of a trace.

    Attributes:
        name: its name.
        kind: the kind of its records.
        known: False if no module names its id.
        where: "file:line" of its first mark, None if unknown.
        track: the user's track, None without one.
        ends_at_issue_of: an asynchronous instruction that it issues without waiting for any, see RegionMeta; None if
            modules with this name differ in that.
        work: the declared work of its mark, in the form of marks/work.py; empty without.
        flight: its spans are work in flight, from begin() to end(), during which the warp does other work.
    """

    name: str
    kind: Kind
    known: bool = True
    where: str | None = None
    track: str | None = None
    ends_at_issue_of: str | None = None
    work: str = ""
    flight: bool = False

    @property
    def token(self) -> str:
        """The name with its track and work, as in module metadata."""
        name = self.name if self.track is None else f"{self.name}{TRACK}{self.track}"
        return f"{name}{WORK}{self.work}" if self.work else name
