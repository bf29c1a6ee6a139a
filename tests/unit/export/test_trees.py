"""Call trees: self times add up to the lanes' lifetimes in every file format."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import synth
from synth import Rec, instant

import kscope
from kscope.capture import layout
from kscope.capture.capture import Capture
from kscope.capture.layout import Kind
from kscope.export.stacks import Node, stacks
from kscope.trace import Trace, decode

GOLDEN = Path(__file__).parents[2] / "golden"
NAMES = ("load", "dot", "tile", "mark")


def nested() -> Trace:
    """Two lanes: tile holds load and dot, dot holds load; then load alone."""
    records = [
        Rec("load", 2000, 2100),
        Rec("load", 2210, 2240),
        Rec("dot", 2200, 2300),
        instant("mark", 2350),
        Rec("tile", 1900, 2400),
        Rec("load", 2500, 2600),
    ]
    return decode(synth.capture(*(synth.slab(records, warp=warp, end=11_000) for warp in (0, 1)), names=NAMES))


def paths(nodes: tuple[Node, ...]) -> dict[str, Node]:
    """`kernel;region;region` -> node."""
    found: list[str] = []
    for node in nodes:
        found.append(f"{found[node.parent]};{node.name}" if node.parent >= 0 else node.name)
    return dict(zip(found, nodes, strict=True))


def test_call_tree_nodes_are_distinguished_by_parents_and_have_self_time() -> None:
    found = {path: (node.count, node.ticks) for path, node in paths(stacks(nested())).items()}
    assert found == {
        "matmul": (2, 2 * (10_000 - 500 - 100)),
        "matmul;load": (2, 2 * 100),
        "matmul;tile": (2, 2 * (500 - 200)),
        "matmul;tile;load": (2, 2 * 100),
        "matmul;tile;dot": (2, 2 * (100 - 30)),
        "matmul;tile;dot;load": (2, 2 * 30),
    }


@pytest.mark.parametrize("name", [path.stem for path in sorted(GOLDEN.glob("*.kscope"))])
def test_tree_times_add_up_to_warp_lifetimes(name: str) -> None:
    trace = kscope.load(GOLDEN / f"{name}.kscope")
    nodes = stacks(trace)
    lived = np.where(trace.warps.finished, trace.warps.end_ns - trace.warps.start_ns, 0).sum()
    assert sum(node.ns for node in nodes) == pytest.approx(lived, rel=1e-6)
    names = trace.region_names()[trace.region[trace.is_span]].tolist()
    counted: Counter[str] = Counter()
    for node in nodes:
        if node.parent >= 0:
            counted[node.name] += node.count
    assert counted == Counter(names)


def test_a_filtered_trace_has_only_its_lanes() -> None:
    nodes = stacks(nested().filter(warp=1, region="load"))
    assert {path: node.count for path, node in paths(nodes).items()} == {"matmul": 1, "matmul;load": 3}


def test_hatchet_exports_have_totals_and_means_per_warp(tmp_path: Path) -> None:
    nested().export(tmp_path / "x.hatchet")
    root, devices = json.loads((tmp_path / "x.hatchet").read_bytes())
    [kernel] = root["children"]
    tile = {child["frame"]["name"]: child for child in kernel["children"]}["tile"]
    assert tile["metrics"]["cycles"] == 600
    assert tile["metrics"]["normalized_cycles"] == 300
    assert tile["metrics"]["device_id"] == "0"
    assert sorted(child["frame"]["name"] for child in tile["children"]) == ["dot", "load"]
    assert {"cycles", "normalized_cycles", "time (ns)", "count"} == set(root["metrics"])
    assert devices["CUDA"]["0"]["clock_rate"] == pytest.approx(1_980_000, rel=0.01)


def test_kernels_timed_with_globaltimer_have_no_cycles(tmp_path: Path) -> None:
    slab = synth.slab([Rec("tile", 3200, 6400)], start_time=1600, end_time=9600, flags=layout.FLAG_GLOBALTIMER)
    decode(synth.capture(slab, names=NAMES)).export(tmp_path / "x.hatchet")
    root, _ = json.loads((tmp_path / "x.hatchet").read_bytes())
    assert set(root["metrics"]) == {"time (ns)", "count"}
    assert root["children"][0]["children"][0]["metrics"]["time (ns)"] == 3200


def test_speedscope_has_a_profile_per_kernel_whose_weights_are_its_ns(tmp_path: Path) -> None:
    trace = nested()
    trace.export(tmp_path / "x.speedscope.json")
    found = json.loads((tmp_path / "x.speedscope.json").read_bytes())
    names = [frame["name"] for frame in found["shared"]["frames"]]
    [profile] = found["profiles"]
    assert (profile["type"], profile["unit"], profile["name"]) == ("sampled", "nanoseconds", "matmul")
    assert profile["endValue"] == sum(profile["weights"]) == pytest.approx(2 * 10_000 / 1.98, rel=1e-3)
    shown = {";".join(names[frame] for frame in stack) for stack in profile["samples"]}
    assert shown == set(paths(stacks(trace)))


def test_folded_stacks_are_lines_of_a_path_and_a_number(tmp_path: Path) -> None:
    trace = nested()
    trace.export(tmp_path / "x.folded")
    lines = dict(line.rsplit(" ", 1) for line in (tmp_path / "x.folded").read_text().splitlines())
    assert {path: int(ns) for path, ns in lines.items()} == {
        path: round(node.ns) for path, node in paths(stacks(trace)).items()
    }


def test_separators_in_names_do_not_split_folded_stacks(tmp_path: Path) -> None:
    names = ("a;b", "two\nlines 7", "tab\there")
    slab = synth.slab([Rec(name, 2000 + 100 * at, 2050 + 100 * at) for at, name in enumerate(names)])
    decode(synth.capture(slab, names=names)).export(tmp_path / "x.folded")
    lines = [line.rsplit(" ", 1) for line in (tmp_path / "x.folded").read_text().splitlines()]
    assert {path for path, _ in lines} == {"matmul", "matmul;a:b", "matmul;two lines 7", "matmul;tab here"}
    assert all(number.isdecimal() for _, number in lines)


def test_spans_that_cross_give_no_negative_time() -> None:
    records = [Rec("load", 3000, 5000), Rec("tile", 4000, 9000), Rec("dot", 8000, 9500)]
    assert all(node.ticks >= 0 for node in stacks(decode(synth.capture(synth.slab(records), names=NAMES))))


def test_ten_thousand_lanes_are_counted_exactly() -> None:
    lines = synth.bulk(10_000, 30, waves=2)
    trace = decode(Capture(synth.EPOCH, (synth.device(lines, tick_ns=32),), (synth.module(NAMES[:3]),)))
    found = paths(stacks(trace))
    assert {path: node.count for path, node in found.items()} == {
        "matmul": 10_000, "matmul;tile": 100_000, "matmul;tile;load": 100_000, "matmul;tile;dot": 100_000,
    }  # fmt: skip
    assert sum(node.ticks for node in found.values()) == int(
        np.rint((trace.warps.end_ns - trace.warps.start_ns) / trace.warps.tick_ns).sum()
    )


def test_points_are_not_in_the_tree() -> None:
    records = [instant("mark", 2000), Rec("tile", 2100, 2100, Kind.COUNTER, 4)]
    assert set(paths(stacks(decode(synth.capture(synth.slab(records), names=NAMES))))) == {"matmul"}


def test_problems_are_in_the_tree(tmp_path: Path) -> None:
    trace = decode(synth.capture(synth.slab([Rec("tile", 2000, 2100)]), names=NAMES, lost=3))
    text = "lost: 3 warps found the pool full and did not record: raise pool="
    trace.export(tmp_path / "x.hatchet")
    root, _ = json.loads((tmp_path / "x.hatchet").read_bytes())
    assert [child["frame"]["name"] for child in root["children"]] == ["matmul", text]
    trace.export(tmp_path / "x.speedscope.json")
    found = json.loads((tmp_path / "x.speedscope.json").read_bytes())
    assert [profile["name"] for profile in found["profiles"]] == ["matmul", "problems of this recording"]
    assert text in [frame["name"] for frame in found["shared"]["frames"]]
