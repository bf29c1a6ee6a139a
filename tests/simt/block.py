"""The scheduler: each warp continues at the lowest instruction of its lanes, so that diverged lanes reconverge;
warps take turns, and lanes at one instruction execute it together."""

from __future__ import annotations

import numpy as np

from .machine import Dim, Machine
from .ops import execute

_FAR = 1 << 40
_MOST = 1 << 20
"""Turns after which a block is taken to hang."""


def run(machine: Machine, block: Dim, threads: Dim, grid: Dim) -> None:
    """One block of a grid, from its start to the return of its last thread."""
    machine.enter(block, threads, grid)
    everyone = np.arange(machine.count)
    for _ in range(_MOST):
        if not machine.alive.any():
            return
        ready = machine.alive & ~machine.waiting
        if not ready.any():
            machine.waiting[:] = False  # all remaining warps have arrived at the barrier
            continue
        lowest = np.full(machine.warp[-1] + 1, _FAR)
        np.minimum.at(lowest, machine.warp[ready], machine.at[ready])
        for at in np.unique(lowest[lowest < _FAR]).tolist():
            mine = ready & (machine.at == at) & (lowest[machine.warp] == at)
            if at == len(machine.code):
                machine.alive[mine] = False
                continue
            machine.at[mine] += 1
            instruction = machine.code[at]
            if instruction.guard is not None:
                mine &= machine.raw(instruction.guard, everyone) > 0
            if mine.any():
                execute(machine, instruction, np.flatnonzero(mine))
    raise TimeoutError(f"threads still run after {_MOST} turns")
