"""Counts launches that certainly record, by kernel: what a full pool keeps out of a trace is known by them."""

from __future__ import annotations

from collections import Counter

from . import registry


class LaunchCounts:
    """A frontend's launches of marked kernels since begin(). Launches may come from any thread."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def begin(self) -> None:
        """Count from 0; launches that have begun before do not count."""
        self._counts = Counter()

    def open(self, stream: int) -> Counter[int] | None:
        """Where a launch on the stream counts once the driver has accepted it; None if it does not record."""
        return self._counts if registry.backend("cuda").records(stream) else None

    def by_kernel(self) -> dict[int, int]:
        """Launches by kernel id."""
        return dict(self._counts)
