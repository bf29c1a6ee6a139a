"""Facts about a trace's recording, as in its capture; info.py has the same in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Clock = Literal["gpu", "simulated", "host", "foreign"]
CLOCKS: dict[Clock, str] = {
    "gpu": "GPU clock",
    "simulated": "simulated clock: times are those of a model, not of a GPU",
    "host": "host clock: an interpreter ran the kernels on the CPU; times are the interpreter's",
    "foreign": "another profiler's clock: its precision is unknown",
}


@dataclass(frozen=True)
class Reading:
    """A launch of a kernel that only read the device's timer; UNIX ns of the trace's clock.

    Attributes:
        kernel: its name.
        first_by: latest time at which it began.
        last_from: earliest time at which it ended.
    """

    kernel: str
    first_by: int
    last_from: int


@dataclass(frozen=True)
class Gpu:
    """A device: its number, its name, its UUID (empty if unknown), and readings of its timer in order of time."""

    device: int
    name: str
    uuid: str = ""
    readings: tuple[Reading, ...] = ()


@dataclass(frozen=True)
class Recorded:
    """Facts about a recording apart from its records; all of them may be empty.

    Attributes:
        source: "kscope", or the name of another profiler.
        clock: a key of CLOCKS.
        gpus: the devices.
        host: versions, driver, command, start (UNIX ns), as in a capture.
        options: the session's options, as in a capture.
        strategies: the strategies that kernels were compiled with, as specs.
        placements: kernel -> "fence" or "schedule", or both if it was compiled with each.
    """

    source: str = "kscope"
    clock: Clock = "gpu"
    gpus: tuple[Gpu, ...] = ()
    host: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    strategies: tuple[str, ...] = ()
    placements: Mapping[str, str] = field(default_factory=dict)
