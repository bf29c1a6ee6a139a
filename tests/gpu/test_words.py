"""Device helpers, predicates, tracks and elected lanes on a GPU: correct values, complete records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import kscope

from .checks import doubts
from .words_kernels import HELPERS, helped, reads_helpers

torch = pytest.importorskip("torch")
cupy = pytest.importorskip("cupy")
Table = Callable[[str, str], None]

SOURCE = r"""
#include <kscope.cuh>
extern "C" __global__ void sometimes(int* out, int n) {
  KSCOPE_KERNEL();
  const int warp = threadIdx.x / 32;
  for (int k = 0; k < n; k++) {
    KSCOPE_REGION_V_IF("step" KSCOPE_TRACK("even"), k, k % 2 == 0);
    atomicAdd(out, 1);
    KSCOPE_REGION_IF("third", warp == 2);
    atomicAdd(out + 1, 1);
    KSCOPE_COUNTER_IF("late", k, k + 1 == n);
  }
}
extern "C" __global__ void apart(int* out, int n) {
  KSCOPE_KERNEL();
  KSCOPE_REGION("all");
  const int lane = threadIdx.x % 32;
  if (lane < 16) {
    KSCOPE_REGION("low");
    atomicAdd(out, 1);
  } else {
    KSCOPE_REGION("high");
    atomicAdd(out + 1, 1);
  }
  __syncwarp();
  for (int k = 0; k < n; k++) {
    if (lane == 7 * k % 32) {
      KSCOPE_REGION_V("one", k);
      atomicAdd(out + 2, 1);
    }
    __syncwarp();
  }
}
"""


@pytest.fixture(scope="module")
def module() -> object:
    return cupy.RawModule(code=SOURCE, options=("-I" + kscope.cuda_include(),))


def counted(trace: kscope.Trace) -> Counter[str]:
    names = trace.region_names()
    return Counter(names[region] for region in trace.region.tolist())


def test_a_predicate_decides_at_the_enter_and_nothing_else_changes(module: object) -> None:
    out, blocks, n = cupy.zeros(4, cupy.int32), 500, 7
    with kscope.profile(records=64) as prof:
        module.get_function("sometimes")((blocks,), (128,), (out, n))  # type: ignore[attr-defined]  # CuPy has no types
        cupy.cuda.Device().synchronize()
    trace = prof.trace
    assert not doubts(trace)
    assert counted(trace) == {"step": blocks * 4 * 4, "third": blocks * n, "late": blocks * 4}
    names = trace.region_names()[trace.region]
    assert {*trace.value[names == "step"].tolist()} == {0, 2, 4, 6}
    assert {*trace.warp[names == "third"].tolist()} == {2}
    assert trace.user_tracks == ("even",)
    assert out[:2].tolist() == [blocks * 128 * n] * 2
    assert trace.warps.written.tolist() == trace.warps.records.tolist()


@pytest.mark.parametrize("records", [64, 4])
def test_the_first_lane_that_gets_there_records(module: object, records: int) -> None:
    out, blocks, n = cupy.zeros(4, cupy.int32), 500, 9
    with kscope.profile(strategy=kscope.Elected(any_lane=True), records=records) as prof:
        module.get_function("apart")((blocks,), (128,), (out, n))  # type: ignore[attr-defined]  # CuPy has no types
        cupy.cuda.Device().synchronize()
    trace = prof.trace
    assert not [problem for problem in doubts(trace) if "overwritten" not in str(problem)]
    assert len(trace.warps) == blocks * 4  # one row per warp, whichever lanes recorded
    assert int(trace.warps.written.sum()) == blocks * 4 * (3 + n)
    assert out[:3].tolist() == [blocks * 64, blocks * 64, blocks * 4 * n]
    if records > n + 3:
        assert counted(trace) == dict.fromkeys(("all", "low", "high"), blocks * 4) | {"one": blocks * 4 * n}
        names = trace.region_names()[trace.region]
        assert np.bincount(trace.value[names == "one"].astype(int)).tolist() == [blocks * 4] * n


def test_replays_of_a_graph_stay_whole_where_lanes_claim_late(module: object) -> None:
    out, stream = cupy.zeros(4, cupy.int32), cupy.cuda.Stream(non_blocking=True)
    with kscope.profile(strategy=kscope.Elected(any_lane=True), records=64) as prof, stream:
        kernel = module.get_function("apart")  # type: ignore[attr-defined]  # CuPy has no types
        kernel((1,), (64,), (out, 2))  # loaded before the capture
        stream.synchronize()
        stream.begin_capture()
        kernel((20,), (64,), (out, 2))
        graph = stream.end_capture()
        for _ in range(3):
            graph.launch(stream)
        stream.synchronize()
    trace = prof.trace
    assert not doubts(trace)
    assert [launch.replay for launch in trace.launches] == [0, 0, 1, 2]
    assert np.bincount(trace.launch).tolist() == [2 * 5, 40 * 5, 40 * 5, 40 * 5]


@pytest.mark.parametrize("recorded", [False, True])
def test_device_helpers_work_in_triton(recorded: bool, table: Table) -> None:
    out = torch.zeros(64 * 5, dtype=torch.int64, device="cuda")
    if recorded:
        with kscope.profile() as prof:
            reads_helpers[(64,)](out, 1000)
            torch.cuda.synchronize()
        assert counted(prof.trace) == {"step": 64 * 4}
        names = prof.trace.region_names()[prof.trace.region]
        assert np.array_equal(prof.trace.value[names == "step"], prof.trace.warp[names == "step"])
    else:
        reads_helpers[(64,)](out, 1000)
        torch.cuda.synchronize()
    reported = out.view(64, 5).cpu()
    assert reported[:, 0].tolist() == list(range(64))
    assert bool((reported[:, 1] > 0).all())
    assert bool((reported[:, 2] > 1_600_000_000).all())
    properties = torch.cuda.get_device_properties(0)
    assert bool((reported[:, 3] >= 0).all() and (reported[:, 3] < properties.multi_processor_count).all())
    assert bool(((reported[:, 4] - reported[:, 1]).abs() < 1000).all())  # 32 and 64 bits of one counter
    if not recorded:
        table("a loop of 1000 in a plain Triton kernel, by kscope.clock64()", f"{int(reported[:, 1].min()):,} cycles")


def test_every_thread_of_a_cuda_kernel_gets_its_place() -> None:
    out = cupy.zeros((6, 96, 4), cupy.int32)
    kernel = cupy.RawKernel(HELPERS, "places", options=("-I" + kscope.cuda_include(),))
    kernel((3, 2), (8, 4, 3), (out,))
    reported = out.get()
    threads = np.arange(96)
    for block in range(6):
        assert reported[block, :, 0].tolist() == (threads // 32).tolist()
        assert reported[block, :, 1].tolist() == (threads % 32).tolist()
        assert reported[block, :, 2].tolist() == [block] * 96
        assert len({*reported[block, :, 3].tolist()}) == 1  # a block runs on one SM


def test_device_helpers_agree_in_numba() -> None:
    pytest.importorskip("numba.cuda")
    reported = helped(blocks=4, threads=70)
    assert reported[:, 0].tolist() == [block for block in range(4) for _ in range(70)]
    assert reported[:, 1].tolist() == [thread // 32 for _ in range(4) for thread in range(70)]
    assert reported[:, 2].tolist() == [thread % 32 for _ in range(4) for thread in range(70)]
    assert (reported[:, 3] > 0).all()
