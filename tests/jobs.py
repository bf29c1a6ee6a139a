"""A job of several ranks with known truth: each computes, then meets the others in a collective; clocks drift.

A rank's capture is on its own %globaltimer. Ranks of a host share the host's clock, which differs between hosts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import synth
from synth import Rec

from kscope.capture.capture import Capture
from kscope.capture.capture_data import ClockSync, DeviceCapture
from kscope.capture.model import KernelMeta, ModuleMeta, RegionMeta

UNIX = 1_764_547_200_000_000_000
TICK = 32
COMPUTE, REDUCE = 0x51, 0x52
NAMES = ("load", "dot", "exchange", "signal", "wait")


@dataclass
class Job:
    """Ranks and their steps.

    Attributes:
        ranks, steps, hosts: how many.
        late: (rank, step) -> ns that the region "dot" takes longer.
        pause: (rank, step) -> ns before the launch.
        transfer: ns that a collective lasts after the last arrival.
        warps: of each launch.
        way: ns that a signal between two GPUs takes, the least and the most.
    """

    ranks: int
    steps: int = 20
    hosts: int = 1
    late: dict[tuple[int, int], int] = field(default_factory=dict)
    pause: dict[tuple[int, int], int] = field(default_factory=dict)
    transfer: int = 6_000
    warps: int = 2
    seed: int = 1
    gap: int = 30_000_000
    way: tuple[int, int] = (600, 700)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.rate = rng.uniform(-8e-6, 8e-6, self.ranks)
        self.offset = rng.integers(10**12, 10**15, self.ranks)
        self.host_of = [rank * self.hosts // self.ranks for rank in range(self.ranks)]
        self.host_offset = rng.integers(-50_000_000, 50_000_000, self.hosts)
        self.compute = rng.integers(20_000, 26_000, (self.ranks, self.steps))
        self.arrive = np.zeros((self.ranks, self.steps))
        self.leave = np.zeros((self.ranks, self.steps))
        self.begin = np.zeros((self.ranks, self.steps))
        ready = np.full(self.ranks, 1_000_000.0)
        for step in range(self.steps):
            for rank in range(self.ranks):
                self.begin[rank, step] = ready[rank] + self.pause.get((rank, step), 0)
                took = int(self.compute[rank, step]) + self.late.get((rank, step), 0)
                self.arrive[rank, step] = self.begin[rank, step] + took + 2_000
            last = self.arrive[:, step].max()
            self.leave[:, step] = last + self.transfer + rng.integers(0, 500, self.ranks)
            ready = self.leave[:, step] + self.gap + rng.integers(0, 3_000, self.ranks)

    def timer(self, rank: int, true: float) -> int:
        """%globaltimer of a rank's GPU."""
        return int(true * (1 + self.rate[rank]) + self.offset[rank])

    def unix(self, rank: int, true: float) -> int:
        """The clock of a rank's host."""
        return UNIX + int(true) + int(self.host_offset[self.host_of[rank]])

    def capture(self, rank: int) -> Capture:
        """The capture of a rank."""
        syncs = tuple(
            ClockSync(self.unix(rank, true - 9_000), self.timer(rank, true), self.unix(rank, true + 11_000))
            for true in (500_000.0, float(self.leave.max()) + 500_000)
        )
        device = DeviceCapture(0, "synthetic", self.lines(rank), 132, 0, TICK, syncs, 1_980_000, uuid=f"GPU-{rank}")
        kernels = (KernelMeta("compute", COMPUTE, 3), KernelMeta("my_all_reduce", REDUCE, 3))
        module = ModuleMeta("synth", kernels, tuple(RegionMeta(name) for name in NAMES))
        host = {"rank": rank, "world": self.ranks, "hostname": f"node{self.host_of[rank]}", "pid": 100 + rank}
        return Capture(synth.EPOCH, (device,), (module,), {"strategy": "elected"}, (), host)

    def lines(self, rank: int) -> np.ndarray:
        """The data that a rank's GPU wrote."""
        slabs = []
        for step in range(self.steps):
            begin, arrive = self.begin[rank, step], self.arrive[rank, step]
            slabs += self._launch(rank, step, begin, arrive - 2_000, COMPUTE)
            slabs += self._launch(rank, step, arrive, self.leave[rank, step], REDUCE)
        return np.concatenate(slabs)

    def _launch(self, rank: int, step: int, begin: float, end: float, kernel: int) -> list[np.ndarray]:
        found = []
        for warp in range(self.warps):
            times = [self.timer(rank, true) for true in (begin, end)]
            clock = [round(true * 1.98) for true in (begin, end)]
            records = [Rec("exchange", clock[0] + 10, clock[1] - 10)]
            if kernel == COMPUTE:  # a third of an undisturbed step loads
                load = clock[0] + round(int(self.compute[rank, step]) * 1.98 / 3)
                records = [Rec("load", clock[0] + 10, load), Rec("dot", load + 10, clock[1] - 10)]
            found.append(
                synth.slab(
                    records, log2=3, start=clock[0], end=clock[1], start_time=times[0] // TICK * TICK,
                    end_time=times[1] // TICK * TICK, warp=warp, kernel=kernel,
                    grid_id=2 * step + (kernel == REDUCE) + 1,
                )
            )  # fmt: skip
        return found

    def clock_file(self, rank: int) -> dict[str, object]:
        """What the rank compares at both ends, as kscope run --ranks writes it."""
        rng = np.random.default_rng(rank)
        moments = 400_000.0, float(self.leave.max()) + 400_000
        host = [other for other in range(self.ranks) if self.host_of[other] == self.host_of[rank]]
        readings, peers = list[list[int]](), list[dict[str, object]]()
        for true in moments:
            way = rng.uniform(20_000, 90_000, 2)
            readings.append([self.unix(rank, true), self.unix(0, true + way[0]), self.unix(rank, true + sum(way))])
        for other in host[1:] if rank == host[0] else ():
            mine_first, its_first = list[list[int]](), list[list[int]]()
            for true in moments:
                for turn in range(16):
                    there, back = rng.uniform(*self.way, 2)
                    begin = true + 3000 * turn + 100_000 * other
                    asked, answered, seen = (
                        self.timer(one, at) // TICK * TICK
                        for one, at in ((rank, begin), (other, begin + there), (rank, begin + there + back))
                    )
                    mine_first.append([asked, answered])
                    its_first.append([answered, seen])
            peers.append({"gpu": f"GPU-{other}", "mine_first": mine_first, "its_first": its_first})
        return {
            "schema": "kscope.clock", "version": 1, "rank": rank, "host": f"node{self.host_of[rank]}",
            "gpu": f"GPU-{rank}", "rank_0_clock": readings, "peers": peers,
        }  # fmt: skip

    def save_compared(self, folder: Path) -> None:
        """As kscope run --ranks: every rank's capture and clock file in a partition."""
        for rank in range(self.ranks):
            own = folder / f"rank={rank:04}"
            own.mkdir(parents=True)
            self.capture(rank).save(own / "step.kscope")
            (own / "clock.json").write_text(json.dumps(self.clock_file(rank)))

    def save(self, folder: Path) -> None:
        """Every rank's capture as a file."""
        for rank in range(self.ranks):
            self.capture(rank).save(folder / f"step.{rank}.kscope")
