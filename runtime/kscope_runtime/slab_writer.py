"""Writes the slabs of a batch to the arena, while the next batch is accounted for."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from kscope.capture.expand import Claims, Lines, Plan, write

from .slab_search import Ints, Pieces, Units


@dataclass(frozen=True)
class Taken:
    """Slabs of a batch, and how they expand.

    Attributes:
        units: the copy.
        launches: (l,) wire.LAUNCH, those of the plan.
        plan: the place of each slab.
        claims: the position at which each was claimed.
        epoch: the session.
    """

    units: Units
    launches: np.ndarray
    plan: Plan
    claims: Claims
    epoch: int

    def write(self, into: Lines) -> None:
        """Expand them. into: (plan.lines, 16) uint32."""
        write(self.units, self.launches, self.plan, self.claims, self.epoch, into)


class Writer:
    """A thread that writes one batch at a time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "kscope write")
        self._writing: Future[None] | None = None

    def begin(self, taken: Taken, into: Lines) -> None:
        """Write slabs to a part of the arena, after earlier ones. Their copy must stay until wait() or the next one."""
        self.wait()
        try:
            self._writing = self._thread.submit(taken.write, into)
        except RuntimeError:  # the interpreter is exiting: it starts no threads
            taken.write(into)

    def wait(self) -> None:
        """Wait until everything is written. Raises errors of the writing thread."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def claims_of(pieces: Pieces, opens: Ints) -> Claims:
    """The claims of slabs. opens: (p + 1,) where those of each part begin."""
    return Claims(opens, pieces.stripe.astype(np.uint32), pieces.tail - pieces.first[:-1].astype(np.uint32))
