"""kscope.clock() and its like in CuTe kernels, whether or not kscope records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kscope.errors import UsageError
from kscope.instrument.recording import Recording

from .conftest import Made

BODY = """
    began = kscope.clock64()
    for k in cutlass.range(n):
        x[k] = x[k] * 2.0
    x[0] = Float32(kscope.clock64() - began)
    x[1] = Float32(kscope.clock())
    x[2] = Float32(kscope.globaltimer())
    x[3] = Float32(kscope.smid() + kscope.warp_id() + kscope.lane_id() + kscope.block_id())
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_plain_kernels_have_the_helpers(make: Callable[..., Made], arch: str) -> None:
    made = make(BODY, recording=None, arch=arch)
    assert "kscope" not in made.ptx
    for register, count in {"%clock64": 2, "%clock;": 1, "%globaltimer": 1, "%smid": 1, "%laneid": 1}.items():
        assert made.ptx.count(register) == count, register


def test_device_helpers_may_be_mark_values(make: Callable[..., Made]) -> None:
    made = make(
        """
        began = kscope.clock()
        with region("step", value=kscope.block_id()):
            x[thread] = x[thread] * 2.0
        kscope.counter("cycles", kscope.clock() - began)
        """,
        recording=Recording(),
    )
    assert made.events == 3
    assert made.ptx.count("%clock;") == 2


def test_clock_is_refused_in_host_code_of_a_jit_function(make: Callable[..., Made]) -> None:
    with pytest.raises(UsageError, match=r"kscope.clock\(\) can only be called inside a kernel"):
        make("x[thread] = 1.0", around="if kscope.clock() > 3:")
