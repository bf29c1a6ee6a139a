"""Results about pipelines, as rows."""

from __future__ import annotations

from dataclasses import dataclass

from ...capture.model import Problem
from ..display import Shown


@dataclass(frozen=True)
class RoleWaits:
    """Waits of one role for one ring; times are sums over its warps.

    Attributes:
        role: its name.
        count: waits.
        ns: their time.
        not_issued_ns, in_flight_ns, landed_ns: its parts.
        unknown: waits whose phase is unknown; they are not in `count`.
    """

    role: str
    count: int
    ns: float
    not_issued_ns: float
    in_flight_ns: float
    landed_ns: float
    unknown: int


@dataclass(frozen=True)
class RingStats:
    """One ring of barriers.

    Attributes:
        name: the places that wait for it.
        barriers: addresses of its stages in shared memory; empty for groups.
        stages: their number; for groups the most phases that a warp had in flight at once.
        groups: kind of its groups of asynchronous work, such as "cp.async"; empty for barriers.
        copies: True if copies complete at them.
        gives_back: name of the ring whose buffers it gives back; empty if there is none.
        phases: number of recorded phases.
        waits: by role.
        latency_ns: percentiles 50, 90 and 99 of the time from a phase's first operation to its completion, of exact
            completions; empty if there are none.
        exact: number of exact completions.
        bytes_per_phase: bytes that a phase expects; 0 for none.
        bytes_per_cycle: bytes that landed in a block, per cycle of its SM; NaN without bytes.
        bytes_in_flight: average per block while it ran; NaN without bytes.
        in_flight, in_use: average number of stages that are being filled, and that are not free.
        step_ns: time of a consumer between two waits.
        held_ns: from the end of the wait until the buffer was given back.
        late_ns: from the time a buffer is free to the first operation that fills it.
        bubbles, bubble_ns: phases, without each block's first, for which all waiters waited at once, and that time.
        needed: stages by Little's law; None if no completion is exact.
    """

    name: str
    barriers: tuple[int, ...]
    stages: int
    groups: str
    copies: bool
    gives_back: str
    phases: int
    waits: tuple[RoleWaits, ...]
    latency_ns: tuple[float, ...]
    exact: int
    bytes_per_phase: float
    bytes_per_cycle: float
    bytes_in_flight: float
    in_flight: float
    in_use: float
    step_ns: float
    held_ns: float
    late_ns: float
    bubbles: int
    bubble_ns: float
    needed: int | None


@dataclass(frozen=True)
class KernelPipeline:
    """The rings of a kernel. findings: faults, in sentences. picture: lines that draw one block."""

    kernel: str
    launches: int
    blocks: int
    rings: tuple[RingStats, ...]
    findings: tuple[str, ...]
    picture: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Pipelines(Shown):
    """The pipelines of a trace. caveat: as in Info. problems: what is unknown."""

    kernels: tuple[KernelPipeline, ...]
    caveat: str
    problems: tuple[Problem, ...] = ()
