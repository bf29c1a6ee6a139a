"""Parquet, Arrow, Feather and CSV, read back with pandas, pyarrow and Python's csv module."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synth
from synth import Rec, instant

from kscope.capture.capture import Capture
from kscope.capture.layout import Kind
from kscope.errors import MissingError, UsageError
from kscope.export import columnar
from kscope.trace import Trace, decode
from kscope.tracedata.data import COLUMNS

pandas = pytest.importorskip("pandas")
arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

NAMES = (("load", "i32"), "dot", ("mark", "f32"), ("queue", "f32"), "tile")


@pytest.fixture
def trace() -> Trace:
    """Every kind of record and value, in two launches that are in memory in reverse order."""
    third = int(np.float32(1 / 3).view(np.uint32))
    records = [
        Rec("load", 2000, 2198, Kind.SPAN_VALUE, 0xFFFFFFFF),
        Rec("dot", 2200, 2398),
        instant("mark", 2400, third),
        instant("mark", 2405, 0x7FC00000),  # a NaN of the user's
        Rec("queue", 2410, 2410, Kind.COUNTER, 0x7F800000),
        instant("tile", 2420),
        Rec("tile", 1990, 2600),
    ]
    slabs = [
        synth.slab(records, sm=5, block=(1, 2, 0), grid=(3, 4, 1), warp=3, lane=7, start=100_000 * (2 - launch),
                   end=100_000 * (2 - launch) + 90_000, grid_id=launch)
        for launch in (1, 2)
    ]  # fmt: skip
    slabs.append(synth.slab([Rec("dot", 2000, 2100 + (1 << 32))], block=(2, 2, 0), grid=(3, 4, 1), end=2 << 32))
    return decode(synth.capture(*slabs, names=NAMES, lost=2))


def by_launch(trace: Trace) -> Any:
    """The trace's own table in the order of the files."""
    frame = trace.to_pandas()
    return frame.iloc[np.argsort(frame["launch"], kind="stable")].reset_index(drop=True)


def same(found: Any, trace: Trace) -> None:
    """Check that a table read back has all data of the trace."""
    expected = by_launch(trace)
    assert list(found.columns) == list(COLUMNS)
    assert len(found) == len(trace)
    for name in COLUMNS:
        if name in ("kernel", "region", "kind"):
            assert found[name].astype(str).tolist() == expected[name].astype(str).tolist()
        elif name == "track":
            assert found[name].isna().tolist() == expected[name].isna().tolist()
        elif name == "value":  # text formats have no NaN of the user's
            np.testing.assert_array_equal(found[name].to_numpy(float), expected[name].to_numpy(float))
        else:
            np.testing.assert_allclose(found[name].to_numpy(float), expected[name].to_numpy(float), rtol=0, atol=6e-4)


READERS = {
    "x.parquet": lambda path: pandas.read_parquet(path),
    "x.feather": lambda path: pandas.read_feather(path),
    "x.arrow": lambda path: arrow.ipc.open_file(arrow.memory_map(str(path))).read_all().to_pandas(),
}


@pytest.mark.parametrize("name", READERS)
def test_a_table_has_every_column_of_every_record(name: str, trace: Trace, tmp_path: Path) -> None:
    assert trace.export(tmp_path / name) == len(trace)
    same(READERS[name](tmp_path / name), trace)


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_a_csv_has_every_column_of_every_record_in_the_order_of_the_trace(
    name: str, trace: Trace, tmp_path: Path
) -> None:
    trace.export(tmp_path / name)
    found = pandas.read_csv(tmp_path / name)
    same(found.iloc[np.argsort(found["launch"], kind="stable")].reset_index(drop=True), trace)


def test_exact_columns_are_exact(trace: Trace, tmp_path: Path) -> None:
    trace.export(tmp_path / "x.parquet")
    found = pandas.read_parquet(tmp_path / "x.parquet")
    expected = by_launch(trace)
    for name in ("start_ns", "dur_ns", "start_ticks", "dur_cycles"):
        np.testing.assert_array_equal(found[name], expected[name])
        assert found[name].dtype == expected[name].dtype


def test_to_arrow_keeps_the_order_of_the_trace(trace: Trace) -> None:
    table = trace.to_arrow()
    assert table.column_names == list(COLUMNS)
    np.testing.assert_array_equal(table["start_ticks"].to_numpy(), trace.start_ticks)
    assert table["region"].to_pylist() == trace.region_names()[trace.region].tolist()
    assert table["value"].null_count == int(np.isnan(trace.value).sum())


def test_problems_and_launches_are_in_the_metadata(trace: Trace, tmp_path: Path) -> None:
    trace.export(tmp_path / "x.parquet")
    about = json.loads(parquet.read_schema(tmp_path / "x.parquet").metadata[b"kscope"])
    assert [problem["text"] for problem in about["problems"]] == [problem.text for problem in trace.problems]
    assert len(about["launches"]) == len(trace.launches)
    assert about["origin_unix_ns"] == trace.origin


def test_row_groups_hold_whole_launches_and_times_are_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar, "GROUP", 40)
    monkeypatch.setattr(columnar, "MOST", 100)
    sizes = [30, 5, 5, 128, 10]
    slabs, at = [], 1000
    for launch, size in enumerate(sizes):
        records = [Rec("dot", at + 100 + 10 * turn, at + 105 + 10 * turn) for turn in range(size)]
        slabs.append(synth.slab(records, log2=7, start=at, end=at + 5000, grid_id=launch + 1))
        at += 1_000_000
    trace = decode(synth.capture(*reversed(slabs), names=NAMES))
    trace.export(tmp_path / "x.parquet")
    file = parquet.ParquetFile(tmp_path / "x.parquet")
    groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
    assert [group.num_rows for group in groups] == [40, 100, 28, 10]
    launch = COLUMNS.index("launch")
    spans = [(group.column(launch).statistics.min, group.column(launch).statistics.max) for group in groups]
    assert spans == [(0, 2), (3, 3), (3, 3), (4, 4)]
    for name in ("start_ticks", "dur_cycles"):
        assert "DELTA_BINARY_PACKED" in groups[0].column(COLUMNS.index(name)).encodings


@pytest.mark.parametrize("name", [*READERS, "x.csv"])
def test_an_empty_trace_is_a_table_without_rows(name: str, tmp_path: Path) -> None:
    decode(synth.capture()).export(tmp_path / name)
    found = READERS.get(name, pandas.read_csv)(tmp_path / name)
    assert list(found.columns) == list(COLUMNS)
    assert len(found) == 0


def test_a_limit_keeps_the_first_by_time(trace: Trace, tmp_path: Path) -> None:
    assert trace.export(tmp_path / "x.csv", limit=4) == 4
    assert sorted(pandas.read_csv(tmp_path / "x.csv")["start_ns"]) == pytest.approx(
        np.sort(trace.start_ns)[:4], abs=1e-3
    )


def test_the_metadata_report_what_a_limit_left_out(trace: Trace, tmp_path: Path) -> None:
    trace.export(tmp_path / "x.parquet", limit=4)
    about = json.loads(parquet.read_schema(tmp_path / "x.parquet").metadata[b"kscope"])
    assert "11 of 15 records left out" in about["problems"][0]["text"]


def test_a_large_csv_is_as_pandas_would_write_it(tmp_path: Path) -> None:
    lines = synth.bulk(300, 100, waves=3)
    trace = decode(Capture(synth.EPOCH, (synth.device(lines, tick_ns=32),), (synth.module(("load", "dot", "tile")),)))
    trace.export(tmp_path / "x.csv")
    frame = trace.to_pandas()
    frame["start_ns"], frame["dur_ns"] = frame["start_ns"].map("{:.3f}".format), frame["dur_ns"].map("{:.3f}".format)
    assert (tmp_path / "x.csv").read_bytes().decode() == frame.to_csv(index=False, lineterminator="\r\n")


def test_csv_names_are_quoted_and_never_formulas(tmp_path: Path) -> None:
    names = ('say "hi", please', "two\nlines", "=1+1", "-2", "+3", "@SUM(A1)", "a\0b", "plain", "ünï")
    slab = synth.slab([Rec(name, 2000 + 10 * at, 2005 + 10 * at) for at, name in enumerate(names)], log2=4)
    decode(synth.capture(slab, names=names)).export(tmp_path / "x.csv")
    text = (tmp_path / "x.csv").read_bytes().decode()
    found = [row["region"] for row in csv.DictReader(io.StringIO(text, newline=""), strict=True)]
    assert found == [
        'say "hi", please', "two\nlines", "'=1+1", "'-2", "'+3", "'@SUM(A1)", "a\N{REPLACEMENT CHARACTER}b", "plain",
        "ünï",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.feather"])
def test_missing_pyarrow_is_reported_with_the_install_command_before_work(
    name: str, trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingError, match=r"pip install '.+\[arrow\]'"):
        trace.export(tmp_path / name)
    assert not list(tmp_path.iterdir())
    with pytest.raises(MissingError, match=r"pip install '.+\[arrow\]'"):
        trace.to_arrow()


def test_options_of_timelines_are_refused(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only timelines have this option"):
        trace.export(tmp_path / "x.csv", group="block")


def test_the_packed_csv_is_gzip(trace: Trace, tmp_path: Path) -> None:
    trace.export(tmp_path / "x.csv.gz")
    trace.export(tmp_path / "x.csv")
    assert gzip.decompress((tmp_path / "x.csv.gz").read_bytes()) == (tmp_path / "x.csv").read_bytes()
