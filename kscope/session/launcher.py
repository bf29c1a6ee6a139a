"""The place of this process in a job of several: torchrun, mpirun, srun and others set it in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""Rank and number of ranks, by launcher; the innermost launcher first, as torchrun may run under srun."""


@dataclass(frozen=True)
class Place:
    """A process of a job.

    Attributes:
        rank: its number, from 0.
        world: number of processes in the job.
    """

    rank: int
    world: int


def place(environment: Mapping[str, str] | None = None) -> Place:
    """This process's place; rank 0 of 1 without a launcher."""
    environment = os.environ if environment is None else environment
    for names in _VARIABLES:
        rank, world = (environment.get(name, "") for name in names)
        if rank.isdecimal() and world.isdecimal() and int(rank) < int(world):
            return Place(int(rank), int(world))
    return Place(0, 1)


def expanded(path: str) -> str:
    """The path with %r as the rank, %p as the process id, and %% as a percent sign."""
    texts = {"%r": str(place().rank), "%p": str(os.getpid()), "%%": "%"}
    parts, at = [], 0
    while (found := path.find("%", at)) >= 0:
        code = path[found : found + 2]
        parts += [path[at:found], texts.get(code, code)]
        at = found + len(code)
    return "".join([*parts, path[at:]])
