"""Everything that a long day does to a profiler: nothing lost that is not counted, nothing changed that is the user's.

Overwritten rings, pools that are too small, 10^5 launches and 10^6 blocks are in test_recording.py and test_volume.py;
hangs and contexts that break in test_failures.py; compute-sanitizer in test_sanitizer.py.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import nvcc
import pytest

import kscope

from .checks import CLOCKS, ROOT, doubts, python, sync

Table = Callable[[str, str], None]


@pytest.fixture
def k() -> ModuleType:
    from . import kernels

    return kernels


@pytest.fixture
def t() -> ModuleType:
    pytest.importorskip("cupy")
    from . import torture_sources

    return torture_sources


def lost(prof: Any) -> int:
    """Lanes that found no room."""
    return sum(device.lost for device in prof.capture.devices)


def kinds(trace: kscope.Trace) -> set[str]:
    return {problem.kind for problem in trace.problems} - CLOCKS


def test_pools_of_one_slab_count_every_lane_that_found_no_room(k: ModuleType, table: Table) -> None:
    """Each SM has a ring of 4096 bytes; a slab of 128 records takes 2176 of them."""
    import torch

    from kscope_runtime.pool import least

    blocks, launches = 264, 100
    pool = least(torch.cuda.get_device_properties(0).multi_processor_count)
    out = k.ints(blocks)
    with kscope.profile(pool=pool, records=128) as prof:
        for _ in range(launches):
            k.loop[(blocks,)](out, 9, num_warps=1)
    trace = prof.trace
    assert len(trace.warps) + lost(prof) == blocks * launches
    assert len(trace) == 10 * len(trace.warps) and trace.warps.finished.all()
    assert kinds(trace) <= {"lost", "partial", "unrecorded"}
    gone = sum(kernel.count for kernel in trace.lost_launches)
    assert gone == launches - len(trace.launches)
    assert sum(launch.missing for launch in trace.launches) + gone * blocks == lost(prof)
    assert bool((out == 8).all())
    table("pool of one slab per SM", f"{len(trace.warps):,} of {blocks * launches:,} lanes recorded, the rest counted")


def test_graph_replays_that_outrun_the_drain_are_counted(k: ModuleType, table: Table) -> None:
    import torch

    blocks, replays = 264, 3000
    out = k.ints(blocks)
    kscope.enable()
    k.four[(blocks,)](out, num_warps=4)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        k.four[(blocks,)](out, num_warps=4)
    with kscope.profile(pool=16 << 20) as prof:
        for _ in range(replays):
            graph.replay()
    trace = prof.trace
    assert len(trace.warps) + lost(prof) == blocks * 4 * replays
    assert len(trace) == k.RECORDS * len(trace.warps) and trace.warps.finished.all()
    (count,) = prof.capture.launches.values()
    assert (count.direct, count.replayed) == (0, replays)
    gone = sum(kernel.count for kernel in trace.lost_launches)
    assert gone + sum(launch.missing for launch in trace.launches) <= lost(prof)
    table("3,000 graph replays, pool of 16 MiB", f"{lost(prof):,} of {blocks * 4 * replays:,} lanes lost, all counted")


def test_16_streams_share_a_pool_that_is_too_small(k: ModuleType) -> None:
    import torch

    streams = [torch.cuda.Stream() for _ in range(16)]
    outs = [k.ints(200) for _ in streams]
    sync()
    with kscope.profile(pool=2 << 20) as prof:
        for _ in range(50):
            for stream, out in zip(streams, outs, strict=True):
                with torch.cuda.stream(stream):
                    k.four[(200,)](out, num_warps=4)
    trace = prof.trace
    assert len(trace.warps) + lost(prof) == 16 * 50 * 200 * 4
    assert len(trace) == k.RECORDS * len(trace.warps)
    assert all(bool((out == 4).all()) for out in outs)


def test_recording_is_toggled_1000_times_between_launches(k: ModuleType) -> None:
    out = k.ints(8)
    with kscope.profile() as prof:
        for _ in range(1000):
            k.other[(8,)](out, num_warps=1)
            sync()
            with prof.paused():
                k.other[(8,)](out, num_warps=1)
                sync()
    trace = prof.trace
    assert not doubts(trace)
    assert len(trace.launches) == 1000 and len(trace) == 8000


def test_recording_is_toggled_1000_times_under_running_kernels(k: ModuleType, table: Table) -> None:
    out, stop = k.ints(132), threading.Event()
    kscope.enable()

    def launch() -> None:
        while not stop.is_set():
            k.four[(132,)](out, num_warps=4)
            sync()

    thread = threading.Thread(target=launch)
    with kscope.profile() as prof:
        recorded = k.four[(132,)](out, num_warps=4)
        thread.start()
        try:
            for _ in range(1000):
                with prof.paused():
                    pass
        finally:
            stop.set()
            thread.join()
        assert k.four[(132,)](out, num_warps=4) is recorded
    trace = prof.trace
    assert kinds(trace) <= {"partial", "unidentified"}
    assert trace.warps.finished.all() and len(trace) == k.RECORDS * len(trace.warps)
    table("1,000 pauses over running kernels", f"{len(trace.launches)} launches seen, whole warps all of them")


def test_sessions_begin_and_end_200_times(k: ModuleType) -> None:
    out = k.ints(16)
    kscope.enable()
    forms = set()
    for _ in range(200):
        with kscope.profile() as prof:
            forms.add(k.four[(16,)](out, num_warps=2))
        assert not doubts(prof.trace) and len(prof.trace) == 16 * 2 * k.RECORDS
    assert len(forms) == 1


def test_blocks_warps_and_lanes_that_leave_early_are_whole(t: ModuleType) -> None:
    import cupy

    out, blocks = cupy.zeros(1, cupy.int32), 999
    with kscope.profile() as prof:
        t.kernel(t.EARLY, "early")((blocks,), (128,), (out,))
    trace = prof.trace
    assert not doubts(trace) and trace.warps.finished.all()
    assert len(trace.filter(region="first")) == 666 * 3
    assert len(trace.filter(region="second")) == 333 * 3
    assert int(out[0]) == 666 * 96 + 333 * 48


@pytest.mark.parametrize("ns", [50_000, 300_000_000], ids=["after 50 us", "by its own watchdog"])
def test_a_kernel_that_traps_leaves_all_records_and_its_name(ns: int, t: ModuleType, tmp_path: Path) -> None:
    done = python(
        """
import cupy
from gpu import torture_sources as t
out = k.ints(64)
sign = cupy.zeros(65, cupy.int32)
with kscope.profile(sys.argv[1]) as prof:
    for _ in range(100):
        k.four[(64,)](out, num_warps=4)
    torch.cuda.synchronize()
    t.kernel(t.TRAPPED, "trapped")((64,), (128,), (sign, int(sys.argv[2])))
    cupy.cuda.Device().synchronize()
""",
        tmp_path / "run.kscope",
        ns,
    )
    assert done.returncode != 0, done.stdout
    trace = kscope.load(tmp_path / "run.failed.kscope")
    assert len(trace) > 100 * 64 * 4 * 4
    problems = {problem.kind: problem for problem in trace.problems}
    assert "CUDA_ERROR" in problems["driver"].text
    assert problems["unfinished"].kernel == "trapped"
    assert not (tmp_path / "run.kscope").exists()


@nvcc.needs_nvcc
def test_modules_are_loaded_and_unloaded_200_times(t: ModuleType) -> None:
    """Names outlive their module, but its control word is forgotten: a later module may have the same address."""
    import cupy
    from cuda.bindings import driver

    import kscope_cuda

    def check(result: tuple[Any, ...]) -> Any:
        assert int(result[0]) == 0, result[0]
        return result[1] if len(result) > 1 else None

    out, blocks = cupy.zeros(12, cupy.int32), 12
    arch = f"sm_{cupy.cuda.Device().compute_capability}"
    argument = ctypes.c_uint64(out.data.ptr)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
    with kscope.profile(records=16) as prof:
        compilation = kscope_cuda.Compilation()
        image = compilation.lower(nvcc.compiled(t.SMALL, *compilation.options(), f"-arch={arch}"))
        for _ in range(200):
            module = check(driver.cuModuleLoadData(image + b"\0"))
            kscope_cuda.loaded(module)
            function = check(driver.cuModuleGetFunction(module, b"small"))
            launch = (function, blocks, 1, 1, 64, 1, 1, 0, 0, ctypes.addressof(arguments), 0)
            check(driver.cuLaunchKernel(*launch))
            check(driver.cuCtxSynchronize())
            check(driver.cuModuleUnload(module))
    trace = prof.trace
    assert not doubts(trace)
    assert len(trace.launches) == 200 and len(trace.filter(region="small")) == len(trace) == 200 * blocks * 2
    assert bool((out == 7).all())


def test_two_processes_record_on_one_gpu_at_once() -> None:
    code = """
out = k.ints(132)
counts = []
for turn in range(3):
    with kscope.profile() as prof:
        for _ in range(300):
            k.four[(132,)](out, num_warps=4)
    lost = sum(device.lost for device in prof.capture.devices)
    counts.append((len(prof.trace), len(prof.trace.launches), lost))
assert bool((out == 4).all())
print(counts)
"""
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: python(code), range(2)))
    for done in both:
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == str([(300 * 132 * 4 * 4, 300, 0)] * 3)


@pytest.mark.parametrize("left", [128 << 20, 23 << 20], ids=["128 MiB", "23 MiB"])
def test_a_gpu_that_is_nearly_full_records_less_and_counts_the_rest(left: int) -> None:
    done = python(
        """
out = k.ints(1000)
k.four[(1000,)](out, num_warps=4)
torch.cuda.synchronize()
free, _ = torch.cuda.mem_get_info()
hog = torch.empty(free - int(sys.argv[1]), dtype=torch.uint8, device="cuda")
with kscope.profile() as prof:
    for _ in range(20):
        k.four[(1000,)](out, num_warps=4)
lost = sum(device.lost for device in prof.capture.devices)
assert len(prof.trace.warps) + lost == 20 * 4000, (len(prof.trace.warps), lost)
assert len(prof.trace) == 4 * len(prof.trace.warps)
try:
    with kscope.profile(pool=1 << 30) as prof:
        k.four[(1000,)](out, num_warps=4)
except kscope.KscopeError as error:
    print("refused:", error)
del hog
torch.cuda.empty_cache()
with kscope.profile() as prof:
    k.four[(1000,)](out, num_warps=4)
assert bool((out == 4).all())
print("again", len(prof.trace))
""",
        left,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "refused: " in done.stdout and "pool" in done.stdout, done.stdout
    assert "again 16000" in done.stdout


RECORDED: dict[str, dict[str, Any]] = {
    "ring": {}, "stop": {"fill": "stop", "records": 4}, "overwritten": {"records": 4},
    "globaltimer": {"clock": "globaltimer"}, "shm": {"survive": "shm"},
    "keeper": {"survive": "keeper"}, "every thread": {"strategy": kscope.AllThreads()},
    "one thread": {"strategy": kscope.Lane0Warp0()}, "no room": {"pool": 2 << 20, "records": 4096},
}  # fmt: skip


def test_recording_changes_no_bit_of_a_sum(k: ModuleType) -> None:
    import torch

    blocks, rows = 200, 12
    x = torch.randn(blocks * rows * k.ROW, generator=torch.Generator().manual_seed(1)).cuda()
    plain = torch.zeros(blocks, device="cuda")
    k.summed[(blocks,)](x, plain, rows, num_warps=4)
    for name, options in RECORDED.items():
        out = torch.zeros(blocks, device="cuda")
        with kscope.profile(**options):
            k.summed[(blocks,)](x, out, rows, num_warps=4)
        assert torch.equal(out, plain), name


@pytest.mark.parametrize("how", ["ring", "shm", "every thread"])
def test_a_product_is_the_same_to_the_last_bit(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from triton_matmul import OPTIONS, TILE, matmul

    size, numbers = 1024, torch.Generator().manual_seed(2)
    a, b = (torch.randn(size, size, generator=numbers).to("cuda", torch.float16) for _ in range(2))
    plain, out = (torch.empty_like(a) for _ in range(2))
    grid = (size // TILE["BM"], size // TILE["BN"])
    matmul[grid](a, b, plain, size, size, size, **TILE, **OPTIONS)
    with kscope.profile(**RECORDED[how]) as prof:
        matmul[grid](a, b, out, size, size, size, **TILE, **OPTIONS)
    assert torch.equal(out, plain)
    lanes = 32 if how == "every thread" else 1
    assert len(prof.trace) == grid[0] * grid[1] * 8 * lanes * (2 + 2 * size // TILE["BK"])
