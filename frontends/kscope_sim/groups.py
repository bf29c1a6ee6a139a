"""Groups of asynchronous work of a simulated warp, as cp.async and wgmma have them.

copies = warp.groups("cp.async")
copies.issue(cycles=900, bytes=16)              # lands later; bytes of each lane
copies.commit()                                 # work since the last commit becomes a group
copies.wait(1)                                  # until all but the newest group have landed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from kscope.errors import UsageError
from kscope.marks import operations
from kscope.marks.operations import Operation

from . import samples

_OF_LANES = np.arange(32, dtype=np.uint32) << np.uint32(operations.BLOCK_SHIFT)
_KINDS = ("cp.async", "cp.async.bulk", "wgmma")


class _Warp(Protocol):
    """Parts of a warp that groups use."""

    @property
    def now(self) -> int: ...

    @property
    def lanes(self) -> tuple[int, ...]: ...

    def work(self, cycles: int, why: str) -> None: ...


class Groups:
    """The groups of one sort of one warp: Warp.groups() makes them. auto="pipeline" records commits and waits.

    Attributes:
        over: SM cycles at which each group had landed: exact, where a recording has bounds.
    """

    def __init__(self, of: str, warp: _Warp, record: Callable[[str, Operation, Any], None]) -> None:
        """of: the instruction. record: records an operation of the warp, as in Barrier."""
        if of not in _KINDS:
            raise UsageError(f"groups({of!r}): expected one of {', '.join(_KINDS)}")
        self._of, self._warp, self._record = of, warp, record
        self._landed, self._bytes = 0, 0
        self.over: list[int] = []

    def issue(self, cycles: int, bytes: int = 0) -> None:
        """Begin work that belongs to the next group.

        Args:
            cycles: how long it takes.
            bytes: copied by each lane.
        """
        if self._warp.lanes:
            self._landed, self._bytes = max(self._landed, self._warp.now + cycles), self._bytes + bytes

    def commit(self) -> None:
        """Make a group of the work since the last commit."""
        lanes = len(self._warp.lanes)
        size = f" bytes={self._bytes}" if self._bytes else ""
        word = _OF_LANES | np.uint32(max(0, lanes - 1) << operations.LANES_SHIFT)
        self._record(f"instant of={self._of}{size}", "commit", word)
        if lanes:
            self.over.append(max(self._landed, self._warp.now))
            self._landed, self._bytes = 0, 0

    def wait(self, left: int = 0) -> None:
        """Wait until all groups but the newest ones have landed.

        Args:
            left: how many may stay in flight.
        """
        if left < 0:
            raise UsageError(f"wait({left}): expected 0 or more groups that may stay in flight")
        self._record(f"enter of={self._of}", "drain", _OF_LANES | np.uint32(left))
        landed = max(self.over[: max(0, len(self.over) - left)], default=0)
        self._warp.work(max(0, landed - self._warp.now), samples.EVENT)
        self._record(f"exit of={self._of}", "drain", 0)
