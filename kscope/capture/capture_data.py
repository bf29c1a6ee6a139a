"""A capture in memory: the records of each device, the counts of launches, and facts about the session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .model import ModuleMeta, Problem

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .samples import Samples


@dataclass(frozen=True)
class ClockSync:
    """A reading of %globaltimer between two readings of the host's clock; all in ns, the host's in UNIX time."""

    host_before: int
    globaltimer: int
    host_after: int


@dataclass(frozen=True)
class TimerReading:
    """A launch of a kernel that only reads %globaltimer.

    Attributes:
        kernel: its name.
        first: %globaltimer in its first instruction, ns.
        last: %globaltimer that it waited for before it ended, ns.
    """

    kernel: str
    first: int
    last: int


@dataclass(frozen=True)
class BegunLaunch:
    """A launch that has begun.

    Attributes:
        kernel: the kernel's id.
        grid_id: %gridid.
        time: %globaltimer when its first block started, ns.
    """

    kernel: int
    grid_id: int
    time: int


@dataclass(frozen=True)
class DeviceCapture:
    """The recording of one device.

    Attributes:
        ordinal: the device's number.
        name: the device's name.
        lines: (n, 16) uint32, 64-byte units drained from the pool: contiguous slabs in any order, with cleared units
            between them.
        sms: number of SMs.
        lost: warps that found the pool full and did not record.
        tick_ns: the smallest observed step of %globaltimer; 0 if it was not measured.
        syncs: clock comparisons with the host.
        max_clock_khz: the highest SM clock; 0 if unknown.
        uuid: the GPU's UUID, as nvidia-smi shows it; empty if unknown.
        read_ns: %globaltimer when the data was read while warps ran, ns; 0 if none ran, or if it is unknown.
        begun: after a fault, the newest launches that began, in any order; empty without one.
        readings: of the timer, at the session's begin and end; empty unless another profiler recorded too.
    """

    ordinal: int
    name: str
    lines: npt.NDArray[np.uint32]
    sms: int = 0
    lost: int = 0
    tick_ns: int = 0
    syncs: tuple[ClockSync, ...] = ()
    max_clock_khz: int = 0
    uuid: str = ""
    read_ns: int = 0
    begun: tuple[BegunLaunch, ...] = ()
    readings: tuple[TimerReading, ...] = ()


@dataclass(frozen=True)
class LaunchCount:
    """Number of launches of a kernel in a session that the host saw.

    Attributes:
        direct: launches.
        replayed: launches by replays of graphs.
    """

    direct: int = 0
    replayed: int = 0


LaunchLine = tuple[str, int, str]
"""A line of Python: file, line, function; ("", 0, "") if it is unknown."""


@dataclass(frozen=True)
class CaptureData:
    """One session's recording, from every device; Capture describes the fields."""

    epoch: int
    devices: tuple[DeviceCapture, ...]
    modules: tuple[ModuleMeta, ...]
    options: dict[str, Any] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    host: dict[str, Any] = field(default_factory=dict)
    launches: dict[int, LaunchCount] = field(default_factory=dict)
    tuning_launches: int = 0
    samples: Samples | None = None
    lines: tuple[LaunchLine, ...] = ()
    launched_at: dict[int, tuple[int, ...]] = field(default_factory=dict)
