"""Unannotated kernels on a GPU: unchanged results, regions at the selected lines, and the cost.

Each kernel is one of Triton's tutorials (tests/unannotated.py) or compiled by torch.compile from plain torch.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kscope

from .checks import CLOCKS, doubts, run, sync

Table = Callable[[str, str], None]


@pytest.fixture
def u() -> ModuleType:
    """The kernels' module, imported late because Triton may be missing."""
    import unannotated

    return unannotated


def counts(trace: kscope.Trace) -> Counter[str]:
    """Records by region."""
    return Counter({region.name: len(trace.filter(region=region.name)) for region in trace.regions if region.known})


def microseconds(launch: Callable[[], object], times: int = 20) -> float:
    """Median time of a launch that is in the caches."""
    import torch

    launch()
    found = []
    for _ in range(times):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        launch()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) * 1e3)
    return sorted(found)[times // 2]


def recorded(
    name: str, launch: Callable[[], Any], check: Callable[[], None], table: Table, **requested: Any
) -> kscope.Trace:
    """Launch plain, recorded and plain again; check each result, and add the cost of recording to the table."""
    plain = microseconds(launch)
    check()
    with kscope.profile(**requested) as prof:
        launch()  # compiles
        sync()
        prof.reset()
        launch()
    check()
    kscope.enable(**requested)
    with kscope.profile():
        armed = microseconds(launch)
    kscope.disable()
    again = microseconds(launch)
    check()
    table(f"auto: {name}", f"{plain:.1f} us plain, {armed:.1f} us recorded, {again:.1f} us plain again")
    assert not doubts(prof.trace)
    assert len(prof.trace.launches) == 1
    return prof.trace


def where(trace: kscope.Trace) -> dict[str, str]:
    """The source lines of the regions."""
    return {region.name: str(region.where) for region in trace.regions if region.known}


def sm90() -> None:
    import torch

    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("the counts are those of sm_90's code")


def test_the_tutorials_matmul(u: ModuleType, table: Table) -> None:
    import torch

    sm90()
    size, case = 512, u.CASES["matmul"]
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.zeros_like(a)
    blocks, turns = size // 64 * (size // 128), size // 64

    def launch() -> None:
        u.matmul[(blocks,)](
            a, b, c, size, size, size, size, size, size, BM=64, BN=128, BK=64, GROUP=8, num_warps=4, num_stages=3
        )

    def check() -> None:
        torch.testing.assert_close(c, a @ b, atol=0.1, rtol=1e-2)
        c.zero_()

    trace = recorded("matmul 512^3, 12 places", launch, check, table, auto=True)
    line = {what: case.line(what) for what in ("the loop", "load a", "load b", "the dot", "the store")}
    found = counts(trace)
    assert found[f"dot {u.FILE}:{line['the dot']}"] == blocks * 4 * turns
    assert found[f"loop {u.FILE}:{line['the loop']}"] == found[f"store {u.FILE}:{line['the store']}"] == blocks * 4
    assert found[f"load {u.FILE}:{line['load a']}"] == blocks * 4 * (turns + 2)  # two tiles before the loop
    assert where(trace) == {name: f"{u.PATH}:{name.rpartition(':')[2]}" for name in found}
    for region in ("dot", "load", "wait"):
        inside = trace.filter(region=f"{region} *")
        loop = trace.filter(region=f"loop {u.FILE}:{line['the loop']}")
        assert inside.start_ns.min() < loop.start_ns.max() + loop.dur_ns.max()


def test_lines_of_the_tutorials_softmax(u: ModuleType, table: Table) -> None:
    import torch

    case, rows, columns, programs = u.CASES["softmax"], 512, 1000, 128
    x = torch.randn(rows, columns, device="cuda")
    out = torch.zeros_like(x)

    def launch() -> None:
        u.softmax[(programs,)](out, x, x.stride(0), rows, columns, BLOCK=1024, STAGES=2, num_warps=4)

    def check() -> None:
        torch.testing.assert_close(out, torch.softmax(x, 1))
        out.zero_()

    regions = {
        "rows": f"{u.FILE}:{case.line('the loop')}-{case.line('the store')}",
        "max": f"{u.FILE}:{case.line('the maximum')}",
        "exp": f"{u.FILE}:{case.line('the exponential')}-{case.line('the sum')}",
    }
    trace = recorded("softmax 512 x 1000, 3 ranges of lines", launch, check, table, mark=regions)
    found = counts(trace)
    assert found["rows"] == programs * 4
    assert found["max"] == found["exp"] == rows * 4
    inside = trace.filter(region=["max", "exp"]).dur_ns.sum()
    assert 0 < inside < trace.filter(region="rows").dur_ns.sum()
    assert where(trace)["max"] == f"{u.PATH}:{case.line('the maximum')}"


def test_the_tutorials_layer_norm(u: ModuleType, table: Table) -> None:
    import torch

    case, rows, width, block = u.CASES["layer_norm"], 256, 2048, 1024
    x = torch.randn(rows, width, device="cuda")
    weight, bias = torch.randn(width, device="cuda"), torch.randn(width, device="cuda")
    out = torch.zeros_like(x)

    def launch() -> None:
        u.layer_norm[(rows,)](x, out, weight, bias, width, 1e-5, BLOCK=block, num_warps=4)

    def check() -> None:
        torch.testing.assert_close(out, torch.nn.functional.layer_norm(x, (width,), weight, bias, 1e-5))
        out.zero_()

    mean = f"mean={u.FILE}:{case.line('the mean')}"
    trace = recorded("layer norm 256 x 2048", launch, check, table, auto="load,store,loops", mark=mean)
    found, turns = counts(trace), width // block
    assert found["mean"] == rows * 4
    assert found[f"store {u.FILE}:{case.line('the store')}"] == rows * 4 * turns
    load, loop = (case.line(f"the helper's {what}", u.moment) for what in ("load", "loop"))
    assert found[f"load {u.FILE}:{load}"] == rows * 4 * turns * 2
    assert found[f"loop {u.FILE}:{loop}"] == rows * 4 * 2


def _allocated(size: int, alignment: int, stream: int | None) -> Any:
    """Where Triton keeps the descriptors that a kernel makes."""
    import torch

    return torch.empty(size, device="cuda", dtype=torch.int8)


def descriptors(u: ModuleType) -> tuple[Callable[[], None], Callable[[], None], int, int]:
    """A launch of the specialized matmul, a check of its result, blocks and turns of its loop."""
    import torch
    import triton

    size = 512
    triton.set_allocator(_allocated)
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.zeros_like(a)

    def launch() -> None:
        u.specialized[size // 128, size // 128](a, b, c, size, size, size, BM=128, BN=128, BK=64, num_warps=4)

    def check() -> None:
        torch.testing.assert_close(c, a @ b.T, atol=0.1, rtol=1e-2)
        c.zero_()

    return launch, check, (size // 128) ** 2, size // 64


def test_automatic_warp_specialization_on_hopper(u: ModuleType, table: Table) -> None:
    sm90()
    launch, check, blocks, turns = descriptors(u)
    trace = recorded("warp-specialized matmul 512^3", launch, check, table, auto=True)
    case, found = u.CASES["specialized"], counts(trace)
    dot, load = (f"{kind} {u.FILE}:{case.line(what)}" for kind, what in (("dot", "the dot"), ("load", "load b")))
    assert found[dot] == blocks * 8 * turns  # two groups of four warps
    assert found[load] == blocks * 4 * turns
    assert found[f"loop {u.FILE}:{case.line('the loop')}"] == blocks * 12
    consumers, producers = (set(trace.filter(region=name).warp.tolist()) for name in (dot, load))
    assert (len(consumers), len(producers)) == (8, 4)
    assert not consumers & producers


def test_lines_of_a_warp_specialized_loop(u: ModuleType, table: Table) -> None:
    sm90()
    launch, check, blocks, turns = descriptors(u)
    case = u.CASES["specialized"]
    regions = [
        f"load={u.FILE}:{case.line('load a')}-{case.line('load b')}",
        f"dot={u.FILE}:{case.line('the dot')}",
    ]
    trace = recorded("the same, 2 ranges of lines", launch, check, table, mark=regions)
    found = counts(trace)
    assert set(found) == {"load", "dot"}
    assert found["dot"] >= blocks * 8 * turns
    assert len(set(trace.filter(region="load").warp.tolist())) == 12  # its issue in one group, its wait in the others


def test_annotations_dropped_by_the_compiler_are_restored() -> None:
    import torch
    import triton

    from . import triton_kernels

    kernel: Any = triton_kernels.specialized_by_triton
    sm90()
    size = 256
    triton.set_allocator(_allocated)
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.zeros_like(a)
    with pytest.warns(UserWarning, match="kscope restored them"), kscope.profile() as prof:
        kernel[2, 2](a, b, c, size, size, size, BM=128, BN=128, BK=64, num_warps=4)
    torch.testing.assert_close(c, a @ b.T, atol=0.1, rtol=1e-2)
    assert {problem.kind for problem in prof.trace.problems} - CLOCKS == {"moved"}
    found = counts(prof.trace)
    assert found["dot"] >= 4 * 8 * (size // 64)
    assert found["load"] > 0


JOB = """
import torch, sys
from torch.nn.attention.flex_attention import flex_attention

torch.manual_seed(0)

class Block(torch.nn.Module):
    def __init__(self, width=256, heads=4):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(flex_attention(q, k, v).transpose(1, 2).flatten(-2))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))

block = Block().cuda().half().eval()
x = torch.randn(2, 256, 256, device="cuda", dtype=torch.float16)
with torch.no_grad():
    result = torch.compile(block)(x)
    torch.cuda.synchronize()
torch.save(result.cpu(), sys.argv[1])
"""


def test_a_compiled_attention_and_mlp_block(tmp_path: Path, table: Table) -> None:
    """Inductor has workers, as by default; the script is recorded, then plain and listed, from one folder of caches."""
    import torch

    (tmp_path / "job.py").write_text(JOB)
    command = {
        "auto": [sys.executable, "-m", "kscope", "run", "--auto", "-o", "auto.kscope", "job.py"],
        "plain": [sys.executable, "job.py"],
        "dry": [sys.executable, "-m", "kscope", "run", "--auto", "--dry-run", "job.py"],
    }
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TRITON_CACHE_DIR": str(tmp_path / "cache" / "t")}

    def process(name: str) -> tuple[str, str]:
        words = [*command[name], f"{name}.pt"]
        done = run(words, cwd=tmp_path, timeout=300, TORCHINDUCTOR_COMPILE_THREADS="4", **caches)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    process("auto")
    with ThreadPoolExecutor(2) as pool:
        _, (listing, complaints) = pool.map(process, ("plain", "dry"))
    plain, auto, dry = (torch.load(tmp_path / f"{name}.pt") for name in ("plain", "auto", "dry"))
    for other in (auto, dry):
        torch.testing.assert_close(other, plain, atol=2e-2, rtol=2e-2)
    trace = kscope.load(tmp_path / "auto.kscope")
    kernels = {launch.kernel for launch in trace.launches}
    assert any("tem_fused" in kernel for kernel in kernels), kernels  # attention
    assert any("per_fused" in kernel or "red_fused" in kernel for kernel in kernels), kernels  # the norms
    kinds = {region.name.partition(" ")[0] for region in trace.regions if region.known}
    assert {"load", "store", "dot"} <= kinds
    listed = set(re.findall(r"^(triton_\w+) \(triton", listing, re.M))
    compiled = {
        name: [
            str(path.relative_to(tmp_path)) for path in (tmp_path / "cache").rglob("*.py") if name in path.read_text()
        ]
        for name in kernels - listed
    }
    assert not compiled, f"launched, and not listed: {compiled}\n{listing}\n{complaints[-4000:]}"
    table("auto: compiled attention and MLP", f"{len(kernels)} kernels, {len(trace)} records")


STEPS = 20
TRAINING = """
import json, sys, time, torch, kscope

class Block(torch.nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 8, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))

def trained(steps):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Block() for _ in range(4))).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(8, 512, 512, device="cuda")

    @torch.compile
    def loss(x):
        return model(x).square().mean()

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            found = loss(x)
        found.backward()
        optimizer.step()
        return found.item()

    first = [step() for _ in range(3)]
    begin = time.perf_counter()
    return first + [step() for _ in range(steps)], (time.perf_counter() - begin) / steps

steps = int(sys.argv[2])
plain, plain_s = trained(steps)
torch.compiler.reset()
kscope.enable(auto=True)
rest, rest_s = trained(steps)
with kscope.profile(sys.argv[1], auto=True) as prof:
    recorded, recorded_s = trained(steps)
kscope.disable()
print(json.dumps([plain, rest, recorded, plain_s, rest_s, recorded_s]))
"""


def test_a_compiled_training_step_loses_no_warp(tmp_path: Path, table: Table) -> None:
    """Forward and backward kernels of Inductor, launched as fast as the host can, with the default pool."""
    (tmp_path / "train.py").write_text(TRAINING)
    done = run([sys.executable, "train.py", "train.kscope", str(STEPS)], cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr
    plain, rest, recorded, *seconds = json.loads(done.stdout.splitlines()[-1])
    trace = kscope.load(tmp_path / "train.kscope")
    kinds = Counter(problem.kind for problem in trace.problems)
    times = ", ".join(
        f"{1e3 * each:.1f} ms {how}" for each, how in zip(seconds, ("plain", "at rest", "recording"), strict=True)
    )
    table("a compiled training step, auto=True", times)
    warps = f"{len(trace.warps):,} warps of {len(trace.launches):,} launches"
    table("  its recording", f"{warps}, {len(trace):,} records; problems {dict(kinds)}")
    for losses in (rest, recorded):  # later ones differ: sums of gradients are in another order in each run
        first = zip(losses[:3], plain[:3], strict=True)
        assert all(abs(one - other) <= 0.02 * abs(other) for one, other in first), (plain, losses)
    assert not kinds.keys() & {"lost", "partial", "unrecorded", "drain"}, trace.problems
    assert sum(launch.missing for launch in trace.launches) == 0 and trace.lost_launches == ()
    assert len(trace.launches) >= STEPS
