"""A report of Nsight Systems beside a capture, from a database with the tables and columns of real exports."""

from __future__ import annotations

import sqlite3
from contextlib import closing
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


EXECUTABLE = 3
"""Id of the executable CUDA graph that ran: the upper half of its nodes' ids."""


def report(recorded: Recorded, path: Path, *, grid_ids: bool = True, whole_graphs: bool = False) -> Path:
    """The report of the same runs. whole_graphs: as nsys writes it without --cuda-graph-trace=node."""
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    database.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT)")
    database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '')", (BASE,))
    grid_id = ", gridId INTEGER" * grid_ids
    database.execute(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
        "correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, mangledName INTEGER, "
        "gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, "
        f"graphNodeId INTEGER{grid_id})"
    )
    if any(one.graph is not None for one in recorded.runs) and whole_graphs:
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, "
            "graphId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER)"
        )
    database.execute(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, "
        "correlationId INTEGER, nameId INTEGER, returnValue INTEGER)"
    )
    database.execute(
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, "
        "textId INTEGER)"
    )
    apis = ["cudaLaunchKernelExC_v11060", "cudaGraphLaunch_v10000"]
    names = {name: at for at, name in enumerate([*apis, *{one.kernel for one in recorded.runs}])}
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(at, name) for name, at in names.items()])
    thread = PID * 0x1000000 + TID
    calls = set[int]()
    for one in recorded.runs:
        begin, end, name = recorded.kineto_ns(one.begin), recorded.kineto_ns(one.end), names[one.kernel]
        row = [begin, end, one.device, one.stream, one.correlation, thread, name, name, name, *one.grid, 128, 1, 1]
        row += [None if one.graph is None else EXECUTABLE << 32 | one.node, *[one.grid_id] * grid_ids]
        if one.graph is None or not whole_graphs:
            database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * len(row))})", row)
        elif one.correlation not in calls:
            place = (one.device, EXECUTABLE, 1, one.stream, one.correlation, thread)
            last = max(other.end for other in recorded.runs if other.graph == one.graph)
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (begin, recorded.kineto_ns(last), *place),
            )
        if one.correlation in calls:  # of another node of the same run of a graph
            continue
        calls.add(one.correlation)
        call = (begin - 3000, begin - 1000, 0, thread, one.correlation, int(one.graph is not None), 0)
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


def change(file: Path, *statements: str) -> Path:
    """The report after some SQL."""
    with closing(sqlite3.connect(file)) as database:
        for one in statements:
            database.execute(one)
        database.commit()
    return file


def test_instances_of_a_template_are_told_apart_by_their_names_in_the_binary(tmp_path: Path) -> None:
    instances = ("_ZN3lib3runIZ4initvEUliE_EEvT_", "_ZN3lib3runIZ4initvEUliE0_EEvT_")
    recorded = Recorded(kinetos.steps(20, instances))
    shown = "void lib::run<init()::[lambda(int) (instance {})]>(T1)"
    rows = [f"INSERT INTO StringIds VALUES ({100 + at}, '{shown.format(at + 1)}')" for at in range(2)]
    rename = (
        f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 100 + (SELECT value = '{instances[1]}' "
        "FROM StringIds WHERE id = mangledName)"
    )
    file = change(report(recorded, tmp_path / "r.sqlite"), *rows, rename)
    found = kscope.merge(decode(recorded.capture()), nsys=file)
    assert found.paired == 20
    names = [found.kineto.events[at]["name"] for at in found.kernels.event[found.pairs.kernel]]
    assert names == [shown.format(at % 2 + 1) for at in range(20)]
    without = change(file, "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN mangledName")  # as nsys 2021 exports
    with pytest.raises(UsageError, match=r"may be any of _ZN3lib3run.*kernels of one name cannot be paired"):
        kscope.merge(decode(recorded.capture()), nsys=without)


def test_ranges_have_their_text_in_either_column_and_domains_are_no_ranges(tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(20))
    file = change(
        report(recorded, tmp_path / "r.sqlite"),
        "INSERT INTO StringIds VALUES (200, 'step 1')",
        "UPDATE NVTX_EVENTS SET text = NULL, textId = 200 WHERE text = 'step 1'",
        "INSERT INTO NVTX_EVENTS VALUES (-1957198520, NULL, 75, 'MPI', 71169346703, NULL)",
    )
    found = kscope.merge(decode(recorded.capture()), nsys=file)
    assert [call.op for call in found.trace.calls] == [f"step {at % 2}" for at in range(20)]


def test_a_call_that_is_listed_with_its_backtrace_too_is_one_call(tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(20))
    file = change(
        report(recorded, tmp_path / "r.sqlite"),
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT start - 40, end + 30, 67, globalTid, correlationId, nameId, 0 "
        "FROM CUPTI_ACTIVITY_KIND_RUNTIME",
    )
    found = kscope.merge(decode(recorded.capture()), nsys=file)
    assert {call.cpu_ns for call in found.trace.calls} == {2000}
    assert [call.op for call in found.trace.calls] == [f"step {at % 2}" for at in range(20)]


def test_text_in_the_encoding_of_another_machine_is_shown_as_far_as_it_is_known(tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(20))
    file = change(
        report(recorded, tmp_path / "r.sqlite"),
        "UPDATE NVTX_EVENTS SET text = CAST(X'476569DF' AS TEXT)",  # "Gei\xdf" in Latin-1
    )
    found = kscope.merge(decode(recorded.capture()), nsys=file)
    assert {call.op for call in found.trace.calls} == {"Gei\N{REPLACEMENT CHARACTER}"}


def graphs(runs: int, *, kernel: str = "scale", **options: int) -> list[Run]:
    """Runs of a CUDA graph with three nodes, two of them of one kernel. Grid ids: one per node, as GPUs give them."""
    one, found = kinetos.steps(runs * 3, (kernel, "shift", kernel), **options), []
    for at, run in enumerate(one):
        turn, node = divmod(at, 3)
        more = {"graph": turn, "node": node + 1, "grid_id": 50 + node, "correlation": 300 + turn, "tag": at}
        found.append(replace(run, **more))
    return found


def test_kernels_of_cuda_graphs_pair_node_by_node(tmp_path: Path) -> None:
    direct = [replace(one, tag=1000 + at) for at, one in enumerate(kinetos.steps(20))]
    recorded = Recorded([*direct, *graphs(30, first=2_000_000)])
    found = kscope.merge(decode(recorded.capture()), nsys=report(recorded, tmp_path / "r.sqlite"))
    truth = {one.tag: (recorded.kineto_ns(one.begin), one.correlation) for one in recorded.runs}
    tags = np.zeros(len(found.trace.launches), np.int64)
    tags[found.trace.launch] = found.trace.value.astype(np.int64)
    begins = found.kernels.begin[found.pairs.kernel].tolist()
    calls = [call.correlation for call in found.trace.calls]
    assert list(zip(begins, calls, strict=True)) == [truth[tag] for tag in tags.tolist()]
    assert (found.kernels.node >= 0).sum() == 90


def test_kernels_of_cuda_graphs_with_other_grid_ids_are_refused(tmp_path: Path) -> None:
    recorded = Recorded(graphs(20))
    file = report(recorded, tmp_path / "r.sqlite")
    for other in ("0", "1000 + rowid"):
        change(file, f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridId = {other}")
        with pytest.raises(UsageError, match=r"grid id 5\d, which no kernel .* in CUDA graphs: .*trace pairs them"):
            kscope.merge(decode(recorded.capture()), nsys=file)


def test_overlapping_graphs_without_grid_ids_are_not_paired_by_order_of_enqueue(tmp_path: Path) -> None:
    first = kinetos.steps(20, ("scale",), first=5_000_000)
    second = [replace(one, begin=one.begin - 200, first=one.first + 150, stream=20) for one in first]
    both = [one for pair in zip(first, second, strict=True) for one in pair]
    more = [{"graph": at, "node": 1, "grid_id": 900 + at, "correlation": 9000 + at} for at in range(len(both))]
    overlapping = [replace(one, **which) for one, which in zip(both, more, strict=True)]
    recorded = Recorded([*kinetos.steps(10), *overlapping])
    file = report(recorded, tmp_path / "r.sqlite", grid_ids=False)
    found = kscope.merge(decode(recorded.capture()), nsys=file)
    assert (found.pairs.unsure, found.pairs.by_order_of_enqueue) == (40, 0)


def test_a_report_with_whole_cuda_graphs_says_how_to_trace_their_kernels(tmp_path: Path) -> None:
    recorded = Recorded([*kinetos.steps(20), *graphs(30, first=2_000_000)])
    file = report(recorded, tmp_path / "r.sqlite", whole_graphs=True)
    with pytest.raises(UsageError, match=r"counts differ.*r\.sqlite has 30 runs of CUDA graphs without .*trace=node"):
        kscope.merge(decode(recorded.capture()), nsys=file)
    recorded = Recorded(graphs(30))
    with pytest.raises(FormatError, match=r"30 runs of CUDA graphs, but no kernel; .*--cuda-graph-trace=node"):
        kscope.merge(decode(recorded.capture()), nsys=report(recorded, tmp_path / "g.sqlite", whole_graphs=True))


def test_whole_cuda_graphs_of_other_kernels_are_no_obstacle(tmp_path: Path) -> None:
    mine = kinetos.steps(20, ("scale",))
    every = Recorded([*mine, *(replace(one, kernel="other") for one in graphs(30, first=2_000_000))])
    file = report(every, tmp_path / "r.sqlite", whole_graphs=True)
    assert kscope.merge(decode(Recorded(mine).capture()), nsys=file).paired == 20


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
    with pytest.raises(FormatError, match="no kernel was recorded"):
        kscope.merge(trace, nsys=tmp_path / "b")
    (tmp_path / "c").write_bytes((tmp_path / "b").read_bytes()[:100])
    with pytest.raises(FormatError, match="export the report again"):
        kscope.merge(trace, nsys=tmp_path / "c")
    for column, value in (("start", "'x'"), ("globalTid", "'x'")):
        file = report(Recorded(kinetos.steps(2)), tmp_path / column)
        change(file, f"UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET {column} = {value}")
        with pytest.raises(FormatError, match="export the report again"):
            kscope.merge(trace, nsys=file)


def test_the_command_takes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = Recorded(kinetos.steps(20))
    recorded.capture().save(tmp_path / "s.kscope")
    files = [str(tmp_path / "s.kscope"), "--nsys", str(report(recorded, tmp_path / "r.sqlite"))]
    assert main(["merge", *files, "-o", str(tmp_path / "m.json.gz")]) == 0
    assert "20 of 20 launches paired" in capsys.readouterr().out
