"""when= where kernels run in Python: a lane records only where the predicate holds as it enters."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import kscope
import kscope_sim
from kscope.errors import PairingError, UsageError
from kscope.trace import Trace

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "regions.md").read_text()
LOAD = kscope.scope("load")


def traced(kernel, strategy=None, **launch) -> Trace:
    with kscope.profile(strategy=strategy or kscope.Elected()) as prof:
        kscope_sim.launch(kernel, **{"grid": 1, "block": 32, **launch})
    return prof.trace


def values(trace: Trace, name: str) -> list[float]:
    return sorted(trace.value[trace.region_names()[trace.region] == name].tolist())


def test_a_record_is_made_where_the_predicate_holds() -> None:
    def kernel(warp) -> None:
        for turn in range(6):
            with kscope.region("step", value=turn, when=turn % 3 == 0):
                warp.work(10)
            kscope.instant("point", turn, when=turn > 3)
            kscope.counter("number", turn, when=turn == 5)
            LOAD.enter(turn, when=turn in (1, 2))
            warp.work(10)
            LOAD.exit()

    trace = traced(kernel)
    assert values(trace, "step") == [0, 3]
    assert values(trace, "point") == [4, 5]
    assert values(trace, "number") == [5]
    assert values(trace, "load") == [1, 2]
    assert trace.warps.written.tolist() == [7]  # unrecorded events are not counted


def test_per_lane_predicates_are_evaluated_once_on_entry() -> None:
    def kernel(warp) -> None:
        holds = np.arange(32) % 8 == 3
        LOAD.enter(when=holds)
        holds[:] = True
        LOAD.exit()

    trace = traced(kernel, kscope.AllThreads())
    assert trace.lane.tolist() == [3, 11, 19, 27]


def test_declared_scopes_accept_a_predicate_at_declaration_or_use() -> None:
    never = kscope.scope("never", when=False)

    def kernel(warp) -> None:
        with never:
            warp.work(10)
        with never(when=True):
            warp.work(10)
        with LOAD(when=False), LOAD(when=1):
            warp.work(10)

    trace = traced(kernel)
    assert sorted(trace.region_names()[trace.region]) == ["load", "never"]


def test_unrecorded_regions_must_still_pair() -> None:
    def kernel(warp) -> None:
        LOAD.enter(when=warp.index > 5)

    with pytest.raises(PairingError, match="'load' is open"):
        traced(kernel)


@pytest.mark.parametrize("when", ["yes", 1.5, np.zeros(7, bool), object()])
def test_non_bool_predicates_are_refused(when: object) -> None:
    def kernel(warp) -> None:
        with kscope.region("step", when=when):
            warp.work(10)

    with pytest.raises(UsageError, match="expected a bool, or 32 of them"):
        traced(kernel)


@pytest.mark.parametrize("code", re.findall(r"<!-- runs -->\n```python\n(.*?)```", PAGE, re.S))
def test_every_example_of_the_regions_page_runs(code: str) -> None:
    exec(compile(code, "regions.md", "exec"), {})
