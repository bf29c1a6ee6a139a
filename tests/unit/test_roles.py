"""Roles that a kernel names: kscope.role() in a kernel, up to the rows of a timeline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kscope
import kscope_sim
from kscope.analysis.roles import roles
from kscope.capture import file
from kscope.capture.capture_data import CaptureData
from kscope.capture.model import RoleMeta
from kscope.trace import Trace


def captured(kernel: Any, **options: Any) -> CaptureData:
    with kscope.profile(**options) as prof:
        kscope_sim.launch(kernel, grid=2, block=96)
    capture: CaptureData = prof.capture
    return capture


def recorded(kernel: Any, **options: Any) -> Trace:
    return kscope.decode(captured(kernel, **options))


def partitioned(kernel: Any, *partitions: RoleMeta) -> CaptureData:
    """The capture of a kernel whose compiler has partitioned its warps."""
    capture = captured(kernel)
    (module,) = capture.modules
    kernels = tuple(replace(kernel, roles=partitions) for kernel in module.kernels)
    return replace(capture, modules=(replace(module, kernels=kernels),))


def pipeline(warp: Any) -> None:
    if warp.index == 2:
        kscope.role("producer")
        with kscope.region("load"):
            warp.work(3)
        return
    if warp.index == 1:
        kscope.role("consumer")
    with kscope.region("dot"):
        warp.work(5)


def test_named_roles_win_and_the_rest_is_inferred() -> None:
    found = roles(recorded(pipeline))
    assert [found.names[code] for code in found.code] == 2 * ["dot (warp 0, inferred)", "consumer", "producer"]
    assert dict(zip(found.names, found.inferred, strict=True)) == {
        "consumer": False, "producer": False, "dot (warp 0, inferred)": True,
    }  # fmt: skip


def test_the_marks_of_roles_are_no_records_of_the_trace() -> None:
    trace = recorded(pipeline)
    assert [region.name for region in trace.regions if region.name in ("producer", "consumer")] == []
    assert len(trace) == 6
    assert trace.warps.records.tolist() == trace.warps.written.tolist() == [1] * 6
    assert "producer" not in trace.summary().text(100)


def test_a_summary_by_role_has_the_named_roles() -> None:
    rows = recorded(pipeline).summary(by="role").regions
    assert {(row.key, row.region) for row in rows} == {
        (("producer",), "load"), (("consumer",), "dot"), (("dot (warp 0, inferred)",), "dot"),
    }  # fmt: skip


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_table_by_role_shows_role_and_region(width: int) -> None:
    golden = Path(__file__).resolve().parents[1] / "golden" / "warp_specialized.kscope"
    text = kscope.load(golden).summary("role").text(width)
    for name in ("multiply (warp 0-3, inferred): wait_ready ", "wait_empty (warp 6, inferred): wait_empty "):
        assert name in text
    assert "role " not in text


def test_the_callers_roles_override_those_of_the_kernel() -> None:
    found = roles(recorded(pipeline), {"both": [1, 2]})
    assert [found.names[code] for code in found.code] == 2 * ["other", "both", "both"]


def test_a_warp_whose_mark_was_overwritten_has_the_role_of_its_number() -> None:
    def kernel(warp: Any) -> None:
        kscope.role("worker")
        for _ in range(1 if warp.block[0] else 9):
            with kscope.region("step"):
                warp.work(1)

    trace = recorded(kernel, records=4)
    assert max(trace.warps.written) == 10
    found = roles(trace)
    assert {found.names[code] for code in found.code} == {"worker"}


def test_the_compilers_partitions_are_roles_that_the_kernel_may_override(tmp_path: Path) -> None:
    capture = partitioned(pipeline, RoleMeta("mma", (0, 1)), RoleMeta("load", (2,)))
    file.write(capture, tmp_path / "x.kscope")
    found = roles(kscope.decode(file.read(tmp_path / "x.kscope")))
    assert [found.names[code] for code in found.code] == 2 * ["mma", "consumer", "producer"]
    assert not any(found.inferred)


def test_warps_outside_the_compilers_partitions_are_inferred() -> None:
    def kernel(warp: Any) -> None:
        with kscope.region("load" if warp.index == 2 else "dot"):
            warp.work(3)

    trace = kscope.decode(partitioned(kernel, RoleMeta("produce", (2,))))
    found = roles(trace)
    assert [found.names[code] for code in found.code] == 2 * [*2 * ["dot (warp 0-1, inferred)"], "produce"]
    assert {row.key for row in trace.summary(by="role").regions} == {("produce",), ("dot (warp 0-1, inferred)",)}
    assert {role for one in trace.overlap() for role, _ in one.states} >= {"produce", "dot (warp 0-1, inferred)"}


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_rows_of_timelines_begin_with_the_named_role(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    recorded(pipeline).export(path)
    shown = path.read_bytes().decode(errors="replace")
    for block in (0, 1):
        for row in ("warp 0", "consumer warp 1", "producer warp 2"):
            assert f"block {block} {row}" in shown
