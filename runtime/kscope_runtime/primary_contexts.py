"""The primary contexts of this process's GPUs, which every CUDA library shares."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


class PrimaryContexts:
    """Contexts by ordinal, each retained once.

    Args:
        call: a checked call of the driver.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._found: dict[int, int] = {}

    def of(self, ordinal: int) -> int:
        """A GPU's context, created if there is none yet."""
        if ordinal not in self._found:
            self._found[ordinal] = int(self._call("cuDevicePrimaryCtxRetain", self._call("cuDeviceGet", ordinal)))
        return self._found[ordinal]

    def of_this_process(self) -> int:
        """The context of the GPU that a launcher gives this process: number LOCAL_RANK, else the first."""
        rank = os.environ.get("LOCAL_RANK", "0")
        return self.of(int(rank) % int(self._call("cuDeviceGetCount")) if rank.isdecimal() else 0)

    def active(self) -> list[int]:
        """The contexts that this process has created."""
        ordinals = range(int(self._call("cuDeviceGetCount")))
        states = [self._call("cuDevicePrimaryCtxGetState", self._call("cuDeviceGet", one)) for one in ordinals]
        return [self.of(ordinal) for ordinal, (_, active) in zip(ordinals, states, strict=True) if active]
