"""Device failures, each in its own process, because a broken context stays broken."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import kscope
import kscope_cuda

from .checks import python

FAULTS = {
    "illegal address": "k.outside[(64,)](out, 1 << 40, num_warps=4)",
    "trap": "k.trapping[(64,)](out, num_warps=4)",
    "assertion": "k.asserting[(64,)](out, num_warps=4, debug=True)",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_kernel_that_breaks_the_context_leaves_all_records_and_its_name(fault: str, tmp_path: Path) -> None:
    """Does not depend on the timing of drain passes. An illegal address may cancel earlier stores, too, of some warps
    or of all."""
    done = python(
        f"""
out = k.ints(64)
with kscope.profile(sys.argv[1]) as prof:
    for _ in range(1000):
        k.four[(64,)](out, num_warps=1)
        torch.cuda.synchronize()
    {FAULTS[fault]}
    torch.cuda.synchronize()
""",
        tmp_path / "run.kscope",
    )
    assert done.returncode == 1 and "CUDA error" in done.stderr, done.stderr
    trace = kscope.load(tmp_path / "run.failed.kscope")
    counts = {row.region: row.count for row in trace.summary().regions}
    assert sum(counts[name] for name in ("one", "two", "three", "four")) == 1000 * 64 * 4, trace.problems
    problems = {problem.kind: problem for problem in trace.problems}
    assert "CUDA_ERROR" in problems["driver"].text and "are in the capture" in problems["driver"].text
    if fault == "illegal address":
        lacking = ("unrecorded", "partial", "unfinished")
        assert {problem.kernel for problem in trace.problems if problem.kind in lacking} == {"outside"}
    else:
        assert problems["unfinished"].kernel in ("trapping", "asserting") and counts["before"] > 0
    assert not (tmp_path / "run.kscope").exists()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("fault", ["silent", "trapping", "outside"])
def test_a_fault_in_a_kernel_built_by_nvcc_is_named(fault: str, tmp_path: Path) -> None:
    """The host does not see its launches. `silent` claims no slab: its name is in the launch table alone."""
    command = ["nvcc", "-O3", "-std=c++17", *kscope_cuda.flags(), "-arch=native", "-shared", "-Xcompiler", "-fPIC"]
    command += [str(Path(__file__).with_name("faulty.cu")), "-o", str(tmp_path / "faulty.so")]
    subprocess.run(command, check=True)
    done = python(
        f"""
import ctypes, kscope_cuda
library = ctypes.CDLL(sys.argv[2])
kscope_cuda.arm(library)
out = k.ints(64)
with kscope.profile(sys.argv[1]):
    assert library.run(ctypes.c_void_p(out.data_ptr()), {["silent", "trapping", "outside"].index(fault)}) > 0
""",
        tmp_path / "run.kscope",
        tmp_path / "faulty.so",
    )
    found = list(tmp_path.glob("run*.kscope"))
    assert len(found) == 1, done.stderr
    trace = kscope.load(found[0])
    assert any("CUDA_ERROR" in one.text for one in trace.problems if one.kind == "driver"), done.stderr
    assert is_named(fault, trace), trace.problems
    assert {row.region: row.count for row in trace.summary().regions}["whole"] == 1000 * 64 * 4
    if fault == "silent":
        (problem,) = (one for one in trace.problems if one.kind == "unrecorded")
        assert problem.kernel == "silent" and "at least 1 of 1 launch left no record" in problem.text


def test_a_fault_in_a_kernel_of_the_cute_dsl_is_named(tmp_path: Path) -> None:
    """The host does not see its launches, and an illegal address may cancel all stores of its own."""
    pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")
    done = python(
        """
from gpu.cute_kernels import BLOCKS, THREADS, launch, launch_outside
import cutlass
from cuda.bindings import driver
from cutlass.cute.runtime import from_dlpack
x = torch.zeros(BLOCKS * THREADS, device="cuda")
stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
with kscope.profile(sys.argv[1]):
    for _ in range(100):
        launch(from_dlpack(x), cutlass.Int32(1), stream)
        torch.cuda.synchronize()
    launch_outside(from_dlpack(x), cutlass.Int32(1 << 30), stream)
    torch.cuda.synchronize()
""",
        tmp_path / "run.kscope",
    )
    assert done.returncode == 1 and "CUDA error" in done.stderr, done.stderr
    trace = kscope.load(tmp_path / "run.failed.kscope")
    assert is_named("outside", trace), trace.problems
    assert {row.region: row.count for row in trace.summary().regions}["all"] == 100 * 8 * 4


def is_named(kernel: str, trace: kscope.Trace) -> bool:
    """True if a problem names the kernel as that of a fault, or as one of those that it may be in."""
    kinds = ("unrecorded", "partial", "unfinished")
    found = [one for one in trace.problems if one.kind in kinds]
    assert {one.kernel for one in found} in ({kernel}, {None}), found
    return any(one.kernel == kernel or kernel in one.text.rpartition(": ")[2] for one in found)


def test_resetting_the_context_inside_a_session_is_a_problem_not_a_crash(tmp_path: Path) -> None:
    """cudaDeviceReset() frees the driver's memory, which the drain may be reading."""
    done = python(
        """
import ctypes, os
out = k.ints(64)
with kscope.profile(sys.argv[1]) as prof:
    for _ in range(10):
        k.four[(64,)](out, num_warps=4)
    torch.cuda.synchronize()
    print("drained", len(prof.trace), flush=True)
    assert ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxReset_v2(0) == 0
print("ended", sorted({problem.kind for problem in prof.trace.problems}), len(prof.trace), flush=True)
os._exit(0)  # torch does not end after a reset
""",
        tmp_path / "run.kscope",
    )
    assert done.returncode == 0 and f"drained {10 * 64 * 4 * 4}" in done.stdout, done.stderr
    assert f"'driver'] {10 * 64 * 4 * 4}" in done.stdout, done.stdout + done.stderr


def test_interrupting_a_hung_kernel_keeps_its_records(tmp_path: Path) -> None:
    """Ctrl-C (here: an alarm) while the session waits at its end; os._exit, for the kernel never ends."""
    done = python(
        """
import os, signal

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
out, flag = k.ints(4), k.ints(1)
try:
    with kscope.profile(sys.argv[1]) as prof:
        k.hang[(4,)](out, flag, num_warps=1)
        signal.alarm(5)
except KeyboardInterrupt:
    print("interrupted", prof.saved, flush=True)
print("records", len(prof.trace), flush=True)
os._exit(0)
""",
        tmp_path / "run.kscope",
    )
    path = tmp_path / "run.failed.kscope"
    assert f"interrupted {path}\nrecords 4" in done.stdout, done.stdout + done.stderr
    trace = kscope.load(path)
    assert len(trace) == 4 and "unfinished" in {problem.kind for problem in trace.problems}
    lifetimes = (trace.warps.last_tick - trace.warps.first_tick) * trace.warps.tick_ns
    assert lifetimes.min() > 4e9  # to the alarm, though the last record ended within microseconds


def test_terminating_a_process_that_waits_for_the_gpu_keeps_its_records(tmp_path: Path) -> None:
    """No handler in Python runs while the main thread is in torch.cuda.synchronize()."""
    done = python(
        """
import os, signal, threading, time

def terminate():
    time.sleep(3)
    os.kill(os.getpid(), signal.SIGTERM)

out, flag = k.ints(4), k.ints(1)
with kscope.profile(sys.argv[1]):
    k.hang[(4,)](out, flag, num_warps=1)
    threading.Thread(target=terminate, daemon=True).start()
    torch.cuda.synchronize()
""",
        tmp_path / "run.kscope",
    )
    path = tmp_path / "run.failed.kscope"
    assert done.returncode == -signal.SIGTERM, done.stdout + done.stderr
    assert f"kscope: terminated; the recording up to then is in {path}" in done.stderr
    trace = kscope.load(path)
    assert len(trace) == 4 and "unfinished" in {problem.kind for problem in trace.problems}
    assert not (tmp_path / "run.kscope").exists()


def test_a_process_that_forks_after_arming_is_reported() -> None:
    done = python(
        """
import os
out = k.ints(4)
with kscope.profile() as prof:
    k.four[(4,)](out, num_warps=1)
    torch.cuda.synchronize()
    if (child := os.fork()) == 0:
        try:
            kscope.profile().__enter__()
        except kscope.UsageError as error:
            print("child:", error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
assert len(prof.trace) == 16
"""
    )
    assert done.returncode == 0, done.stderr
    assert "child: kscope.profile(): this process was forked" in done.stdout


def test_a_process_that_is_prepared_by_its_environment_compiles_a_kernel_once() -> None:
    done = python(
        """
out = k.ints(4)
k.four[(4,)](out, num_warps=1)  # the plain form
forms, counts = set(), []
for _ in range(2):
    with kscope.profile() as prof:
        forms.add(k.four[(4,)](out, num_warps=1))
    counts.append(len(prof.trace))
assert len(forms) == 1 and counts == [16, 16], (forms, counts)
""",
        KSCOPE="1",
    )
    assert done.returncode == 0, done.stderr
