"""A region as a trace shows it: name, kind of its records, source line, track."""

from __future__ import annotations

from dataclasses import dataclass

from ..capture.layout import Kind
from ..marks.grammar import TRACK

MOST_REGIONS = 0xFF00
"""More distinct ids than this are noise, not names; the rest share region 0."""


@dataclass(frozen=True)
class Region:
    """A name with the kind of its records; `known` is False where no module explains the id. track: of the user's."""

    name: str
    kind: Kind
    known: bool = True
    where: str | None = None
    track: str | None = None

    @property
    def token(self) -> str:
        """The name with its track, as modules have it."""
        return self.name if self.track is None else f"{self.name}{TRACK}{self.track}"
