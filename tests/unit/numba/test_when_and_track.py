"""Predicates and tracks of regions in Numba kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from contract.numba_offline import built

from kscope.errors import UsageError
from kscope.marks.names import split, work_of

from .reading import ptx, regions
from .test_simulated import simulated

Written = Callable[..., dict[str, Any]]
SIGNATURE = "void(float32[::1], int64)"
KERNEL = """
    DEBUG = False
    LOAD = kscope.scope("load", track="loads")

    @cuda.jit
    def kernel(x, n):
        for i in range(n):
            with kscope.region("step", value=i, when=i % 2 == 0, track="even"):
                if x[i] > 3:
                    continue
                x[i] += 1
            with LOAD(when=n):
                x[i] += 2
            with kscope.region("debug", when=DEBUG):
                x[i] += 3
            kscope.counter("depth", i, when=i > 2, track="queue")
        LOAD.enter(when=n > 1)
        x[0] = 1
        LOAD.exit()
        kscope.instant("done", when=n > 3)
"""


@pytest.mark.parametrize("cc", [(8, 0), (9, 0), (10, 0)])
@pytest.mark.parametrize("lto", [False, True])
def test_a_mark_carries_its_predicate_and_its_track(
    enabled: Any, written: Written, lto: bool, cc: tuple[int, int]
) -> None:
    text = ptx(built(written(KERNEL)["kernel"], SIGNATURE, cc, lto=lto), cc)
    found = {split(name) for name in regions(text)}
    assert found == {("step", "even"), ("load", "loads"), ("depth", "queue"), ("done", None)}
    assert text.count("setp.ne.u32 ks_w") >= 5
    assert "setp.eq.u64 ks_w" not in text


def test_a_mark_carries_its_work(enabled: Any, written: Written) -> None:
    space = written("""
        SIZE = 512

        @cuda.jit
        def kernel(x, n):
            with kscope.region("fixed", bytes=4 * SIZE, flops=SIZE):
                x[0] = n
            with kscope.region("varying", bytes=n):
                x[1] = n
    """)
    found = {(split(name)[0], work_of(name)) for name in regions(ptx(built(space["kernel"], SIGNATURE)))}
    assert found == {("fixed", "bytes=2048,flops=512"), ("varying", "bytes=value")}


@pytest.mark.parametrize("value", ["False", "0", "np.bool_(False)", "np.int32(0)"])
def test_a_constant_false_predicate_emits_no_marks(enabled: Any, written: Written, value: str) -> None:
    space = written(f"""
        DEBUG = {value}

        @cuda.jit
        def kernel(x, n):
            with kscope.region("debug", when=DEBUG):
                x[0] = n
            kscope.instant("debug too", when=DEBUG)
    """)
    assert "ks_" not in ptx(built(space["kernel"], SIGNATURE))


def test_a_float_predicate_is_refused(enabled: Any, written: Written) -> None:
    space = written("""
        @cuda.jit
        def kernel(x, n):
            with kscope.region("step", when=x[0]):
                x[0] = n
    """)
    with pytest.raises(Exception, match="when= of kscope region 'step' is a float32") as raised:
        built(space["kernel"], SIGNATURE)
    assert "UsageError" in repr(raised.value) or isinstance(raised.value, UsageError) or raised.value.args


def test_simulated_kernels_evaluate_predicates_in_every_thread() -> None:
    out = simulated("""
import numpy as np, kscope
from numba import cuda

@cuda.jit
def kernel(x):
    for i in range(4):
        with kscope.region("step", value=i, when=i % 2 == 0, track="even"):
            x[0] = i
    kscope.instant("lane", when=cuda.threadIdx.x > 2, strategy=kscope.AllThreads())

with kscope.profile(strategy=kscope.AllThreads()) as prof:
    kernel[1, 4](np.zeros(1, np.int64))
t = prof.trace
names = t.region_names()[t.region]
print(sorted(t.value[names == "step"].tolist()), t.lane[names == "lane"].tolist(), t.user_tracks)
""")
    assert out.strip() == "[0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0] [3] ('even',)"


@pytest.mark.parametrize("cc", [(8, 0), (9, 0), (10, 0)])
def test_the_first_lane_that_gets_there_records(enabled: Any, written: Written, cc: tuple[int, int]) -> None:
    space = written("""
        @cuda.jit
        def kernel(x, n):
            if cuda.threadIdx.x == n:
                with kscope.region("some", strategy=kscope.Elected(any_lane=True)):
                    x[0] = n
    """)
    text = ptx(built(space["kernel"], SIGNATURE, cc), cc)
    assert text.count("%lanemask_lt") == 1
    assert "KS_LATE" in text


def test_simulated_kernels_record_the_first_active_lane() -> None:
    out = simulated("""
import numpy as np, kscope
from numba import cuda

@cuda.jit
def kernel(x):
    if cuda.threadIdx.x == 3:
        with kscope.region("some"):
            x[0] = 1

with kscope.profile(strategy=kscope.Elected(any_lane=True)) as prof:
    kernel[2, 4](np.zeros(1, np.int64))
print(len(prof.trace), len(prof.trace.warps), prof.trace.warp.tolist())
""")
    assert out.strip() == "2 2 [0, 0]"
