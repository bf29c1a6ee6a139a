"""The capture with samples that was recorded on a GPU: a matmul in Triton, four blocks of it with records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kscope
from kscope.analysis.samples import stalls as analysis
from kscope.analysis.samples.crosscheck import crosscheck
from kscope.capture.samples import Samples
from kscope.cli import main

PATH = Path(__file__).parents[2] / "golden" / "stalls.kscope"
REGIONS = {"mainloop", "load", "dot", "epilogue"}


@pytest.fixture(scope="module")
def trace() -> kscope.Trace:
    return kscope.load(PATH)


@pytest.fixture(scope="module")
def samples(trace: kscope.Trace) -> Samples:
    assert trace.samples is not None
    return trace.samples


def test_the_sampled_kernel_is_the_recorded_one_and_has_its_code(trace: kscope.Trace, samples: Samples) -> None:
    [function] = [one for one in samples.functions if one.kernel is not None]
    assert function.kernel in {launch.kernel_id for launch in trace.launches}
    assert function.why_unknown == "" and function.unresolved == ()
    assert {one.name for one in function.regions} == REGIONS
    assert any("MMA" in text for text in function.text)


def test_samples_are_in_the_regions_and_their_lines(samples: Samples) -> None:
    rows = {row.name: row for row in analysis.stalls(samples).rows if row.kernel == "matmul"}
    assert sum(row.samples for row in rows.values()) > 1000
    assert rows["dot"].samples and rows["load"].samples
    lines = [row for row in analysis.stalls(samples, "line").rows if row.kernel == "matmul"]
    assert any(row.name.startswith("triton_matmul.py:") for row in lines)
    assert any(name.endswith("triton_matmul.py") for name in samples.sources)


def test_shares_of_the_regions_where_warps_stay_agree_within_a_point(trace: kscope.Trace, samples: Samples) -> None:
    rows = {row.region: row for row in crosscheck(trace, samples).rows}
    assert abs(rows["mainloop"].clocks - rows["mainloop"].samples) < 0.01
    assert rows["load"].verdict == "moved"  # the pipeline issues its copies elsewhere
    assert any("LDGSTS" in one for one in rows["load"].missing)
    assert rows["dot"].verdict == "agrees"


@pytest.mark.parametrize("command", ["stalls", "crosscheck", "annotate"])
def test_every_command_reads_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, str(PATH), "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["schema"] == f"kscope.{command}"
