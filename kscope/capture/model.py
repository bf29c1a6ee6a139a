"""The parts of a capture as values: modules, kernels, regions, devices, problems."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Problem:
    """Something about the data that a reader must know. `kind` is one word, `text` a whole sentence,
    `count` how often (records, warps, launches)."""

    kind: str
    text: str
    count: int = 1


@dataclass(frozen=True)
class RegionMeta:
    """A name that a module's records may carry; `type` is the value's type (i32, u32, f32) or None. kernel: index of
    the module's kernel that it is told of, where its values have another type in another one; None = of all."""

    name: str
    type: str | None = None
    where: str | None = None  # "file:line" of the first mark
    kernel: int | None = None


@dataclass(frozen=True)
class KernelMeta:
    """An entry function of a module: `id` is layout.HEADER["kernel"], `log2_records` its slabs' size."""

    name: str
    id: int
    log2_records: int


@dataclass(frozen=True)
class ModuleMeta:
    """What a prepared module says of itself (symbol kscope_meta): names outlive its unloading."""

    frontend: str
    kernels: tuple[KernelMeta, ...]
    regions: tuple[RegionMeta, ...]
    clock: str = "cycles"
    fill: str = "ring"
    strategy: str = "warp"
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class ClockSync:
    """One bracket of the host's clock around a reading of %globaltimer, all in ns; host = UNIX time."""

    host_before: int
    globaltimer: int
    host_after: int


@dataclass(frozen=True)
class DeviceCapture:
    """What one device recorded.

    lines: (n, 16) uint32, 64-byte units drained from the pool; slabs stand contiguous, in any order,
        with cleared units between them.
    lost: lanes that found the pool full and did not record.
    """

    ordinal: int
    name: str
    lines: npt.NDArray[np.uint32]
    sms: int = 0
    lost: int = 0
    tick_ns: int = 0  # smallest step seen of %globaltimer; 0 = not measured
    syncs: tuple[ClockSync, ...] = ()


@dataclass(frozen=True)
class CaptureData:
    """One session's recording, from every device."""

    epoch: int
    devices: tuple[DeviceCapture, ...]
    modules: tuple[ModuleMeta, ...]
    options: dict[str, Any] = field(default_factory=dict)  # the session's options in words
    problems: tuple[Problem, ...] = ()
    host: dict[str, Any] = field(default_factory=dict)  # versions, machine, command, started (unix ns)
