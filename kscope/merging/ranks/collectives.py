"""Finds the launches of a job's ranks that are collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

import numpy as np

from ...errors import UsageError
from ...util.arrays import Int64
from ...util.text import counted, some
from .clocks import RankClock, align
from .gpus import RankGpu

COLLECTIVES = (
    "*all_reduce*", "*allreduce*", "*all_gather*", "*allgather*", "*reduce_scatter*", "*reducescatter*", "*all_to_all*",
    "*alltoall*", "*barrier*",
)  # fmt: skip
"""Kernels that no rank leaves before the last one has arrived."""


def collective(globs: Sequence[str] = ()) -> Callable[[str], bool]:
    """A function that returns True for the name of a collective kernel."""
    patterns = tuple(globs) or COLLECTIVES
    return lambda name: any(fnmatchcase(name.lower() if not globs else name, pattern) for pattern in patterns)


def common(gpus: Sequence[RankGpu], names: Callable[[str], bool]) -> list[Int64]:
    """The collective launches (n,) of each GPU: the same kernels in the same order.

    Raises:
        UsageError: fewer than two GPUs, no collective, or ranks that differ.
    """
    if len(gpus) < 2:
        raise UsageError(f"{counted(len(gpus), 'GPU')} recorded: comparing ranks needs at least two")
    found = [gpu.launches_of(names) for gpu in gpus]
    if not len(found[0]):
        kernels = sorted({name for gpu in gpus for name in gpu.kernels})
        raise UsageError(
            f"no collective kernel was recorded, only {some(kernels, 8)}; pass --collective GLOB for kernels that no "
            "rank leaves before the last one has arrived"
        )
    expected = [gpus[0].kernels[one] for one in gpus[0].kernel[found[0]].tolist()]
    for gpu, mine in zip(gpus, found, strict=True):
        have = [gpu.kernels[one] for one in gpu.kernel[mine].tolist()]
        if have != expected:
            raise UsageError(
                f"rank {gpus[0].rank} recorded {counted(len(expected), 'launch')} of collectives and rank {gpu.rank} "
                f"{counted(len(have), 'launch')}{' in another order' * (len(have) == len(expected))}: all ranks must "
                "record the same ones; begin after a barrier"
            )
    return found


def clocks_by_collectives(gpus: Sequence[RankGpu], globs: Sequence[str] = ()) -> list[RankClock]:
    """The clock of every GPU against the first one's; collectives and errors as in common(). Without any collective, by
    other comparisons.

    Args:
        gpus: at least one.
        globs: names of collective kernels; without, COLLECTIVES.
    """
    if len(gpus) < 2:
        return [RankClock(None, itself=True)]
    names = collective(globs)
    if not globs and not any(len(gpu.launches_of(names)) for gpu in gpus):
        found = align(gpus, [np.zeros(0, np.int64)] * len(gpus))
        if all(clock.itself or clock.by_third for clock in found):
            return found
    return align(gpus, common(gpus, names))
