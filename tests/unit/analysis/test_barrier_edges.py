"""Users of barrier edges (path, gaps, timelines, the report) find the same as with edges given by hand."""

from __future__ import annotations

import io
import json
from pathlib import Path

import edges
import numpy as np
import pytest

import kscope
from kscope.analysis.critical_path import Edge, critical_path
from kscope.analysis.idle import gaps
from kscope.analysis.pipelines.edges import AT_MOST, EXACT, with_phases
from kscope.analysis.pipelines.phases import phases
from kscope.cli import main
from kscope.report import writer
from kscope_sim import Warp, launch

STEPS, STAGES = 20, 3


def pipe(warp: Warp) -> None:
    full = [warp.barrier(("full", stage), 1) for stage in range(STAGES)]
    empty = [warp.barrier(("empty", stage), 64) for stage in range(STAGES)]
    kscope.role("consumer" if warp.index else "producer")
    warp.sync()
    for step in range(STEPS):
        stage, parity = step % STAGES, step // STAGES & 1
        if warp.index == 0:
            with kscope.region("wait_empty", value=step):
                empty[stage].wait(parity ^ 1)
            with kscope.region("ask", value=step), warp.where(1):
                full[stage].expect(4096)
                full[stage].copy(4096, 700 + warp.random.randrange(500))
        else:
            with kscope.region("wait_ready", value=step):
                full[stage].wait(parity)
            with kscope.region("multiply", value=step):
                warp.work(200 + warp.random.randrange(200))
            empty[stage].arrive()


@pytest.fixture(scope="module")
def trace() -> kscope.Trace:
    with kscope.profile(auto="pipeline") as prof:
        launch(pipe, grid=2, block=96, seed=3)
    return prof.trace


def test_edges_that_are_found_are_those_that_a_user_writes(trace: kscope.Trace) -> None:
    ready = edges.compare(trace, "ask", "wait_ready")
    assert (ready.waits, ready.first, ready.unknown, ready.wrong) == (2 * 2 * STEPS, 0, 0, ())
    empty = edges.compare(trace, "multiply", "wait_empty", STAGES)
    assert (empty.waits, empty.first, empty.unknown, empty.wrong) == (2 * STEPS, 2 * STAGES, 0, ())
    assert len(edges.compare(trace, "ask", "wait_ready", 1).wrong) == 2 * 2 * STEPS, "another edge is not found"


def test_the_critical_path_needs_no_edges_by_hand(trace: kscope.Trace) -> None:
    by_hand = critical_path(trace, [Edge("ask", "wait_ready"), Edge("multiply", "wait_empty", STAGES)])
    found = critical_path(trace, ())
    assert found.total_ns == by_hand.total_ns
    assert [step.warp for step in found.steps] == [step.warp for step in by_hand.steps]
    copies = sum(part for name, _, part in found.parts if name.startswith("pipeline copy"))
    asked = sum(part for name, _, part in by_hand.parts if name.startswith("ask ->"))
    assert copies == pytest.approx(asked, abs=0.05)
    assert found.unmatched == 0


def test_edges_by_hand_come_before_those_that_are_found(trace: kscope.Trace) -> None:
    found = critical_path(trace, [Edge("ask", "wait_ready")])
    assert not any("pipeline" in step.via for step in found.steps)


def test_gaps_name_what_waits_were_for_and_which_role_ended_them(trace: kscope.Trace) -> None:
    rows = {row.role: row for row in gaps(trace).barriers}
    assert rows.keys() == {"producer", "consumer"}
    consumer = rows["consumer"]
    assert consumer.not_issued + consumer.in_flight + consumer.landed == pytest.approx(1)
    assert consumer.in_flight > 0.8
    role, region, share = consumer.signals[0]
    assert (role, region.split()[:2], round(share, 6)) == ("producer", ["pipeline", "copy"], 1.0)
    assert rows["producer"].signals[0][0] == "consumer"
    text = gaps(trace).text(120)
    assert "waits for barriers" in text
    assert "for producer: pipeline copy" in text


def test_gaps_of_a_trace_without_barriers_have_no_such_rows() -> None:
    assert gaps(kscope.load("tests/golden/warp_specialized.kscope")).barriers == ()


def test_phases_are_spans_on_tracks_of_their_barriers(trace: kscope.Trace) -> None:
    drawn, _ = with_phases(trace)
    found = phases(trace)
    added = len(drawn) - len(trace)
    assert added == len(found)
    names = drawn.region_names()[drawn.region]
    assert np.count_nonzero(names == EXACT) == np.count_nonzero(found.exact)
    assert np.count_nonzero(names == AT_MOST) == np.count_nonzero(~found.exact)
    assert {track for track in drawn.user_tracks if track.startswith("barrier 0x")} == {
        f"barrier {at:#x}" for at in set(found.barrier.tolist())
    }
    kept = np.flatnonzero((names != EXACT) & (names != AT_MOST))
    assert np.array_equal(drawn.start_ticks[kept], trace.start_ticks)
    assert np.array_equal(drawn.track[kept], trace.track)
    ends = drawn.start_ticks + drawn.dur_cycles
    assert all((np.diff(ends[drawn.track == row]) >= 0).all() for row in range(len(drawn.warps)))
    assert with_phases(trace.filter(warp=0))[0] is not None


def test_timelines_have_arrows_from_copies_over_barriers_to_waits(trace: kscope.Trace, tmp_path: Path) -> None:
    trace.export(str(tmp_path / "x.json"))
    found = json.loads((tmp_path / "x.json").read_text())["traceEvents"]
    starts = [event["name"] for event in found if event["ph"] == "s"]
    waits = int((phases(trace).wait_phase >= 0).sum())
    assert sum(name in (EXACT, AT_MOST) for name in starts) == waits
    assert sum(name.startswith("pipeline copy") for name in starts) == 2 * STEPS
    trace.export(str(tmp_path / "x.pftrace"))
    assert b"barrier 0x400" in (tmp_path / "x.pftrace").read_bytes()


def test_the_report_draws_them(trace: kscope.Trace) -> None:
    page = io.BytesIO()
    writer.write(trace, page)
    assert f'"{EXACT}"'.encode() in page.getvalue()


def test_the_commands_need_no_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "pipe.kscope")
    with kscope.profile(file, auto="pipeline"):
        launch(pipe, block=96)
    assert main(["path", file]) == 0
    assert "pipeline copy" in capsys.readouterr().out
    assert main(["gaps", file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["barriers"]
