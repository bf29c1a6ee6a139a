"""The end of a session with kernels of a GPU: transforms, exported files, and sessions that are switched off."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

import kscope
from kscope.tracedata import transforms

from .checks import doubts, sync


@pytest.fixture
def k() -> ModuleType:
    from . import kernels

    return kernels


def test_kernels_are_kept_by_hash(k: ModuleType) -> None:
    out = k.ints(8)
    with kscope.profile() as prof:
        k.four[(8,)](out, num_warps=1)
        k.other[(8,)](out, num_warps=1)
    hashes = {launch.kernel: launch.hash for launch in prof.trace.launches}
    assert len(hashes) == 2
    with kscope.profile(kernel=hashes["other"]) as prof:
        k.four[(8,)](out, num_warps=1)
        k.other[(8,)](out, num_warps=1)
    assert prof.trace.kernels == ("other",) and not doubts(prof.trace)
    assert {launch.hash for launch in prof.trace.launches} == {hashes["other"]}


def test_iterations_are_exported_as_they_are_selected(k: ModuleType, tmp_path: Path) -> None:
    def upper(trace: kscope.Trace) -> kscope.Trace:
        return transforms.rename(trace, str.upper)

    out = k.ints(8)
    kscope.enable()
    for step in range(4):
        with kscope.profile(export=tmp_path / f"step{step}.json", then=upper, enabled=step % 2 == 1) as prof:
            k.four[(8,)](out, num_warps=1)
        sync()
        assert len(prof.trace) == (8 * k.RECORDS if step % 2 else 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step1.json", "step3.json"]
    events = json.loads((tmp_path / "step3.json").read_text())["traceEvents"]
    named = [event["name"] for event in events if event.get("cat") == "region"]
    assert named and all(name.isupper() for name in named)
