"""A report of Nsight Systems beside a capture, from a database with the tables of its documentation."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import kinetos
import numpy as np
import pytest
from kinetos import BASE, Recorded, Run
from replay import replay

import kscope
from kscope.cli import main
from kscope.errors import FormatError, UsageError
from kscope.trace import decode

PID, TID = 4242, 4243


def report(recorded: Recorded, path: Path, *, grid_ids: bool = True) -> Path:
    """The report of the same runs."""
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    database.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT)")
    database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '')", (BASE,))
    grid_id = ", gridId INTEGER" * grid_ids
    database.execute(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
        "correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, mangledName INTEGER, "
        f"gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER{grid_id})"
    )
    database.execute(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, "
        "correlationId INTEGER, nameId INTEGER, returnValue INTEGER)"
    )
    database.execute(
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, "
        "textId INTEGER)"
    )
    names = {name: at for at, name in enumerate(["cudaLaunchKernelExC_v11060", *{one.kernel for one in recorded.runs}])}
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(at, name) for name, at in names.items()])
    thread = PID * 0x1000000 + TID
    for one in recorded.runs:
        begin, end, name = recorded.kineto_ns(one.begin), recorded.kineto_ns(one.end), names[one.kernel]
        row = [begin, end, one.device, one.stream, one.correlation, thread, name, name, name, *one.grid, 128, 1, 1]
        row += [one.grid_id] * grid_ids
        database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * len(row))})", row)
        call = (begin - 3000, begin - 1000, 0, thread, one.correlation, 0, 0)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?, ?)", call)
        database.execute(
            "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, NULL)",
            (begin - 3500, begin - 500, f"step {one.tag % 2}", thread),
        )
    database.commit()
    database.close()
    return path


def overlapping() -> list[Run]:
    """Launches of two streams in no order that times or correlations give."""
    runs = kinetos.steps(60, ("scale",))
    shifted = [
        replace(
            one, begin=one.begin - 200, first=one.first + 150, stream=20, correlation=one.correlation + 1, tag=100 + at
        )
        for at, one in enumerate(runs)
    ]
    both = [*runs, *shifted]
    ids = np.random.default_rng(4).permutation(len(both)).tolist()
    return [replace(one, grid_id=500 + number) for one, number in zip(both, ids, strict=True)]


def test_launches_join_by_their_grid_id_whatever_their_order(tmp_path: Path) -> None:
    recorded = Recorded(overlapping())
    found = kscope.merge(decode(recorded.capture()), nsys=report(recorded, tmp_path / "r.sqlite"))
    truth = {one.tag: one.correlation for one in recorded.runs}
    tags = np.zeros(len(found.trace.launches), np.int64)
    tags[found.trace.launch] = found.trace.value.astype(np.int64)
    assert [call.correlation for call in found.trace.calls] == [truth[tag] for tag in tags.tolist()]
    assert found.pairs.unsure == 0
    assert found.bounds[0].half_ns < 500


def test_nvtx_ranges_and_calls_are_those_of_the_launch(tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(20))
    found = kscope.merge(decode(recorded.capture()), nsys=report(recorded, tmp_path / "r.sqlite"))
    assert [call.op for call in found.trace.calls] == [f"step {at % 2}" for at in range(20)]
    assert {call.cpu_ns for call in found.trace.calls} == {2000}
    found.write(tmp_path / "m.pftrace")
    tracks = {one.track[:2] for one in replay(tmp_path / "m.pftrace").launches}
    assert tracks == {("GPU 0", "stream 7")}


def test_reports_without_grid_ids_pair_by_order(tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(20))
    found = kscope.merge(decode(recorded.capture()), nsys=report(recorded, tmp_path / "r.sqlite", grid_ids=False))
    assert found.paired == 20


def test_a_report_of_another_run_is_refused(tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(20))
    other = Recorded([replace(one, grid_id=one.grid_id + 5000) for one in recorded.runs])
    with pytest.raises(UsageError, match="which no kernel of the report"):
        kscope.merge(decode(recorded.capture()), nsys=report(other, tmp_path / "r.sqlite"))
    with pytest.raises(UsageError, match="expected one file"):
        kscope.merge(decode(recorded.capture()))


def test_files_that_are_no_reports_are_refused(tmp_path: Path) -> None:
    trace = decode(Recorded(kinetos.steps(2)).capture())
    (tmp_path / "a").write_bytes(b"{}")
    with pytest.raises(FormatError, match="not a SQLite file"):
        kscope.merge(trace, nsys=tmp_path / "a")
    sqlite3.connect(tmp_path / "b").execute("CREATE TABLE x (y INTEGER)").connection.close()
    with pytest.raises(FormatError, match="no table CUPTI_ACTIVITY_KIND_KERNEL"):
        kscope.merge(trace, nsys=tmp_path / "b")
    (tmp_path / "c").write_bytes((tmp_path / "b").read_bytes()[:100])
    with pytest.raises(FormatError, match="export the report again"):
        kscope.merge(trace, nsys=tmp_path / "c")


def test_the_command_takes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = Recorded(kinetos.steps(20))
    recorded.capture().save(tmp_path / "s.kscope")
    files = [str(tmp_path / "s.kscope"), "--nsys", str(report(recorded, tmp_path / "r.sqlite"))]
    assert main(["merge", *files, "-o", str(tmp_path / "m.json.gz")]) == 0
    assert "20 of 20 launches paired" in capsys.readouterr().out
