"""Facts about a recording: GPU, versions, command, options, and how much of its grids recorded. Every output states
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from ..capture.blocks import Blocks
from ..util.grouping import grouped
from ..util.json_values import clean
from ..util.runs import count_distinct, group_equal
from ..util.text import counted, number_ranges
from .data import TraceData
from .recording_facts import CLOCKS, Clock, Gpu

_OWN = ("python", "numpy")
"""Versions that the header line omits."""


@dataclass(frozen=True)
class Info:
    """The facts that every output of a trace states.

    Attributes:
        source, clock: as in Recorded.
        gpus: devices by number, name and UUID.
        driver: version of the GPU's driver; empty if unknown.
        versions: of kscope, Python and the kernel languages, by name.
        date: when the session began, ISO 8601 in UTC; empty if unknown.
        command: the command line; empty if unknown.
        process: ``rank 1 of 4, process 77 on node3``; empty if unknown.
        strategy: recording threads, such as "warp".
        placement: kernel -> "fence" or "schedule", or "fence and schedule" if it was compiled with each; empty if
            unknown.
        subset: the blocks, warps and SMs that were to record, such as {"block": "0:512:128"}; empty for all.
        survive: with survive=: device -> the place of its records, and the reason, such as "shm".
        kernels: their names.
        launches, warps, records: their numbers.
        lanes: recording lanes with AllThreads, else 0.
        blocks: blocks that recorded.
        grid_blocks: blocks of the launches' grids.
        stall_samples: samples of stalls; 0 without.
        stall_period: cycles between two of them; 0 of a session that did not sample.
    """

    source: str
    clock: Clock
    gpus: tuple[Gpu, ...]
    driver: str
    versions: dict[str, str]
    date: str
    command: str
    process: str
    strategy: str
    placement: dict[str, str]
    subset: dict[str, str]
    survive: dict[str, str]
    kernels: tuple[str, ...]
    launches: int
    warps: int
    lanes: int
    records: int
    blocks: int
    grid_blocks: int
    stall_samples: int = 0
    stall_period: int = 0

    @property
    def partial(self) -> bool:
        """True if blocks were left out on purpose."""
        return self.blocks < self.grid_blocks and ("block" in self.subset or "sm" in self.subset)

    @property
    def blocks_text(self) -> str:
        """``4 of 512 blocks recorded (subset)``, ``512 blocks``."""
        return blocks_text(self.blocks, self.grid_blocks, self.partial)

    @property
    def placement_text(self) -> str:
        """``schedule``, ``schedule (matmul), fence (softmax)``; empty if the marks of all were in their texts."""
        kernels = grouped((placement, name) for name, placement in self.placement.items())
        if len(kernels) < 2:
            return "".join(kernels.keys() - {"fence"})
        return ", ".join(f"{placement} ({', '.join(names)})" for placement, names in sorted(kernels.items())[::-1])

    @property
    def caveat(self) -> str:
        """A remark that the clock is no GPU's, or that only some blocks recorded; empty if neither is so."""
        return "; ".join(
            [CLOCKS[self.clock].partition(":")[0]] * (self.clock != "gpu") + [self.blocks_text] * self.partial
        )

    @property
    def device_text(self) -> str:
        """``NVIDIA H200``, ``simulated clock``, ``data of Proton``."""
        names = dict.fromkeys(gpu.name for gpu in self.gpus) if self.clock == "gpu" else {}
        clock = CLOCKS[self.clock].partition(":")[0]
        return ", ".join(names) or (f"data of {self.source}" if self.clock == "foreign" else clock)

    @property
    def line(self) -> str:
        """The facts in one line."""
        driver = f" (driver {self.driver})" if self.clock == "gpu" and self.gpus and self.driver else ""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items() if name not in _OWN)
        subset = ", ".join(f"{name} {text}" for name, text in self.subset.items())
        date = self.date.replace("T", " ").replace("+00:00", " UTC")
        parts = [
            self.device_text + driver,
            versions, date, self.command, f"strategy {self.strategy}" * bool(self.strategy),
            f"placement {self.placement_text}" * bool(self.placement_text),
            f"only {subset}" * bool(subset), self.blocks_text,
        ]  # fmt: skip
        return "; ".join(part for part in parts if part)

    def to_dict(self) -> dict[str, Any]:
        """The facts, ready for JSON."""
        return {**asdict(self), "partial": self.partial}


def blocks_text(blocks: int, grid: int, partial: bool) -> str:
    """``4 of 512 blocks recorded (subset)``, ``512 blocks``. partial: blocks were left out on purpose."""
    if blocks >= grid:
        return counted(blocks, "block")
    return f"{blocks:,} of {counted(grid, 'block')} recorded" + " (subset)" * partial


def info(trace: TraceData) -> Info:
    """The facts about a trace; of a filtered one those of the whole recording."""
    trace = trace.whole
    about, warps = trace.recorded, trace.warps
    host = about.host
    command = host.get("command")
    started = host.get("started")
    launched = warps.launch[group_equal(warps.launch)[0]]
    return Info(
        source=about.source,
        clock=about.clock,
        gpus=tuple(Gpu(one.device, clean(one.name), clean(one.uuid)) for one in about.gpus),
        driver=clean(str(host.get("driver") or "")),
        versions=_texts(host.get("versions")),
        date=_date(started) if isinstance(started, int) else "",
        command=clean(" ".join(map(str, command))) if isinstance(command, list) else "",
        process=_process(host),
        strategy=clean(", ".join(about.strategies) or str(about.options.get("strategy") or "")),
        placement={clean(name): about.placements[name] for name in trace.kernels if name in about.placements},
        subset={name: found for name in ("block", "warp", "sm") if (found := _subset(name, about.options.get(name)))},
        survive=_texts(host.get("survive")),
        kernels=tuple(map(clean, trace.kernels)),
        launches=len(launched),
        warps=count_distinct(warps.block_key * (int(warps.warp.max(initial=0)) + 1) + warps.warp),
        lanes=len(warps) if warps.noun == "lane" else 0,
        records=len(trace),
        blocks=count_distinct(warps.block_key),
        grid_blocks=sum(_blocks(trace, launch) for launch in launched.tolist()),
        stall_samples=len(trace.samples or ()),
        stall_period=trace.samples.period if trace.samples is not None else 0,
    )


def _blocks(trace: TraceData, launch: int) -> int:
    x, y, z = trace.launches[launch].grid
    return x * y * z


def _process(host: Mapping[str, Any]) -> str:
    rank, world, pid = (found if isinstance(found := host.get(name), int) else 0 for name in ("rank", "world", "pid"))
    name = host.get("hostname")
    if not pid or not isinstance(name, str):
        return ""
    return f"rank {rank} of {world}, " * (world > 1) + f"process {pid} on {clean(name)}"


def _texts(typed: object) -> dict[str, str]:
    return {clean(str(name)): clean(str(one)) for name, one in typed.items()} if isinstance(typed, Mapping) else {}


def _date(started: int) -> str:
    try:
        return datetime.fromtimestamp(started // 10**9, timezone.utc).isoformat() if started > 0 else ""
    except (ValueError, OverflowError, OSError):
        return ""


def _subset(name: str, value: object) -> str:
    """Text of an option of a capture: [first, stop, step] of blocks, or numbers of warps or SMs; "" for all."""
    if not isinstance(value, list) or not value or not all(isinstance(one, int) and one >= 0 for one in value):
        return ""
    if name != "block":
        return number_ranges(sorted(value))
    first, stop, step = (*value, 1, 1)[:3]
    return str(Blocks((range(first, stop, max(1, step)),)))
