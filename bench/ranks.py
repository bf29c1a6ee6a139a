"""Time and memory of `kscope ranks` for a job of many ranks, and of `kscope merge --torch` for a long trace.

    make bench-ranks         or, with PYTHONPATH=.:tests, python bench/ranks.py [--ranks 1000] [--records 10000]
                             [--launches 14300] [--merged 2000000] [--repeat 3] [--json FILE]

Makes captures with known truth (tests/jobs.py, tests/kinetos.py): ranks on hosts of eight, whose clocks drift, of which
one is late in half of the steps; and a capture of a program beside torch.profiler's trace of it, in which kscope
recorded every seventh launch, or every one. Each command runs in separate processes, with the start of Python, and
its answer is compared with the truth.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import host
import jobs
import kinetos
import numpy as np
import rows as results
from many import Cost, command, slabs

import kscope

STEPS, BLOCKS = 20, 10
"""Steps of a rank's script, each a kernel and a collective; blocks of a launch, of one warp each."""
WARPS = 2
"""Of a launch beside torch.profiler."""
LATE_NS = 50_000
"""By how much one rank is late in every other step."""


@dataclass
class Job(jobs.Job):
    """A job whose launches have `records` records in each warp."""

    records: int = 25

    @property
    def total(self) -> int:
        """Records of all ranks."""
        return self.ranks * self.steps * 2 * self.warps * self.records

    def lines(self, rank: int) -> np.ndarray:
        """The lines of a rank, like those of the job with few records."""
        begin, arrive, leave = self.begin[rank], self.arrive[rank], self.leave[rank]
        true = np.stack([np.stack([begin, arrive - 2_000], 1), np.stack([arrive, leave], 1)], 1).reshape(-1, 2)
        launch, block = np.divmod(np.arange(len(true) * self.warps), self.warps)
        clock = np.rint(true * 1.98).astype(np.int64)[launch]
        timer = (true * (1 + self.rate[rank]) + self.offset[rank]).astype(np.int64)[launch] // jobs.TICK * jobs.TICK
        length = clock[:, 1] - clock[:, 0]
        reduces = launch % 2 == 1
        loading = np.rint(self.compute[rank] * 1.98 / 3).astype(np.int64)[launch // 2]  # the rest, and a delay: "dot"
        first = np.where(reduces, length // 2, loading)
        loads = self.records // 2
        step = np.arange(self.records + 1)
        early = first[:, None] * step // loads
        later = first[:, None] + (length - first)[:, None] * (step - loads) // (self.records - loads)
        cut = clock[:, :1] + np.where(step <= loads, early, later)
        names = np.where(reduces[:, None], "exchange", np.where(step[:-1] < loads, "load", "dot"))
        kernel = np.where(reduces, jobs.REDUCE, jobs.COMPUTE)
        return slabs(clock, timer, kernel, launch + 1, block, self.warps, names, cut)


@dataclass
class Recorded(kinetos.Recorded):
    """A program whose launches have two warps with `records` records each."""

    records: int = 72

    def lines(self, device: int, kernels: dict[str, int], jump: tuple[int, int] | None) -> np.ndarray:
        """The lines of the only GPU, whose clock does not jump, like those of the program with few records."""
        assert jump is None
        launch, block = np.divmod(np.arange(2 * len(self.runs)), 2)
        true = np.array([(one.first, one.last) for one in self.runs], np.int64)[launch]
        true += np.array([100, -100]) * block[:, None]
        clock = np.rint(true * 1.98).astype(np.int64) + 10_000 * block[:, None]
        timer = (true + kinetos.TIMER) // kinetos.TICK * kinetos.TICK
        step = np.arange(self.records + 1)
        cut = clock[:, :1] + (clock[:, 1] - clock[:, 0])[:, None] * step // self.records
        names = np.broadcast_to(np.where(step[:-1] % 2, "dot", "load"), (len(launch), self.records))
        kernel = np.array([kernels[one.kernel] for one in self.runs])[launch]
        grid_id = np.array([one.grid_id for one in self.runs])[launch]
        return slabs(clock, timer, kernel, grid_id, block, 2, names, cut)


def ranks(count: int, records: int, repeat: int, folder: Path) -> list[results.Row]:
    """`kscope ranks` over that many captures of so many records each."""
    late = count * 5 // 8
    job = Job(
        count, STEPS, hosts=-(-count // 8), warps=BLOCKS, records=max(2, records // (2 * STEPS * BLOCKS)),
        late={(late, step): LATE_NS for step in range(1, STEPS, 2)},
    )  # fmt: skip
    job.save(folder)
    size = sum(file.stat().st_size for file in folder.iterdir())
    found = []
    for _ in range(repeat):
        host.settle()
        out, cost = command("ranks", str(folder), "--json")
        answer = json.loads(out)["stragglers"][0]
        if (answer["rank"], answer["cause"]) != (late, "compute: dot"):
            raise RuntimeError(f"rank {late} is late because of compute: dot, but the answer is {answer}")
        found.append(cost)
    return rows(f"kscope ranks, {count:,} ranks", f"{job.total:,} records", found, bytes=size)


def merge(launches: int, others: int, records: int, suffix: str, repeat: int, folder: Path) -> list[results.Row]:
    """`kscope merge --torch` of so many recorded launches among `others` of torch's own, with so many records."""
    runs = kinetos.steps(launches + others)
    for at, run in enumerate(runs):
        run.op = f"aten::op_{at % 20}"
    mine = set(np.linspace(0, len(runs) - 1, launches).astype(int).tolist())
    rest = [replace(run, kernel="elementwise") for at, run in enumerate(runs) if at not in mine]
    recorded = Recorded([runs[at] for at in sorted(mine)], unrecorded=rest, records=records // launches // WARPS)
    recorded.capture().save(folder / "step.kscope")
    trace = recorded.kineto()
    (folder / "trace.json").write_bytes(trace)
    events, records = trace.count(b'"ph"'), launches * recorded.records * WARPS
    found, out = [], folder / f"step{suffix}"
    for _ in range(repeat):
        host.settle()
        arguments = str(folder / "step.kscope"), "--torch", str(folder / "trace.json"), "-o", str(out), "--limit", "all"
        text, cost = command("merge", *arguments)
        if f": {records:,} records" not in text or f"; {launches:,} of {launches:,} launches paired" not in text:
            raise RuntimeError(f"{records:,} records of {launches:,} launches are to be merged, but: {text}")
        found.append(cost)
        out.unlink()
    where = f"{events:,} events, {records:,} records of {launches:,} launches"
    return rows(f"kscope merge --torch, {suffix}", where, found, bytes=len(trace))


def rows(what: str, where: str, found: list[Cost], **notes: object) -> list[results.Row]:
    """The rows of some runs."""
    return [
        results.row(f"{what}: time", where, "s", [one.wall for one in found], **notes),
        results.row(f"{what}: CPU time", where, "s", [one.cpu for one in found]),
        results.row(f"{what}: memory", where, "GB", [one.memory / 1e9 for one in found]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of kscope ranks, and of kscope merge --torch")
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--records", type=int, default=10_000, help="of each rank")
    parser.add_argument("--launches", type=int, default=14_300, help="beside torch.profiler, of 7 events each")
    parser.add_argument("--merged", type=int, default=2_000_000, help="records beside torch.profiler")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quiet", type=float, default=0, metavar="S", help="wait that long for an idle moment")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    host.PATIENCE = options.quiet
    started, begun, found = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()), time.monotonic(), []
    compileall.compile_dir(str(Path(kscope.__file__).parent), quiet=1)  # as in an installed package
    with tempfile.TemporaryDirectory() as folder:
        found += ranks(options.ranks, options.records, options.repeat, Path(folder))
    some = max(1, options.launches // 7)
    for launches, suffix in ((some, ".pftrace"), (some, ".json"), (options.launches, ".pftrace")):
        sizes = launches, options.launches - launches, options.merged
        with tempfile.TemporaryDirectory() as folder:
            found += merge(*sizes, suffix, options.repeat, Path(folder))
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    machine = results.machine()
    machine["host"] += f", load {load}"
    section = results.Section("ranks", time.monotonic() - begun, "ok", rows=tuple(found))
    report = results.Report(["python", *sys.argv], started, machine, host.versions(), (section,))
    print(results.table(report))
    if options.json:
        results.write(report, options.json)


if __name__ == "__main__":
    main()
