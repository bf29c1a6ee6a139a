"""What stands between a kernel and its trace changes nothing: the session, the file, the decoder."""

from __future__ import annotations

from math import isnan
from pathlib import Path

import pytest
from contract import frontend_sim
from contract.judge import depths, judge
from contract.programs import PROGRAMS, Program
from contract.reader import Lane, read

import kscope
from kscope.capture import Capture
from kscope.layout import Kind
from kscope.trace import Trace

Row = tuple[object, ...]


def recorded_in_a_session(program: Program, path: Path | None = None) -> Capture:
    recording, sampling = program.recording, program.sampling
    with kscope.profile(
        path,
        strategy=recording.strategy,
        records=recording.records,
        fill=recording.fill,
        clock=recording.clock,
        live=recording.live,
        blocks=sampling.blocks,
        warps=sampling.warps,
    ) as prof:
        frontend_sim.launch(program)
    return prof.capture


def rows_of_reader(lanes: list[Lane]) -> list[Row]:
    """One row per record; block as linear index, times in ticks since the lane began."""
    rows: list[Row] = []
    for lane in lanes:
        (x, y, z), (nx, ny, _) = lane.block, lane.grid
        where = lane.kernel, lane.replay, x + nx * (y + ny * z), lane.warp, lane.lane, lane.smid
        for record, depth in zip(lane.records, depths(lane.records), strict=True):
            told = record.region, record.kind, record.value, depth if lane.clock == "cycles" else None
            rows.append((lane.launch, *where, *told, record.start, record.end - record.start))
    return rows


def rows_of_trace(trace: Trace) -> list[Row]:
    """The same of a Trace."""
    grids = list(dict.fromkeys(launch.grid_id for launch in trace.launches))
    names, rows = trace.region_names(), []
    cycles = all(name == "cycles" for name in trace_clocks(trace))
    for i in range(len(trace)):
        launch = trace.launches[trace.launch[i]]
        value = float(trace.value[i])
        rows.append(
            (
                *(grids.index(launch.grid_id), trace.kernels[trace.kernel[i]], launch.replay),
                *(int(column[i]) for column in (trace.block, trace.warp, trace.lane, trace.sm)),
                *(names[trace.region[i]], Kind(trace.kind[i]), None if isnan(value) else value),
                int(trace.depth[i]) if cycles else None,
                int(trace.start_ticks[i] - trace.warps.first_tick[trace.track[i]]),
                int(trace.dur_cycles[i]),
            )
        )
    return rows


def trace_clocks(trace: Trace) -> list[str]:
    """A clock's ticks are whole nanoseconds where it is globaltimer."""
    return ["globaltimer" if tick == 1.0 else "cycles" for tick in set(trace.warps.tick_ns.tolist())]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_session_records_what_the_protocol_records(program: Program) -> None:
    assert judge(read(frontend_sim.run(program)), read(recorded_in_a_session(program))) == []


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_decoder_says_what_the_plain_reader_says(program: Program) -> None:
    capture = frontend_sim.run(program)
    expected, got = rows_of_reader(read(capture)), rows_of_trace(kscope.decode(capture))
    assert sorted(got, key=repr) == sorted(expected, key=repr)


def test_a_capture_comes_back_from_its_file(tmp_path: Path) -> None:
    program = next(program for program in PROGRAMS if program.name == "values")
    path = tmp_path / "values.kscope"
    capture = recorded_in_a_session(program, path)
    assert read(kscope.load(path)) == read(capture)


@pytest.mark.parametrize("name", ["ring", "stop"])
def test_dropped_records_are_told_in_the_trace(name: str) -> None:
    program = next(program for program in PROGRAMS if program.name == name)
    counts = [problem.count for problem in kscope.decode(frontend_sim.run(program)).problems]
    assert 3 * 4 * 8 in counts  # blocks, warps, and 12 records in 4 places
