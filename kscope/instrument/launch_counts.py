"""Counts launches that certainly record, by kernel: they show how much a full pool kept out of a trace."""

from __future__ import annotations

from collections import Counter

from ..capture.capture_data import LaunchCount
from . import registry
from .launch_lines import LINES


class LaunchCounts:
    """A frontend's launches of marked kernels since begin(). Launches may come from any thread.

    Attributes:
        captures: the launches of graphs that are being captured, by the capture's id.
    """

    def __init__(self) -> None:
        self.captures: dict[int, Counter[int]] = {}
        self._direct, self._replayed = Counter[int](), Counter[int]()

    def begin(self) -> None:
        """Count from 0; launches that have begun before do not count."""
        self._direct, self._replayed = Counter[int](), Counter[int]()

    def open(self, stream: int) -> Counter[int] | None:
        """The counter of a launch on the stream, by kernel id, once the driver has accepted it; None if it does not
        count.
        """
        backend = registry.backend("cuda")
        records = backend.is_open()
        if not (records or self.captures):
            return None
        capture = backend.capture(stream)
        if capture == 0:
            return self._direct if records else None
        return None if capture is None else self.captures.get(capture)

    def accepted(self, counts: Counter[int], *kernels: int) -> None:
        """Count accepted launches of these kernels, by id. counts: the result of open() for them."""
        for kernel in kernels:
            counts[kernel] += 1
            if counts is self._direct:
                LINES.add(kernel)

    def replaying(self) -> Counter[int] | None:
        """The counter of a replayed graph's launches; None if they do not record."""
        return self._replayed if registry.backend("cuda").is_open() else None

    def by_kernel(self) -> dict[int, LaunchCount]:
        """Launches by kernel id."""
        direct, replayed = dict(self._direct), dict(self._replayed)
        return {number: LaunchCount(direct.get(number, 0), replayed.get(number, 0)) for number in direct | replayed}
