"""Session, file and decoder do not change what a kernel recorded."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from pathlib import Path

import numpy as np
import pytest
from contract import frontend_sim
from contract.device import record
from contract.judge import depths
from contract.programs import BY_NAME, PROGRAMS, Program
from contract.reader import Lane, read
from contract.verdict import verdict

import kscope
from kscope.capture.layout import Kind
from kscope.marks.names import BEGIN_TRACK, END_TRACK, ROLE_TRACK
from kscope.trace import Trace

Row = tuple[object, ...]
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


def rows_of_reader(lanes: list[Lane]) -> list[Row]:
    """One row per record; block as linear index, times in ticks since the lane began."""
    rows: list[Row] = []
    for lane in in_turn(lanes):
        (x, y, z), (nx, ny, _) = lane.block, lane.grid
        where = lane.kernel, lane.replay, x + nx * (y + ny * z), lane.warp, lane.lane, lane.smid
        for one, depth in zip(lane.records, depths(lane.records), strict=True):
            value = None if one.value is None else float(one.value)  # as Trace.value has it
            reported = *_named(one.region), one.kind, value, depth if lane.clock == "cycles" else None
            rows.append((lane.launch, *where, *reported, one.start, one.end - one.start))
    return rows


def rows_of_trace(trace: Trace) -> list[Row]:
    """The same of a Trace."""
    grids = list(dict.fromkeys(launch.grid_id for launch in trace.launches))
    rows = []
    cycles = all(name == "cycles" for name in trace_clocks(trace))
    for i in range(len(trace)):
        launch = trace.launches[trace.launch[i]]
        region, value = trace.regions[trace.region[i]], float(trace.value[i])
        rows.append(
            (
                *(grids.index(launch.grid_id), trace.kernels[trace.kernel[i]], launch.replay),
                *(int(column[i]) for column in (trace.block, trace.warp, trace.lane, trace.sm)),
                *(region.name, region.track, Kind(trace.kind[i]), None if isnan(value) else value),
                int(trace.depth[i]) if cycles else None,
                int(trace.start_ticks[i] - trace.warps.first_tick[trace.track[i]]),
                int(trace.dur_cycles[i]),
            )
        )
    return rows


def in_turn(lanes: list[Lane]) -> list[Lane]:
    """The lanes, those of one warp that record in turn as one: the first of them."""
    warps: dict[object, list[Lane]] = {}
    for lane in lanes:
        warps.setdefault(lane.key[:-1], []).append(lane)
    found = []
    for warp in warps.values():
        if any(lane.turn for lane in warp):
            records = sorted((record for lane in warp for record in lane.records), key=lambda record: record.end)
            warp = [replace(warp[0], records=tuple(records))]
        found += warp
    return found


def _named(region: str) -> tuple[str, str | None]:
    """The name as the user wrote it, and the track."""
    name, _, track = region.partition("\x1f")
    return name, track or None


def trace_clocks(trace: Trace) -> list[str]:
    """globaltimer ticks are whole nanoseconds."""
    return ["globaltimer" if tick == 1.0 else "cycles" for tick in set(trace.warps.tick_ns.tolist())]


@each_program
def test_a_session_records_what_the_protocol_records(program: Program) -> None:
    assert verdict(program, record(program, frontend_sim.ready)) == []


@each_program
def test_the_decoder_agrees_with_the_reference_reader(program: Program) -> None:
    capture = frontend_sim.run(program)
    trace = kscope.decode(capture)
    expected, got = rows_of_reader(read(capture)), rows_of_trace(trace)
    roles = [row for row in expected if row[8] == ROLE_TRACK]
    ends = [row for row in expected if row[8] in (BEGIN_TRACK, END_TRACK)]
    flights = [row for row in got if row[7] == row[8]]
    assert len(flights) == len(ends) / 2
    rest = [row for row in expected if row not in roles and row not in ends]
    assert sorted((row for row in got if row not in flights), key=repr) == sorted(rest, key=repr)
    named = np.flatnonzero(trace.warps.role >= 0).tolist()
    assert sorted(trace.role_names[trace.warps.role[row]] for row in named) == sorted(row[7] for row in roles)


def test_captures_keep_their_records_through_a_file(tmp_path: Path) -> None:
    capture = frontend_sim.run(BY_NAME["values"])
    capture.save(tmp_path / "values.kscope")
    loaded = read(kscope.load_capture(tmp_path / "values.kscope"))
    assert loaded == read(capture)
    assert any(lane.records for lane in loaded)


@pytest.mark.parametrize("name", ["ring", "stop"])
def test_dropped_records_are_reported_in_the_trace(name: str) -> None:
    counts = [problem.count for problem in kscope.decode(frontend_sim.run(BY_NAME[name])).problems]
    assert 3 * 4 * 8 in counts  # blocks, warps, and 12 records in 4 places
