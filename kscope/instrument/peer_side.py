"""One GPU in comparisons of timers with GPUs of other processes."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt


class PeerSide(Protocol):
    """One side of a comparison of two GPUs' timers, by signals through each other's memory."""

    uuid: str

    @property
    def file(self) -> int:
        """The descriptor of this side's memory, for the other process; -1 if it cannot be shared."""
        ...

    def map(self, file: int) -> int:
        """The address of the other side's memory in this process.

        Args:
            file: its descriptor, which may be closed afterwards.
        """
        ...

    def clear(self, slot: int) -> None:
        """Clear the word that the other side writes; then it may begin.

        Args:
            slot: number of the word.
        """

    def start(self, theirs: int, their_slot: int, slot: int, begins: bool, rounds: int, patience: int) -> None:
        """Launch this side's kernel.

        Args:
            theirs: the other side's memory, as map() returned it.
            their_slot, slot: the words that this side and the other one write.
            begins: True if this side begins.
            rounds: signals there and back.
            patience: most cycles for which the kernel waits for the other side.
        """

    def readings(self) -> npt.NDArray[np.int64]:
        """Wait for the kernel; returns the readings of every answered round, (n, 2) ns: before and after it; for the
        side that answers, its one reading twice.
        """
        ...
