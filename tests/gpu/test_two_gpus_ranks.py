"""Two processes with a GPU each that meet in a barrier through peer memory: `kscope ranks` finds the late one.

make gpu PYTEST_ARGS='-k two_gpus_ranks'
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import planted
import pytest

from kscope.decoding.causal import Evidence, solve
from kscope.export.timeline import timeline
from kscope.export.view_options import view
from kscope.merging.ranks import gpus, sketches
from kscope.merging.ranks.clocks import align
from kscope.merging.ranks.skew import report
from kscope.merging.ranks.timeline import merge_ranks
from kscope.session.peer_clocks import tightest

from .checks import run

Table = Callable[[str, str], None]
MOST_NS = 800
"""Limit for the bound on two GPUs' timers, in ns: at most half of a signal's round trip, 515 to 656 on H200s."""

pytestmark = pytest.mark.usefixtures("two_gpus")


def test_a_delay_of_50_us_on_one_rank_is_named_with_its_region(tmp_path: Path, table: Table) -> None:
    from .ranks_process import WARMUP

    done = run([sys.executable, "-m", "gpu.ranks_process", str(tmp_path)], timeout=200)
    assert done.returncode == 0, done.stderr
    files = gpus.captures(tmp_path)
    found = report(gpus.read_all(files), ["peer_barrier"])
    saw = [np.load(tmp_path / f"saw.{rank}.npy") for rank in range(2)]
    last = np.where(saw[0] == saw[1], -1, np.argmax(saw, axis=0)).tolist()
    steps = range(1, len(last), 2)
    arrivals = found.arrivals[WARMUP:]
    named = planted.causes(arrivals, last, 1, steps)
    assert {(one.kernel, one.region) for one in named} == {("compute", "delayed")}
    median = float(np.median([one.more_ns for one in named]))
    assert 40_000 < median < 60_000
    planted_ns, usual_ns = ([one.skew_ns for one in arrivals[at::2]] for at in (1, 0))
    table("two ranks, bound of the clocks", f"\N{PLUS-MINUS SIGN}{found.bound_ns:,.0f} ns")
    table("two ranks, a planted 50 us", f"rank 1 last in {len(named)} of {len(steps)} steps; "
          f"{median:,.0f} ns more in the region, skew {np.median(planted_ns):,.0f} ns")  # fmt: skip
    table("two ranks, without", f"skew {np.median(usual_ns):,.0f} ns, at most {max(usual_ns):,.0f} ns")
    merged = merge_ranks(files, globs=["peer_barrier"])
    arrows = timeline(merged.trace, view=view(peers=[("signal", "wait")])).flows
    device = merged.trace.warps.device[merged.trace.track]
    assert len(arrows) >= len(merged.trace.launches) // 2
    assert (device[arrows.source] != device[arrows.target]).all()
    assert len(merged.trace.launches) == 2 * len(found.arrivals) * 2


def both(*command: str, cwd: Path, **environment: str) -> list[str]:
    """Two ranks of a job; what they print."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])  # bench/ has a gpu.py
    running = [
        subprocess.Popen(
            [one.replace("RANK", str(rank)) for one in command], cwd=cwd, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": path, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
            | environment,
        )
        for rank in range(2)
    ]  # fmt: skip
    done = [(one.communicate(timeout=120)[0], one.returncode) for one in running]
    assert [code for _, code in done] == [0, 0], done
    return [out for out, _ in done]


def test_a_million_signals_that_the_fit_did_not_use_are_within_its_bound(tmp_path: Path, table: Table) -> None:
    file = str(tmp_path / "rounds.npy")
    both(sys.executable, "-m", "gpu.clocks_process", f"kscope-{os.getpid()}", "RANK", "502", "8", file, cwd=tmp_path)
    rounds = np.load(file)
    fitted, others = rounds[[0, -1]].reshape(-1, 3), rounds[1:-1].reshape(-1, 3)
    evidence = []
    for end in np.split(fitted, 2):
        kept = tightest(end[:, [0, 2]], end[:, 1])
        mine, its = (np.array(kept[name]) for name in ("mine_first", "its_first"))
        evidence += [
            Evidence.clock_first(mine[:, 1], mine[:, 0], 32),
            Evidence.reference_first(its[:, 0], its[:, 1], 32),
        ]
    clock = solve(*evidence)
    found = clock.at(others[:, 1])
    ahead = others[:, [0, 2]] - others[:, [1]] - found.base
    wrong = (ahead[:, 0] - 32 > found.high) | (ahead[:, 1] + 32 < found.low)
    bound = float(found.half.max())
    trip = np.median(others[:, 2] - others[:, 0])
    table("two GPUs: bound of their timers", f"\N{PLUS-MINUS SIGN}{bound:,.0f} ns, there and back {trip:,.0f} ns")
    rate = tuple(1e6 * one for one in clock.pieces[0].rate)
    table("two GPUs: drift", f"{rate[0]:.2f} to {rate[1]:.2f} ppm; {clock.jumps} jumps; {len(others):,} other signals")
    assert wrong.sum() == 0 and len(others) >= 1_000_000 and clock.jumps == 0
    assert bound <= trip / 2


SCRIPT = """
import os, time
import torch, triton, triton.language as tl
import kscope
@triton.jit
def step(x):
    with kscope.region("add"):
        tl.store(x, tl.load(x) + 1)
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
x = torch.zeros(1, device="cuda")
for _ in range(20):
    step[(1,)](x)
    time.sleep(0.1)
torch.cuda.synchronize()
"""


def test_timers_of_ranks_that_kscope_starts_are_compared(tmp_path: Path, table: Table) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    printed = both(sys.executable, "-m", "kscope", "run", "--ranks", "run", "train.py", cwd=tmp_path)
    assert not any("not compared" in one for one in printed), printed
    found = gpus.read_all(gpus.captures(tmp_path / "run"))
    nothing = np.zeros(0, np.int64)
    placed = align(found, [nothing, nothing])[1].place(found[1].first)
    table("kscope run --ranks, two GPUs", f"\N{PLUS-MINUS SIGN}{placed.half.max():,.0f} ns over 2 s")
    assert placed.half.max() <= MOST_NS


LONG = """
import os, time
import torch, triton, triton.language as tl
import kscope
@triton.jit
def step(x):
    with kscope.region("add"):
        tl.store(x, tl.load(x) + 1)
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
x = torch.zeros(1, device="cuda")
step[(1,)](x)
torch.cuda.synchronize()
end, captured, replayed = time.monotonic() + 13, 0, 0
while time.monotonic() < end:  # a graph capture is in progress most of the time: comparisons fall into it
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(200):
            step[(1,)](x)
            time.sleep(0.002)
    before = float(x)
    graph.replay()
    torch.cuda.synchronize()
    captured, replayed = captured + 1, replayed + (float(x) == before + 200)
print("captured", captured, "right", replayed, flush=True)
assert captured == replayed > 10
"""


def test_gpus_are_compared_every_five_seconds_beside_graph_captures(tmp_path: Path, table: Table) -> None:
    (tmp_path / "train.py").write_text(LONG)
    printed = both(sys.executable, "-m", "kscope", "run", "--ranks", "run", "train.py", cwd=tmp_path)
    assert not any("not compared" in one for one in printed), printed
    found = gpus.read_all(gpus.captures(tmp_path / "run"))
    assert len(found[0].compared.peers) >= 4  # at both ends, and twice in 13 s
    nothing = np.zeros(0, np.int64)
    placed = align(found, [nothing, nothing])[1].place(found[1].first)
    bound = f"\N{PLUS-MINUS SIGN}{placed.half.max():,.0f} ns over 13 s"
    table("kscope run --ranks, compared every 5 s", f"{bound}, {len(found[0].compared.peers)} comparisons")
    assert placed.half.max() <= MOST_NS
    files = sorted((tmp_path / "run").glob("rank=*/train.parquet"))
    assert len(files) == 2, printed


BUSY = """
import os, time
import torch, triton, triton.language as tl
@triton.jit
def spin(x, ns):
    begin = kscope.globaltimer()
    while kscope.globaltimer() - begin < ns:
        pass
    tl.store(x + tl.program_id(0), 1)
import kscope
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
x = torch.zeros(1 << 16, device="cuda")
spin[(1,)](x, 1000)
torch.cuda.synchronize()
took = []
for _ in range(16):  # all SMs are full for a second: the comparisons wait, or are given up
    begin = time.monotonic()
    spin[(132 * 16,)](x, 500_000_000)
    torch.cuda.synchronize()
    took.append(time.monotonic() - begin)
print("longest", max(took), "usual", sorted(took)[8], flush=True)
"""


@pytest.mark.parametrize("connections", ["8", "1"])
def test_kernels_that_fill_the_gpu_go_on_beside_comparisons(connections: str, tmp_path: Path, table: Table) -> None:
    (tmp_path / "train.py").write_text(BUSY)
    command = (sys.executable, "-m", "kscope", "run", "--ranks", "run", "train.py")
    printed = both(*command, cwd=tmp_path, CUDA_DEVICE_MAX_CONNECTIONS=connections)
    line = next(one for text in printed for one in text.splitlines() if "longest" in one)
    table(f"kernels that fill the GPU, {connections} connections", line)
    longest, usual = map(float, line.split()[1::2])
    assert longest < 1.5 * usual  # a comparison waits 40 ms at most, and never for the kernel


@pytest.mark.parametrize("end", ["dist.barrier()", "dist.destroy_process_group()"])
def test_durations_are_gathered_with_nccl_or_after_it_with_gloo(end: str, tmp_path: Path, table: Table) -> None:
    pytest.importorskip("ddsketch")
    group = "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
    (tmp_path / "train.py").write_text(SCRIPT.replace("x = torch", f"{group}x = torch", 1) + f"dist.barrier()\n{end}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NCCL_NVLS_ENABLE": "0"}
    command = (sys.executable, "-m", "kscope", "run", "--ranks", "run", "--sketch", "train.py")
    printed = both(*command, cwd=tmp_path, **environment)
    line = next((one for one in printed[0].splitlines() if "sketches.jsonl" in one), "not gathered")
    table(f"sketches after {end}", line)
    [row] = sketches.spreads([tmp_path / "run" / sketches.FILE])
    assert (row.region, row.ranks, row.count) == ("add", 2, 2 * 20 * 4)  # four warps
