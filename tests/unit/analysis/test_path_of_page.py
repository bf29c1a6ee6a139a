"""The page's tab with the critical path of the block that ends last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import traces
from unit.analysis.test_segments import pipeline

import kscope
from kscope.analysis.critical_path import as_edges, path_of_last_block
from kscope.analysis.warp_stats import warp_ends
from kscope.errors import UsageError
from kscope.report.tables import tables

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
EDGES = ("ask", "wait_ready"), ("multiply", "wait_empty", 4), ("no such", "wait_empty")


def test_the_pages_path_is_that_of_the_block_that_ends_last() -> None:
    trace = kscope.load(GOLDEN / "warp_specialized.kscope")
    ends = np.nan_to_num(warp_ends(trace))
    last = trace.warps.blocks(ends.argmax()[None]).strings()[0]
    known = [edge for edge in EDGES if edge[0] != "no such"]
    expected = trace.path(*known, block=last)
    assert path_of_last_block(trace, as_edges(EDGES), 0) == expected
    table = next(one for one in tables(trace, as_edges(EDGES)) if one.name == "path")
    assert [row[:3] for row in table.rows] == [("matmul #0", last, part) for part, _, _ in expected.parts]
    assert "No signals are named" not in table.note


def test_without_signals_the_pages_path_stays_on_one_warp() -> None:
    trace = traces.trace(pipeline())
    path = path_of_last_block(trace, (), 0)
    assert path is not None
    assert {step.kind for step in path.steps} == {"run"} and len(path.steps) == 1
    (table,) = (one for one in tables(trace) if one.name == "path")
    assert "No signals are named" in table.note
    assert path_of_last_block(trace.filter(where=np.zeros(len(trace), bool)), (), 0) is None


@pytest.mark.parametrize("edge", ["load", ("load",), ("load", "wait", "1"), ("load", "wait", 1, 2), (1, 2)])
def test_something_else_than_an_edge_is_refused(edge: Any, tmp_path: Path) -> None:
    trace = traces.trace(pipeline())
    with pytest.raises(UsageError, match=r"expected .signal, wait."):
        trace.export(tmp_path / "x.html", edges=[edge])


def test_only_pages_take_edges(tmp_path: Path) -> None:
    trace = traces.trace(pipeline())
    with pytest.raises(UsageError, match="only pages"):
        trace.export(tmp_path / "x.csv", edges=[("load", "wait")])
    trace.export(tmp_path / "x.html", edges=[("load", "wait")])
    assert "load -> wait (in flight)" in (tmp_path / "x.html").read_text().replace("\\u003e", ">")
    assert "load -> wait (in flight)" in trace.plot(edges=[("load", "wait")]).html.replace("\\u003e", ">")
