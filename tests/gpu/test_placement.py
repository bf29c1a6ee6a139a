"""placement="schedule": kernels whose own machine code records compute the same, and record as often as they run."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import kscope
from kscope.sass.encoding import forms

from .checks import doubts

sys.path += [str(Path(__file__).resolve().parents[2] / name) for name in ("bench", "examples")]
NAMES = ("matmul", "attention", "backward", "softmax", "layernorm", "persistent", "tasks", "splitk", "grouped")
pytestmark = [
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),  # by torch, of the expected results
    pytest.mark.filterwarnings("ignore:(?s)kscope.*never ran on a device:UserWarning"),
]
ADDS_IN_ANY_ORDER = ("splitk",)
"""Its results differ from launch to launch."""


@pytest.fixture(scope="module")
def t() -> Any:
    """The benchmarks' Triton kernels, imported late because Triton may be missing."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    if not forms.has_forms(10 * major + minor):
        pytest.skip("its encodings are not known")
    import on_triton

    return on_triton


class Case:
    """A kernel with its arguments. tag: of its compilation."""

    def __init__(self, t: Any, name: str, tag: int) -> None:
        self.t, self.name, self.tag = t, name, tag
        self.load = t.workloads([name])[name]

    def __call__(self) -> list[Any]:
        """Launch; returns copies of the results."""
        import torch

        for found, _ in self.load.results:
            found.zero_()
        self.load.launch(self.name, self.t.annotated(self.name, False), self.tag)
        torch.cuda.synchronize()
        return [found.clone() for found, _ in self.load.results]


def same(one: list[Any], other: list[Any]) -> bool:
    """True if all bits of the results agree."""
    import torch

    words = {2: torch.int16, 4: torch.int32}
    return all(
        torch.equal(a.view(words[a.element_size()]), b.view(words[b.element_size()]))
        for a, b in zip(one, other, strict=True)
    )


def is_recorded_there(trace: Any, name: str) -> bool:
    """True if a kernel was recorded in machine code; prints why not."""
    why = [one.text for one in trace.problems if one.kind == "placement"]
    print(name, *why)
    return not why


@pytest.mark.parametrize("name", NAMES)
def test_results_are_bitwise_equal_and_counts_are_those_of_the_other_placement(t: Any, name: str) -> None:
    plain, fence, schedule = (Case(t, name, tag) for tag in (90, 91, 92))
    expected = plain()
    repeats = name not in ADDS_IN_ANY_ORDER and all(same(plain(), expected) for _ in range(3))
    records = 16 if name == "softmax" else 512  # 65,536 warps
    with kscope.profile(records=records) as first:
        fence()
    with kscope.profile(records=records, placement="schedule") as second:
        found = [schedule() for _ in range(3)]
    assert is_recorded_there(second.trace, name)
    assert not [one for one in doubts(second.trace) if "placement" not in one]
    if repeats:
        assert all(same(one, expected) for one in found)
    assert schedule.load.error() == ""
    counts = [Counter(trace.region_names()[trace.region].tolist()) for trace in (first.trace, second.trace)]
    assert {name: 3 * count for name, count in counts[0].items()} == dict(counts[1])
    assert (second.trace.dur_ns >= 0).all()


def test_sampled_blocks_alone_record(t: Any) -> None:
    case = Case(t, "matmul", 93)
    with kscope.profile(records=256, placement="schedule") as everything:
        case()
    with kscope.profile(records=256, placement="schedule", block=range(0, 64, 4)) as prof:
        case()
    blocks = everything.trace.filter(block=range(0, 64, 4))
    assert len(prof.trace) == len(blocks) > 0


def test_a_ring_keeps_the_newest_records(t: Any) -> None:
    """A turn's two records are one row; the ring's last row says how many records there were."""
    case, warps = Case(t, "matmul", 94), 256 * 8
    with kscope.profile(records=8, placement="schedule") as prof:
        case()
    names = Counter(prof.trace.region_names()[prof.trace.region].tolist())
    assert names == {"load": 5 * warps, "dot": 5 * warps, "mainloop": warps, "epilogue": warps}
    (lost,) = [one.count for one in prof.trace.problems if one.kind == "overwritten"]
    assert len(prof.trace) + lost == 66 * warps


def test_slabs_follow_what_launches_make(t: Any) -> None:
    """records="auto": after some launches the rings are as large as the records need."""
    case = Case(t, "matmul", 95)
    with kscope.profile(placement="schedule"):
        for _ in range(12):
            case()
    with kscope.profile(placement="schedule") as prof:
        case()
    assert len(prof.trace) == 66 * 256 * 8
    assert not doubts(prof.trace)


def test_a_graph_records_its_replays(t: Any) -> None:
    import torch

    case = Case(t, "attention", 96)
    expected = case()
    with kscope.profile(records=256, placement="schedule") as prof:
        case()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            case.load.launch(case.name, t.annotated(case.name, False), case.tag)
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
    assert same([found for found, _ in case.load.results], expected)
    assert len(prof.trace.launches) == 6
