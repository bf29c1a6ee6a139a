"""kscope.clock() and its like in Numba kernels, whether or not kscope records, and in Numba's simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from contract.numba_offline import built

from .reading import ptx, regions
from .test_simulated import simulated

Written = Callable[..., dict[str, Any]]
SIGNATURE = "void(int64[::1], int64)"
KERNEL = """
    from kscope import clock64

    @cuda.jit(device=True)
    def place():
        return kscope.smid() + kscope.warp_id() + kscope.lane_id() + kscope.block_id()

    @cuda.jit
    def kernel(x, n):
        began = clock64()
        for i in range(n):
            x[i] = i
        x[0] = clock64() - began
        x[1] = kscope.clock()
        x[2] = kscope.globaltimer()
        x[3] = place()
"""


@pytest.mark.parametrize("cc", [(8, 0), (9, 0), (10, 0)])
@pytest.mark.parametrize("lto", [False, True])
def test_plain_kernels_have_the_helpers(taught: Any, written: Written, lto: bool, cc: tuple[int, int]) -> None:
    text = ptx(built(written(KERNEL)["kernel"], SIGNATURE, cc, lto=lto), cc)
    assert "kscope_meta" not in text
    for register, count in {"%clock64": 2, "%clock;": 1, "%globaltimer": 1, "%smid": 1, "%laneid": 1}.items():
        assert text.count(register) == count, register


def test_device_helpers_may_be_mark_values(enabled: Any, written: Written) -> None:
    space = written("""
        @cuda.jit
        def kernel(x, n):
            began = kscope.clock()
            with kscope.region("step", value=kscope.block_id()):
                x[0] = n
            kscope.counter("cycles", np.uint32(kscope.clock() - began))
    """)
    found = regions(ptx(built(space["kernel"], SIGNATURE)))
    assert {name: kind for name, (kind, _) in found.items()} == {"step": "i32", "cycles": "u32"}


def test_simulated_kernels_have_the_device_helpers() -> None:
    out = simulated("""
import numpy as np, kscope
from numba import cuda

@cuda.jit
def kernel(x):
    at = kscope.block_id() * 40 + kscope.warp_id() * 32 + kscope.lane_id()
    began = kscope.clock64()
    x[at] = at + kscope.smid()
    x[80] = kscope.clock64() >= began and kscope.globaltimer() > 0 and kscope.clock() >= 0

x = np.zeros(81, np.int64)
kernel[2, 40](x)
print((x[:80] == np.arange(80)).all() and x[80] == 1)
""")
    assert out.strip() == "True"
