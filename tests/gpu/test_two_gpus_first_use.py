"""Two GPUs of which one has no context, control block or pool when it is first used, or loses its context. Each test
runs in its own process, because the order of first use is what is tested."""

from __future__ import annotations

from pathlib import Path

import pytest

import kscope

from .checks import python

pytestmark = pytest.mark.usefixtures("two_gpus")


def run(code: str) -> None:
    """Run code in a new process, which must succeed; N: records of a launch of `four`."""
    done = python("N = 264 * 4 * k.RECORDS\n" + code)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_kernel_records_on_a_gpu_that_is_first_used_in_the_session() -> None:
    """Its module was loaded on device 0 before; device 1 has no context yet, no control block, and no pool."""
    run(
        """
kscope.enable()
outs = [k.ints(264)]
k.four[(264,)](outs[0], num_warps=4)
with kscope.profile() as prof:
    k.four[(264,)](outs[0], num_warps=4)
    assert len(prof.capture.devices) == 1
    with torch.cuda.device(1):
        outs.append(k.ints(264))
        k.four[(264,)](outs[1], num_warps=4)
        k.other[(8,)](outs[1], num_warps=1)
    k.four[(264,)](outs[0], num_warps=4)
trace = prof.trace
assert trace.devices == (0, 1), trace.devices
assert sorted((launch.device, launch.kernel.partition("_")[0]) for launch in trace.launches) == [
    (0, "four"), (0, "four"), (1, "four"), (1, "other")], trace.launches
assert len(trace.filter(device=0)) == 2 * N and len(trace.filter(device=1)) == N + 8
assert all(bool((out[8:] == 4).all()) for out in outs) and bool((outs[1][:8] == 7).all())
assert not [p for p in trace.problems if p.kind not in ("clock", "rate")], trace.problems
assert torch.cuda.current_device() == 0
"""
    )


def test_gpus_join_a_session_in_any_order_of_first_use() -> None:
    run(
        """
with kscope.profile() as prof:
    torch.cuda.set_device(1)
    one = k.ints(264)
    k.four[(264,)](one, num_warps=4)
    torch.cuda.set_device(0)
    zero = k.ints(264)
    k.four[(264,)](zero, num_warps=4)
trace = prof.trace
assert sorted(trace.devices) == [0, 1], trace.devices
assert [launch.device for launch in trace.launches] == [1, 0], trace.launches
assert all(len(trace.filter(device=device)) == N for device in (0, 1))
"""
    )


def test_a_gpu_that_is_first_used_inside_of_a_graph_capture_records() -> None:
    run(
        """
kscope.enable()
zero = k.ints(264)
k.four[(264,)](zero, num_warps=4)
with kscope.profile() as prof:
    with torch.cuda.device(1):
        one = k.ints(264)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            k.four[(264,)](one, num_warps=4)
        for _ in range(10):
            graph.replay()
    k.four[(264,)](zero, num_warps=4)
trace = prof.trace
assert len(trace.filter(device=1)) == 10 * N and len(trace.filter(device=0)) == N, trace
assert sorted(launch.replay for launch in trace.launches if launch.device == 1) == list(range(10))
assert bool((one == 4).all())
"""
    )


def test_gpus_that_are_first_used_by_two_threads_at_once_record() -> None:
    run(
        """
import threading
outs, errors = {}, []
def work(device):
    try:
        torch.cuda.set_device(device)
        outs[device] = k.ints(264)
        for _ in range(100):
            k.four[(264,)](outs[device], num_warps=4)
    except BaseException as error:
        errors.append(error)
with kscope.profile() as prof:
    threads = [threading.Thread(target=work, args=(device,)) for device in (0, 1)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
assert not errors, errors
assert all(len(prof.trace.filter(device=device)) == 100 * N for device in (0, 1)), prof.trace
"""
    )


def test_a_broken_context_on_one_gpu_keeps_the_records_of_both(tmp_path: Path) -> None:
    done = python(
        """
outs = {}
with kscope.profile(sys.argv[1]) as prof:
    for device in (0, 1):
        with torch.cuda.device(device):
            outs[device] = k.ints(264)
            k.four[(264,)](outs[device], num_warps=4)
            torch.cuda.synchronize()
    print("drained", len(prof.trace), flush=True)
    with torch.cuda.device(1):
        k.outside[(4,)](outs[1], 1 << 40, num_warps=4)
        torch.cuda.synchronize()
""",
        tmp_path / "run.kscope",
    )
    assert done.returncode == 1 and f"drained {2 * 264 * 16}" in done.stdout, done.stdout + done.stderr
    capture = kscope.load_capture(tmp_path / "run.failed.kscope")
    trace = kscope.decode(capture)
    assert [len(trace.filter(device=device)) >= 264 * 16 for device in (0, 1)] == [True, True]
    assert any("device 1: " in problem.text and "CUDA_ERROR" in problem.text for problem in capture.problems)
