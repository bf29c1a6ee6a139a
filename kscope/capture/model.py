"""The parts of a capture as values: modules, kernels, regions, devices, problems."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..util.portable import clean
from . import layout, wire

if TYPE_CHECKING:
    from .samples import Samples


@dataclass(frozen=True)
class Problem:
    """Something about the data that affects how to read it.

    Attributes:
        kind: one word, such as "lost".
        text: a sentence.
        count: how often it happened (records, warps, launches).
        kernel: the kernel concerned; None if it is not about one kernel.
        region: the region concerned; None if it is not about one region.
        device: the device's ordinal, None if the session has one device or the problem is about all.
    """

    kind: str
    text: str
    count: int = 1
    kernel: str | None = None
    region: str | None = None
    device: int | None = None

    def as_dict(self) -> dict[str, str | int]:
        """kind, text and count as valid UTF-8, for JSON."""
        return {"kind": clean(self.kind), "text": clean(self.text), "count": self.count}

    def on_device(self, ordinal: int) -> Problem:
        """The same problem of one of several devices; its text begins with the device."""
        return replace(self, text=f"device {ordinal}: {self.text}", device=ordinal)


@dataclass(frozen=True)
class RegionMeta:
    """A name that a module's records may carry.

    Attributes:
        name: the region's name.
        type: the type of its values ("i32", "u32", "f32", "i64", "u64" or "f64"); None for regions without.
        where: "file:line" of its first mark; None if unknown.
        kernel: index of the module's kernel that this row is about, if kernels differ in the type; None for all.
        origin: "source" if the user's code marks it, "auto" or "lines" if auto= or mark= selected it.
        ends_at_issue_of: an asynchronous instruction, such as "cp.async.bulk.tensor", that it issues without waiting
            for any; None if it has none or waits, and if this is unknown.
    """

    name: str
    type: str | None = None
    where: str | None = None
    kernel: int | None = None
    origin: str = "source"
    ends_at_issue_of: str | None = None


@dataclass(frozen=True)
class RoleMeta:
    """A partition of a kernel's warps that the compiler made.

    Attributes:
        name: what the partition does: the name of its function, or of its work, such as "load".
        warps: its warps of every block.
    """

    name: str
    warps: tuple[int, ...]


@dataclass(frozen=True)
class KernelMeta:
    """A kernel of a module.

    Attributes:
        name: its name.
        id: its hash, which every slab's header carries.
        log2_records: log2 of the records that one of its slabs holds.
        roles: the compiler's partitions of its warps, if it made any; no warp is in two.
    """

    name: str
    id: int
    log2_records: int
    roles: tuple[RoleMeta, ...] = ()


@dataclass(frozen=True)
class RowLayout:
    """The layout of a row with three clocks.

    Attributes:
        records: id, start and end of each of its records, in order of their ends; a clock is 0, 1 or 2.
    """

    records: tuple[tuple[int, int, int], ...]

    @property
    def row_id(self) -> int:
        """The id word of its rows."""
        text = " ".join(f"{number:08x}:{start}{end}" for number, start, end in self.records)
        return layout.name_hash(text) << 4 | wire.CLOCKS


@dataclass(frozen=True)
class ModuleMeta:
    """The metadata of a module compiled for recording, which names its kernels and regions after it is unloaded.

    Attributes:
        frontend: the frontend that compiled it.
        kernels: its kernels that may record.
        regions: the names that its records may carry.
        clock, fill, strategy: as in ``kscope.profile()``; the strategy as its spec.
        problems: problems found when it was compiled.
        variables: whether it uses variables in global or constant memory, which outlive a launch.
        placement: "fence" if marks were in the text that was assembled, "schedule" if its machine code was recorded.
        layouts: of the rows with three clocks that its kernels write.
    """

    frontend: str
    kernels: tuple[KernelMeta, ...]
    regions: tuple[RegionMeta, ...]
    clock: str = "cycles"
    fill: str = "ring"
    strategy: str = "elected"
    problems: tuple[Problem, ...] = ()
    variables: bool = False
    placement: str = "fence"
    layouts: tuple[RowLayout, ...] = ()


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
    """A launch whose first block began.

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
    """What one device recorded.

    Attributes:
        ordinal: the device's number.
        name: the device's name.
        lines: (n, 16) uint32, 64-byte units drained from the pool: contiguous slabs in any order, with cleared units
            between them.
        sms: number of SMs.
        lost: warps that found the pool full and did not record.
        tick_ns: the smallest step of %globaltimer that was seen; 0 if it was not measured.
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
    """How often a session launched a kernel, as far as the host saw it.

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
    """One session's recording, from every device.

    Attributes:
        epoch: the session's number, which every slab's header carries.
        devices: what each device recorded.
        modules: the metadata of the modules that may have recorded.
        options: the session's options, ready for JSON.
        problems: problems of the whole session.
        host: versions, machine, command, start (UNIX ns).
        launches: how often the session launched kernels, by kernel id: launches that the host saw and that began and
            ended while recording. Empty if the session was paused or interrupted.
        tuning_launches: launches by which autotuners timed configurations; they run plain and record nothing.
        samples: where warps waited and why, of a session with stalls=True; None without.
        lines: the distinct lines of Python that launched kernels; empty without profile(launch_stacks=True).
        launched_at: by kernel id the index of each launch's line, in order of launch; without replays of graphs.
    """

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
