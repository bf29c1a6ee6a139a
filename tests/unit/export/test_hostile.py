"""Hostile names and damaged captures: every format is written, can be read, and is the only file written."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st
from replay import replay
from synth import Rec, instant

from kscope.capture.capture import Capture
from kscope.capture.layout import Kind
from kscope.capture.model import KernelMeta, Problem
from kscope.export import suffixes
from kscope.export.view_options import GROUPS, PROCESSES
from kscope.trace import Trace, decode
from kscope.tracedata.data import COLUMNS

NAMES = (
    "<script>alert(1)</script>", 'a "quoted" \\ name', "line\nbreak\r", "nul\0nul", "=cmd|' /C calc'!A0", "\ud800 lone",
    "../../../etc/passwd", "</style><img src=x onerror=alert(1)>", "\u202eright to left\u2028", "a;b;c 12", "x" * 500,
    "ünï 🙂",
)  # fmt: skip
PARQUET = {".parquet", ".arrow", ".feather"}
HERE = [suffix for suffix in suffixes() if suffix not in PARQUET or find_spec("pyarrow")]
"""Formats that can be written here."""


def _columns(path: Path) -> None:
    import pyarrow as arrow
    from pyarrow import parquet

    table = parquet.read_table(path) if path.suffix == ".parquet" else arrow.ipc.open_file(str(path)).read_all()
    assert table.column_names == list(COLUMNS)
    json.loads(table.schema.metadata[b"kscope"])


def _csv(path: Path) -> None:
    rows = list(csv.reader(io.StringIO(path.read_bytes().decode(), newline=""), strict=True))
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row)


def _folded(path: Path) -> None:
    assert all(line.rsplit(" ", 1)[1].isdecimal() for line in path.read_text().split("\n")[:-1])


def _html(path: Path) -> None:
    text = path.read_bytes().decode()
    assert "<script>alert" not in text
    assert "<img src=x" not in text


def _json(path: Path) -> None:
    orjson.loads(path.read_bytes())


def _pftrace(path: Path) -> None:
    found = replay(path)
    assert found.in_order
    assert found.stray_ends == found.unfinished == found.open_arrows == 0


READERS: dict[str, Callable[[Path], object]] = {
    ".pftrace": _pftrace, ".json": _json, ".speedscope.json": _json, ".hatchet": _json, ".csv": _csv,
    ".folded": _folded, ".html": _html, **dict.fromkeys(PARQUET, _columns),
}  # fmt: skip


def written(trace: Trace, folder: Path, suffix: str, **options: Any) -> None:
    """Export and read back; no other file may be in the folder."""
    path = folder / f"x{suffix}"
    trace.export(path, **options)
    assert list(folder.iterdir()) == [path]
    if suffix.endswith(".gz"):
        plain = path.with_name(path.name.removesuffix(".gz"))
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
        path, suffix = plain, suffix.removesuffix(".gz")
    READERS[suffix](path)
    path.unlink()


def hostile() -> Trace:
    """A trace with hostile names of regions, kernel and problems."""
    names = [name.encode("utf-8", "replace").decode() for name in NAMES]
    records = [Rec(name, 2000 + 10 * at, 2005 + 10 * at) for at, name in enumerate(names)]
    records += [instant(NAMES[1], 3000, 5), Rec(NAMES[0], 3100, 3100, Kind.COUNTER, 7)]
    slab = synth.slab(records, log2=4)
    capture = synth.capture(slab, names=names)
    module = capture.modules[0]
    kernels = (KernelMeta(NAMES[0], module.kernels[0].id, 3),)
    problems = tuple(Problem("missing", name) for name in NAMES)
    trace = decode(replace(capture, modules=(replace(module, kernels=kernels),), problems=problems))
    # names as no file would have them, where a program made the trace
    regions = tuple(replace(region, name=region.name.replace("? lone", NAMES[5])) for region in trace.regions)
    return replace(
        trace,
        regions=regions,
        kernels=(NAMES[5],),
        launches=tuple(replace(one, kernel=NAMES[5]) for one in trace.launches),
    )


@pytest.mark.parametrize("suffix", HERE)
def test_every_format_carries_hostile_names(suffix: str, tmp_path: Path) -> None:
    written(hostile(), tmp_path, suffix)


def test_names_come_back_as_they_were(tmp_path: Path) -> None:
    hostile().export(tmp_path / "x.pftrace")
    hostile().export(tmp_path / "x.json")
    shown = {one.name for one in replay(tmp_path / "x.pftrace").slices}
    events = {event["name"] for event in orjson.loads((tmp_path / "x.json").read_bytes())["traceEvents"]}
    expected = {name.encode("utf-8", "replace").decode() for name in NAMES}
    assert shown >= expected
    assert events >= expected


def _everywhere(name: str) -> Trace:
    """A trace of two launches that uses the name everywhere, for a span and a counter."""
    records = [Rec("a", 2000, 2100), Rec("a", 2200, 2200, Kind.COUNTER, 3)]
    trace = decode(synth.capture(*(synth.slab(records, grid_id=number) for number in (1, 2)), names="a"))
    return replace(
        trace,
        regions=tuple(replace(one, name=name, track=name, where=f"{name}:{name}") for one in trace.regions),
        kernels=(name,),
        launches=tuple(replace(one, kernel=name) for one in trace.launches),
    )


@pytest.mark.parametrize("name", [*NAMES, "nul\0", "", "9" * 30, "9" * 5000])
@pytest.mark.parametrize("suffix", sorted(READERS.keys() & HERE))
def test_every_name_field_accepts_any_text(suffix: str, name: str, tmp_path: Path) -> None:
    several = [{"group": group, "processes": processes} for group in GROUPS for processes in PROCESSES]
    for options in several if suffix in (".pftrace", ".json") else [{}]:
        written(_everywhere(name), tmp_path, suffix, **options)


@pytest.mark.parametrize("name", [*NAMES, "nul\0", ""])
def test_a_table_of_pandas_holds_any_name(name: str) -> None:
    pytest.importorskip("pandas")
    table = _everywhere(name).to_pandas()
    for column in ("kernel", "region", "track"):
        assert set(table[column]) == {name.encode("utf-8", "replace").decode()}


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_one_long_name_makes_neither_rows_nor_memory_larger(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kscope.export.text_cells.MOST", 1 << 16)
    names = ("x" * 20_000, "y" * 100)
    records = [Rec(names[at > 0], 2000 + 10 * at, 2005 + 10 * at) for at in range(2000)]
    trace = decode(synth.capture(synth.slab(records, log2=11), names=names))
    tracemalloc.start()
    try:
        trace.export(tmp_path / f"x{suffix}")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert (tmp_path / f"x{suffix}").stat().st_size < 1_000_000


def test_instants_with_two_times_are_points(tmp_path: Path) -> None:
    slab = synth.slab(
        [Rec("load", 2000, 2100, Kind.INSTANT), Rec("tile", 1990, 2600), Rec("tile", 2700, 2800, Kind.COUNTER)]
    )
    for suffix in (".pftrace", ".json"):
        written(decode(synth.capture(slab, names=("load", "tile"))), tmp_path, suffix)


@pytest.mark.parametrize("suffix", HERE)
@pytest.mark.parametrize(("tick", "pace"), [((1 << 57) - 1, 0.5), (-(1 << 57), 10.0), (1 << 62, 40.0)])
def test_out_of_range_times_are_exported(suffix: str, tick: int, pace: float, tmp_path: Path) -> None:
    """Columns of damaged clocks: more than 64 bits of ns."""
    trace = decode(
        synth.capture(synth.slab([Rec("load", 2000, 2100), Rec("tile", 1990, 2600)]), names=("load", "tile"))
    )
    pace_of = np.full(len(trace.warps), pace)
    warps = replace(trace.warps, tick_ns=pace_of, end_ns=trace.warps.start_ns + 2.0**62)
    ticks = trace.start_ticks + np.array([0, tick]) // 2
    written(replace(trace, start_ticks=ticks, warps=warps), tmp_path, suffix)


EXTREMES = (1e20, -3.4028234663852886e38, 2.0**64, float("inf"), float("-inf"), float("nan"))


@pytest.mark.parametrize("suffix", HERE)
def test_every_format_carries_every_float(suffix: str, tmp_path: Path) -> None:
    written(_floats(), tmp_path, suffix)


def test_large_floats_keep_their_value(tmp_path: Path) -> None:
    _floats().export(tmp_path / "x.csv")
    _floats().export(tmp_path / "x.json")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "x.csv").read_text())))
    events = orjson.loads((tmp_path / "x.json").read_bytes())["traceEvents"]
    expected = [np.float32(value) for value in EXTREMES[:3]]
    for kind, phase in (("counter", "C"), ("instant_value", "i")):
        found = [row["value"] for row in rows if row["kind"] == kind]
        assert [np.float32(value) for value in found[:3]] == expected
        assert found[3:] == ["inf", "-inf", ""]
        values = {event.get("args", {}).get("value") for event in events if event["ph"] == phase}
        assert {np.float32(value) for value in values if value is not None} == set(expected)


def _floats() -> Trace:
    """Extreme 32-bit floats as the values of instants and counters."""
    bits = np.array(EXTREMES, np.float32).view(np.uint32).tolist()
    records = [instant("dot", 2000 + 10 * at, word) for at, word in enumerate(bits)]
    records += [Rec("load", 3000 + at, 3000 + at, Kind.COUNTER, word) for at, word in enumerate(bits)]
    return decode(synth.capture(synth.slab(records, log2=4), names=(("load", "f32"), ("dot", "f32"))))


@pytest.mark.parametrize("pace", [0.0, 1e-15, 1e15])
def test_impossible_clock_rates_are_dropped(pace: float, tmp_path: Path) -> None:
    """Clock rates of damaged anchors."""
    trace = decode(synth.capture(synth.slab([Rec("load", 2000, 2100)])))
    warps = replace(trace.warps, tick_ns=np.full(len(trace.warps), pace))
    replace(trace, warps=warps).export(tmp_path / "x.hatchet")
    assert orjson.loads((tmp_path / "x.hatchet").read_bytes())[1] == {"CUDA": {"0": {}}}


@given(data=st.data())
def test_damaged_words_are_exported(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bits flipped and lines cut off anywhere; each example tries every format."""
    records = [Rec("load", 2000, 2198), Rec("dot", 2200, 2398, Kind.SPAN_VALUE, 5), Rec("tile", 1990, 2600)]
    slabs = [synth.slab(records, sm=sm, block=(sm, 0, 0), grid=(9, 1, 1)) for sm in range(3)]
    lines = np.concatenate(slabs)
    words = lines.reshape(-1)
    for _ in range(data.draw(st.integers(1, 12))):
        words[data.draw(st.integers(0, len(words) - 1))] ^= np.uint32(1 << data.draw(st.integers(0, 31)))
    repaired = data.draw(st.booleans())
    if repaired:  # nonsense headers with a valid check word
        for at in range(0, len(lines), len(slabs[0])):
            lines[at, 15] = _check(lines[at : at + 2])
    lines = lines[: data.draw(st.integers(0, len(lines)))] if data.draw(st.booleans()) else lines
    trace = decode(Capture(synth.EPOCH, (synth.device(lines),), (synth.module(("load", ("dot", "f32"), "tile")),)))
    folder = tmp_path_factory.mktemp("fuzz")
    suffix = data.draw(st.sampled_from(HERE))
    written(trace, folder, suffix, **({"group": "block"} if suffix == ".pftrace" else {}))


def _check(header: np.ndarray) -> np.uint32:
    from kscope.capture import layout

    return np.uint32(layout.header_check(header.reshape(1, 32))[0])
