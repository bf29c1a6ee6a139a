"""Passes over a trace: names, tracks, and several passes as one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import synth
from synth import EVERY_KIND, ITS_NAMES, Rec, instant

import kscope
from kscope.capture.layout import Kind
from kscope.errors import UsageError
from kscope.trace import Trace, decode
from kscope.tracedata import transforms


def _trace() -> Trace:
    return decode(synth.capture(synth.slab(EVERY_KIND), synth.slab(EVERY_KIND, warp=1), names=ITS_NAMES))


def _names(trace: Trace) -> list[str]:
    return [str(name) for name in trace.region_names()[trace.region]]


def test_a_region_gets_another_name() -> None:
    trace = transforms.rename(_trace(), {"load": "copy", "t*": "whole"})
    assert set(_names(trace)) == {"copy", "dot", "mark", "queue", "whole"}
    assert {row.region for row in trace.summary().regions} == {"copy", "dot", "whole"}
    assert (
        transforms.rename(trace, str.upper).filter(region="COPY").dur_ns.tolist()
        == _trace().filter(region="load").dur_ns.tolist()
    )


def test_regions_of_one_name_are_one_row() -> None:
    (row,) = transforms.rename(_trace(), {"load": "x", "dot": "x", "tile": "x"}).summary().regions
    assert (row.region, row.count) == ("x", 6)


def test_two_names_may_change_places() -> None:
    trace = _trace()
    swapped = transforms.rename(trace, {"load": "dot", "dot": "load"})
    assert swapped.filter(region="load").value.tolist() == trace.filter(region="dot").value.tolist()


def _tasks() -> Trace:
    records = [Rec("task", 2000 + 10 * n, 2005 + 10 * n, Kind.SPAN_VALUE, n % 4) for n in range(8)]
    records += [instant("task", 2100, 2), Rec("plain", 2200, 2300)]
    return decode(synth.capture(synth.slab(records, log2=4), names=(("task", "u32"), "plain")))


@pytest.mark.parametrize(
    "names",
    [["load", "mma", "store"], {0: "load", 1: "mma", 2: "store"}, lambda n: ["load", "mma", "store", "task 3"][n]],
)
def test_numeric_tags_become_names(names: object) -> None:
    trace = transforms.rename(_tasks(), {"task": names})  # type: ignore[dict-item]  # each of the three forms
    assert _names(trace) == [*["load", "mma", "store", "task 3"] * 2, "store", "plain"]
    assert trace.value.tolist()[:5] == [0, 1, 2, 3, 0]
    assert {row.region: row.count for row in trace.summary().regions} == {
        "load": 2, "mma": 2, "store": 2, "task 3": 2, "plain": 1,
    }  # fmt: skip
    assert trace.filter(region="mma").depth.tolist() == [0, 0]


def test_renaming_by_value_keeps_unlisted_float_values() -> None:
    bits = int(np.float32(0.5).view(np.uint32))
    capture = synth.capture(synth.slab([Rec("x", 2000, 2001, Kind.SPAN_VALUE, bits)]), names=(("x", "f32"),))
    trace = transforms.rename(decode(capture), {"x": ["zero"]})
    assert _names(trace) == ["x 0.5"] and trace.value.tolist() == [0.5]


def test_regions_go_to_separate_tracks(tmp_path: Path) -> None:
    from replay import replay

    trace = transforms.regroup(_trace(), lambda name: name if name in ("load", "dot") else None)
    assert set(trace.user_tracks) == {"load", "dot"}
    trace.export(tmp_path / "x.pftrace")
    tracks = {one.name: one.lane for one in replay(tmp_path / "x.pftrace").slices}
    assert tracks["load"].endswith("load") and tracks["dot"].endswith("dot")
    assert tracks["tile"] in ("block 0 warp 0", "block 0 warp 1")
    assert transforms.regroup(trace, {"*": None}).user_tracks == ()


def test_passes_are_chained() -> None:
    both = transforms.compose(
        lambda trace: trace.filter(region="load"), lambda trace: transforms.rename(trace, {"load": "copy"})
    )
    trace = both(_trace())
    assert set(_names(trace)) == {"copy"} and trace.filtered
    assert kscope.transforms is transforms


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: transforms.rename(t, {"lod": "x"}), "this trace has dot, load, mark"),
        (lambda t: transforms.rename(t, {"load": ["a"]}), "no value"),
        (lambda t: transforms.rename(t, lambda name: 3), "expected a name"),
        (lambda t: transforms.regroup(t, {"lod": "x"}), "no such region"),
    ],
)
def test_invalid_transforms_are_refused(call: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call(_trace())  # type: ignore[operator]  # a lambda of the list above


def test_the_command_line_renames_and_regroups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    from replay import replay

    from kscope import cli

    monkeypatch.chdir(tmp_path)
    records = [Rec("task", 2000 + 10 * n, 2005 + 10 * n, Kind.SPAN_VALUE, n % 2) for n in range(4)]
    synth.capture(synth.slab([*records, Rec("ld_a", 2200, 2300)]), names=(("task", "u32"), "ld_a")).save("a.kscope")
    flags = ("--rename", "task=load,mma", "--rename", "ld_*=copy", "--regroup", "copy=copies")
    assert cli.main(["summary", "a.kscope", "--json", *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["region"]: row["count"] for row in found["regions"]} == {"load": 2, "mma": 2, "copy": 1}
    assert cli.main(["export", "a.kscope", "-o", "x.pftrace", *flags, "--region", "copy"]) == 0
    (one,) = [one for one in replay("x.pftrace").slices if one.name == "copy"]
    assert one.track[-1].endswith("copies")
    assert cli.main(["summary", "a.kscope", "--rename", "task"]) == 2
    assert cli.main(["summary", "a.kscope", "--regroup", "nothing=x"]) == 2
