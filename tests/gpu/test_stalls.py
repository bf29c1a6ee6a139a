"""Samples of stalls on a GPU: shares and reasons of known work, kernels without marks, and other profilers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kscope
from kscope.analysis.samples.crosscheck import crosscheck
from kscope.analysis.samples.stalls import StallRow, stalls
from kscope.capture.samples import Samples
from kscope.trace import Trace

from .checks import doubts, run, sync

cupy = pytest.importorskip("cupy")
Table = Callable[[str, str], None]

BLOCKS, THREADS, TURNS, LAUNCHES = 264, 256, 64, 25
SOURCE = r"""
#include <kscope.cuh>
// Loads that depend on each other, arithmetic, and a barrier that one warp is late for.
extern "C" __global__ void work(const int* chain, float* out, int turns) {
    KSCOPE_KERNEL();
    float a = threadIdx.x;
    int p = (threadIdx.x * 33 + blockIdx.x * 977) & 0xfffff;
    for (int i = 0; i < turns; i++) {
        {
            KSCOPE_REGION("load");
            for (int k = 0; k < 4; k++)
                asm volatile("ld.global.u32 %0, [%1];" : "=r"(p) : "l"(chain + p) : "memory");
            if (p == -1) out[0] = 1;
        }
        {
            KSCOPE_REGION("math");
#pragma unroll 16
            for (int k = 0; k < 256; k++)
                asm volatile("fma.rn.f32 %0, %0, 0f3F800347, 0f3F000000;" : "+f"(a) :: "memory");
        }
        {
            KSCOPE_REGION("barrier");
            if (threadIdx.x < 32)
                for (int k = 0; k < 256; k++)
                    asm volatile("fma.rn.f32 %0, %0, 0f3F800347, 0f3F000000;" : "+f"(a) :: "memory");
            __syncthreads();
        }
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = a + p;
}
"""
UNMARKED = r"""
extern "C" __global__ void plain(float* out, int turns) {
    float a = threadIdx.x;
    for (int i = 0; i < turns; i++)
        asm volatile("fma.rn.f32 %0, %0, 0f3F800347, 0f3F000000;" : "+f"(a));
    out[blockIdx.x * blockDim.x + threadIdx.x] = a;
}
"""


class Job:
    """The kernel with three regions, and its data."""

    def __init__(self) -> None:
        options = ("-I" + kscope.cuda_include(), "-lineinfo")
        self.kernel = cupy.RawKernel(SOURCE, "work", options)
        index = cupy.arange(1 << 20, dtype=cupy.uint32)
        self.chain = ((index * 1103515245 + 12345) & 0xFFFFF).astype(cupy.int32)
        self.out = cupy.zeros(BLOCKS * THREADS, cupy.float32)

    def launch(self, times: int = LAUNCHES) -> None:
        for _ in range(times):
            self.kernel((BLOCKS,), (THREADS,), (self.chain, self.out, TURNS))


def sampled(trace: Trace) -> Samples:
    """The samples; the reason if there are none."""
    assert trace.samples is not None, [problem.text for problem in trace.problems]
    assert len(trace.samples), [problem.text for problem in trace.problems]
    return trace.samples


def by_region(samples: Samples, kernel: str) -> dict[str, StallRow]:
    return {row.name: row for row in stalls(samples).rows if row.kernel == kernel}


def output(folder: Path, job: str, *command: str) -> str:
    """What a program prints, run in a new process by `python command`."""
    (folder / "job.py").write_text(job)
    done = run([sys.executable, *command], cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


AFTER_TRITON = "-c", "import triton; exec(open('job.py').read())"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trace]:
    """The kernel with marks and samples in one session."""
    path = tmp_path_factory.mktemp("stalls") / "work.kscope"
    job = Job()
    with kscope.profile(path, stalls=True, pool=256 << 20) as prof:
        job.launch()
        cupy.cuda.Device().synchronize()
    return path, prof.trace


def test_samples_of_the_marked_kernel_have_its_code(recorded: tuple[Path, Trace], table: Table) -> None:
    _, trace = recorded
    samples = sampled(trace)
    [function] = [one for one in samples.functions if one.name == "work"]
    assert function.why_unknown == "" and function.kernel in {launch.kernel_id for launch in trace.launches}
    assert {region.name for region in function.regions} == {"load", "math", "barrier"} and not function.unresolved
    assert samples.dropped == 0 and samples.full == 0
    count = f"{len(samples):,}, {len(samples.reasons)} reasons, {samples.elsewhere:,} elsewhere"
    table(f"samples of {LAUNCHES} launches", count)
    table("reasons", ", ".join(samples.reasons))


def test_shares_by_samples_and_by_clocks_agree_within_a_point(recorded: tuple[Path, Trace], table: Table) -> None:
    _, trace = recorded
    found = crosscheck(trace, sampled(trace))
    assert not found.problems, found.problems
    for row in found.rows:
        table(
            f"{row.region}: by clocks, by samples",
            f"{row.clocks:.2%}, {row.samples:.2%} +- {row.margin:.2%}, {row.count:,} samples, {row.verdict}",
        )
    assert {row.region for row in found.rows} == {"load", "math", "barrier"}
    assert {row.region: row.verdict for row in found.rows if abs(row.clocks - row.samples) > 0.01} == {}


def test_reasons_are_those_of_the_work(recorded: tuple[Path, Trace], table: Table) -> None:
    _, trace = recorded
    rows = by_region(sampled(trace), "work")
    for name, row in rows.items():
        reasons = ", ".join(f"{key} {count / row.samples:.1%}" for key, count in row.reasons.items())
        table(f"{name}: {row.samples:,} samples", reasons)
    assert next(iter(rows["load"].reasons)) == "long_scoreboard"
    assert next(iter(rows["math"].reasons)) in ("wait", "math_pipe_throttle", "not_selected")


def test_every_command_reads_the_capture(recorded: tuple[Path, Trace], tmp_path: Path) -> None:
    path, _ = recorded
    page = str(tmp_path / "x.html")
    lines = ("stalls", "stalls --by line", "stalls --by instruction --json", "crosscheck", "annotate", "summary")
    for arguments in (*map(str.split, lines), ["annotate", "-o", page]):
        command, *rest = arguments
        done = run([sys.executable, "-m", "kscope", command, str(path), *rest])
        assert done.returncode == 0, (arguments, done.stdout[-2000:], done.stderr)
    assert "KSCOPE_REGION" in Path(page).read_text()


LIBRARIES = {
    "cuBLAS": (
        "a = torch.randn(4096, 4096, device='cuda', dtype=torch.float16)\nfor _ in range(20): a @ a\n",
        ("gemm", "nvjet", "xmma", "cutlass"),
    ),
    "FlashAttention": (
        "q = torch.randn(4, 16, 2048, 128, device='cuda', dtype=torch.float16)\n"
        "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):\n"
        "    for _ in range(20): torch.nn.functional.scaled_dot_product_attention(q, q, q)\n",
        ("flash",),
    ),
}
"""Programs that spend their time in a library's kernel, and what its name contains."""


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_s_kernel_is_sampled_without_marks(library: str, tmp_path: Path, table: Table) -> None:
    program, names = LIBRARIES[library]
    (tmp_path / "job.py").write_text(f"import torch, torch.nn.attention\n{program}torch.cuda.synchronize()\n")
    done = run([sys.executable, "-m", "kscope", "sample", "job.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    samples = kscope.load(tmp_path / "job.kscope").samples
    assert samples is not None and len(samples) > 1000
    top = stalls(samples, "kernel").rows[0]
    code = [row for row in stalls(samples, "instruction").rows if row.kernel == top.name]
    table(f"kscope sample, {library}", f"{top.samples:,} samples of {top.name[:80]}: {code[0].name}")
    assert top.share > 0.5 and any(word in top.name for word in names)
    assert not [one.why_unknown for one in samples.functions if one.name == top.name and one.why_unknown]


def test_a_kernel_that_was_loaded_before_the_session_is_sampled(table: Table) -> None:
    kernel, out = cupy.RawKernel(UNMARKED, "plain"), cupy.zeros(BLOCKS * THREADS, cupy.float32)
    kernel((BLOCKS,), (THREADS,), (out, 10))
    cupy.cuda.Device().synchronize()
    with kscope.profile(stalls=True) as prof:
        for _ in range(50):
            kernel((BLOCKS,), (THREADS,), (out, 100_000))
        cupy.cuda.Device().synchronize()
    samples = sampled(prof.trace)
    [function] = [one for one in samples.functions if one.name == "plain"]
    table("code of a kernel that was loaded before", function.why_unknown or f"{len(function.at)} instructions")
    rows = [row for row in stalls(samples, "kernel").rows if row.name == "plain"]
    assert rows[0].samples > 1000


def test_a_pause_and_a_second_session(table: Table) -> None:
    job = Job()
    with kscope.profile(stalls=True) as prof:
        job.launch(10)
        sync()
        with prof.paused():
            job.launch(50)
            sync()
    first = len(sampled(prof.trace))
    with kscope.profile(stalls=True) as prof:
        job.launch(60)
        sync()
    second = len(sampled(prof.trace))
    table("samples of 10 launches with a pause of 50, and of 60", f"{first:,}, {second:,}")
    assert 0 < first < second / 3
    assert not doubts(prof.trace)


def test_torch_s_profiler_is_named(tmp_path: Path) -> None:
    shown = output(
        tmp_path,
        "import torch, kscope\n"
        "a = torch.randn(512, 512, device='cuda')\n"
        "with torch.profiler.profile():\n"
        "    with kscope.profile(stalls=True) as prof: a @ a\n"
        "print([one.text for one in prof.capture.problems if one.kind == 'unsampled'])\n",
        *AFTER_TRITON,
    )
    assert "torch.profiler profiles this process" in shown


def test_a_session_after_torch_s_profiler_knows_kernels_and_torch_s_profiler_works_after_it(tmp_path: Path) -> None:
    shown = output(
        tmp_path,
        "import torch, kscope\n"
        "a = torch.randn(2048, 2048, device='cuda', dtype=torch.float16)\n"
        "def by_torch():\n"
        "    with torch.profiler.profile() as prof: a @ a; torch.cuda.synchronize()\n"
        "    return sorted(e.key for e in prof.key_averages() if any(w in e.key for w in ('nvjet', 'gemm')))\n"
        "print(by_torch())\n"
        "with kscope.profile(stalls=True) as prof:\n"
        "    for _ in range(20): a @ a\n"
        "samples = prof.capture.samples\n"
        "print(sorted({one.name for one in samples.functions}), len(samples), samples.elsewhere)\n"
        "print([one.text for one in prof.capture.problems])\n"
        "print(by_torch())\n",
        *AFTER_TRITON,
    )
    before, found, problems, after = shown.splitlines()
    assert before == after != "[]", shown
    assert found.startswith(before[:-1]), shown
    assert "without a name" not in problems


def test_a_triton_kernel_from_before_the_first_session_has_its_regions(tmp_path: Path, table: Table) -> None:
    shown = output(
        tmp_path,
        "import torch, triton, triton.language as tl, kscope\n"
        "@triton.jit\n"
        "def work(x, n):\n"
        "    at = tl.program_id(0) * 256 + tl.arange(0, 256)\n"
        "    total = tl.zeros((256,), tl.float32)\n"
        "    for i in range(n):\n"
        "        with kscope.region('load'):\n"
        "            total += tl.load(x + (at + i * 4096) % 1048576)\n"
        "        with kscope.region('sum'):\n"
        "            total = tl.exp(tl.sin(total))\n"
        "    tl.store(x + at, total)\n"
        "x = torch.zeros(1 << 20, device='cuda')\n"
        "kscope.enable()\n"
        "work[(528,)](x, 10)\n"
        "torch.cuda.synchronize()\n"
        "with kscope.profile(stalls=True) as prof:\n"
        "    for _ in range(20): work[(528,)](x, 100)\n"
        "[one] = [one for one in prof.capture.samples.functions if one.name == 'work']\n"
        "print(len(one.at), sorted(region.name for region in one.regions), one.why_unknown)\n"
        "print(prof.trace.crosscheck())\n",
        "job.py",
    )
    table("a Triton kernel from before the first session", shown)
    assert "['load', 'sum']" in shown


def test_samples_are_read_while_kernels_run_and_timelines_show_when(tmp_path: Path, table: Table) -> None:
    job, ran = Job(), list[tuple[int, int]]()
    # all blocks are sampled, so rarely that the hardware's buffer has room
    with kscope.profile(tmp_path / "times.kscope", stalls=True, period=1 << 14, block="0:2") as prof:
        for _ in range(4):  # with pauses in which nothing is sampled
            begin = time.time_ns()
            job.launch(500)
            cupy.cuda.Device().synchronize()
            ran.append((begin, time.time_ns()))
            time.sleep(0.3)
    samples = sampled(prof.trace)
    windows = samples.windows
    assert int(windows["count"].sum()) == len(samples)
    if samples.full:
        pytest.skip("the hardware's buffer was full, so bursts may have no samples")
    spans = sorted({(row["begin"], row["end"]) for row in windows})
    held = [sum(begin < last and first < end for first, last in ran) for begin, end in spans]
    inside = [sum(begin < last and first < end for begin, end in spans) for first, last in ran]
    late = [(max(end for begin, end in spans if begin < last and first < end) - last) / 1e6 for first, last in ran]
    read = f"read {min(late):.0f} to {max(late):.0f} ms after their ends"
    held_by = f"bursts in each window: {[*map(int, held)]}; windows of each burst: {[*map(int, inside)]}"

    def share(after_ns: int) -> float:
        """The share of samples in windows that begin before a burst ends, or up to this long after."""
        found = (
            int(row["count"]) for row in windows if any(a < row["end"] and row["begin"] < b + after_ns for a, b in ran)
        )
        return sum(found) / len(samples)

    known = f"{share(0):.0%} of the samples in windows that begin before a burst ends"
    table("samples over time", f"{len(spans)} windows for {len(ran)} bursts, {read}; {held_by}; {known}")
    # a burst's last samples are read in the windows behind it, in the first half of the pause
    assert min(inside) >= 1 and share(150_000_000) > 0.9, (known, held_by, read)
    assert max(held) < len(ran) or len(spans) == 1  # of a library that delivers only at the end
    prof.trace.export(tmp_path / "times.pftrace", limit=100_000)
    data = (tmp_path / "times.pftrace").read_bytes()
    assert b"stall samples: work" in data and b"samples per us" in data
