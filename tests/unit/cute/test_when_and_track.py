"""Predicates and tracks of regions in CuTe kernels."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kscope.errors import UsageError
from kscope.marks.names import split, work_of

from .conftest import Made
from .test_marks import metadata_of, names

BODY = """
    for k in cutlass.range(n):
        with region("step", value=k, when=k % 2 == 0, track="even"):
            x[k] = x[k] * 2.0
        with LOAD(when=n):
            x[k] = x[k] * 3.0
        with region("debug", when=DEBUG):
            x[k] = x[k] * 4.0
        kscope.counter("depth", k, when=k > 2, track="queue")
    LOAD.enter(when=n > 1)
    x[0] = 1.0
    LOAD.exit()
    kscope.instant("done", when=n > 3)
"""
BEFORE = 'DEBUG = False\nLOAD = kscope.scope("load", track="loads")'


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_a_mark_carries_its_predicate_and_its_track(make: Callable[..., Made], arch: str) -> None:
    made = make(BODY, BEFORE, arch=arch)
    assert {split(name) for name in names(made)} == {
        ("step", "even"), ("load", "loads"), ("depth", "queue"), ("done", None),
    }  # fmt: skip
    assert made.ptx.count("setp.ne.u32 ks_w") >= 5
    assert metadata_of(made).problems == ()


def test_a_float_predicate_is_refused(make: Callable[..., Made]) -> None:
    with pytest.raises(UsageError, match="when= of kscope region 'step' is a Float32"):
        make('with region("step", when=x[0]):\n        x[0] = 1.0')


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_the_first_lane_that_gets_there_records(make: Callable[..., Made], arch: str) -> None:
    made = make(
        """
        if thread == n:
            with region("some", strategy=kscope.Elected(any_lane=True)):
                x[0] = 1.0
        """,
        arch=arch,
    )
    assert made.ptx.count("%lanemask_lt") == 1
    assert made.ptx.count("KS_LATE:") == 1


def test_a_mark_carries_its_work(make: Callable[..., Made]) -> None:
    body = """
    with region("fixed", bytes=4 * 512):
        x[0] = 1.0
    with region("varying", flops=n):
        x[1] = 2.0
"""
    found = {(split(name)[0], work_of(name)) for name in names(make(body))}
    assert found == {("fixed", "bytes=2048"), ("varying", "flops=value")}
