"""Values and keys of 64 bits: exact in every output, and unknown where half of one was lost."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st
from synth import Rec

import kscope
import kscope_sim
from kscope.capture import layout
from kscope.capture.layout import Kind
from kscope.errors import UsageError
from kscope.marks.wide_values import CODES, halves, join_halves

EDGES = (
    0,
    1,
    -1,
    7,
    (1 << 31) - 1,
    1 << 31,
    -(1 << 31),
    -(1 << 31) - 1,
    1 << 32,
    (1 << 53) + 1,
    (1 << 63) - 1,
    -(1 << 63),
)
FLOATS = (0.0, -0.0, 1.5, 0.1, -1e300, float("inf"), 5e-324, 2.0**60 + 2.0**10)
NAMES = (("n", "i64"), ("u", "u64"), ("f", "f64"), ("small", "i32"), "plain")


def rows(name: str, kind: str, bits: int, at: int, of: Kind = Kind.INSTANT_VALUE) -> list[Rec]:
    """The rows of a value, by docs/design/protocol.md."""
    word, more = halves(kind, bits)
    one = Rec(name, at, at, of, word)
    if not more:
        return [one]
    return [Row(name, at, at, layout.MORE, more), Row(name, at, at, of | layout.HAS_MORE, word)]


def Row(name: str, start: int, end: int, kind: int, bits: int) -> Rec:  # noqa: N802  # as Rec, of any kind
    return Rec(name, start, end, kind, bits)  # type: ignore[arg-type]  # kinds of rows that are no records


def decoded(records: list[Rec], **options: Any) -> kscope.Trace:
    return kscope.decode(synth.capture(synth.slab(records, **options), names=NAMES))


@given(st.sampled_from(["i64", "u64", "f64"]), st.integers(0, (1 << 64) - 1))
def test_halves_of_any_bits_are_joined_again(kind: str, bits: int) -> None:
    word, more = halves(kind, bits)
    found = join_halves(np.array([CODES[kind]], np.uint8), np.array([word], np.uint32), np.array([more], np.uint32))
    assert int(found[0]) == bits


def test_integers_that_fit_32_bits_and_short_fractions_take_one_row() -> None:
    assert [halves("i64", n & (1 << 64) - 1)[1] for n in (0, 5, -1, -(1 << 31), (1 << 31) - 1)] == [0] * 5
    assert halves("u64", (1 << 32) - 1)[1] == 0
    assert halves("f64", int(np.float64(1.5).view(np.uint64)))[1] == 0
    assert all(halves("i64", n & (1 << 64) - 1)[1] for n in (1 << 31, -(1 << 31) - 1, 1 << 32))


def kernel(warp: Any) -> None:
    for n in EDGES:
        with kscope.region("n", value=np.int64(n)):
            warp.work(20)
        kscope.counter("u", np.uint64(n & (1 << 64) - 1))
    for number in FLOATS:
        kscope.instant("f", np.float64(number))
    kscope.instant("small", 5)


def recorded(body: Any = kernel, **options: Any) -> kscope.Trace:
    with kscope.profile(**options) as prof:
        kscope_sim.launch(body, grid=1, block=32)
    return prof.trace


def integers(trace: kscope.Trace, name: str) -> list[int]:
    whole = trace.filter(region=name)
    return [whole.integers.number(at) for at in range(len(whole))]  # type: ignore[union-attr]  # there are


@pytest.mark.parametrize("native", [True, False])
def test_every_value_is_exact(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:
        monkeypatch.setattr("kscope.native.available", lambda: False)
    trace = recorded()
    assert integers(trace, "n") == list(EDGES)
    assert integers(trace, "u") == [n & (1 << 64) - 1 for n in EDGES]
    assert trace.filter(region="f").value.tolist() == list(FLOATS)
    assert trace.filter(region="small").value.tolist() == [5]
    assert {problem.kind for problem in trace.problems} <= {"rate"}
    assert {region.name for region in trace.regions[1:]} == {"n", "u", "f", "small"}
    assert trace.warps.written.tolist() == trace.warps.records.tolist() == [len(trace)]


def test_every_output_has_the_exact_numbers(tmp_path: Path) -> None:
    trace = recorded()
    trace.export(tmp_path / "a.csv")
    trace.export(tmp_path / "a.json")
    with open(tmp_path / "a.csv", newline="") as file:
        found = [row["value"] for row in csv.DictReader(file) if row["region"] == "n"]
    assert list(map(int, found)) == list(EDGES)
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    assert [one["args"]["value"] for one in events if one["name"] == "n" and one["ph"] == "X"][::-1] == list(EDGES)
    frame = trace.to_pandas()
    assert frame[frame.region == "n"].exact_value.tolist() == list(EDGES)
    assert frame[frame.region == "f"].exact_value.isna().all()
    assert "exact_value" not in recorded(lambda warp: kscope.instant("a", 3)).to_pandas()
    pytest.importorskip("pyarrow")
    table = trace.filter(region="n").to_arrow()
    assert table.column("exact_value").to_pylist() == list(EDGES)


def test_a_column_of_large_unsigned_numbers_is_unsigned() -> None:
    whole = recorded().filter(region="u")
    assert whole.to_pandas().exact_value.tolist() == [n & (1 << 64) - 1 for n in EDGES]


def test_an_integer_of_32_bits_and_one_of_64_may_share_a_name() -> None:
    trace = recorded(lambda warp: [kscope.instant("n", value) for value in (-3, np.int64(1 << 40), 1 << 41)])
    assert integers(trace, "n") == [-3, 1 << 40, 1 << 41]
    with pytest.raises(UsageError, match="a value of type u64 at one place and i64"):
        recorded(lambda warp: [kscope.instant("n", value) for value in (np.int64(1), np.uint64(1))])


def test_keys_pair_by_all_their_bits() -> None:
    def body(warp: Any) -> None:
        keys = [
            np.int64(1 << 40),
            np.int64(1 << 41),
            np.int64(0),
            np.int64(-1),
            np.int64((1 << 53) + 1),
            np.int64(1 << 53),
        ]
        for key in keys:
            kscope.begin("c", key)
        for n, key in enumerate(keys):
            warp.work(1000 * (n + 1))
            kscope.end("c", int(key) if abs(int(key)) < 9 else key)

    trace = recorded(body)
    assert [one.kind for one in trace.problems if one.kind == "unpaired"] == []
    took = trace.filter(region="c").dur_cycles
    assert len(took) == 6 and (np.diff(took) > 900).all()


@pytest.mark.parametrize("fill", ["ring", "stop"])
@pytest.mark.parametrize("seed", range(6))
def test_a_full_buffer_never_leaves_a_wrong_value(fill: str, seed: int) -> None:
    dice = Random(seed)
    numbers = [dice.choice([dice.randrange(-(1 << 63), 1 << 63), dice.randrange(-99, 99)]) for _ in range(40)]

    def body(warp: Any) -> None:
        for number in numbers:
            kscope.instant("n", np.int64(number), when=True)
            kscope.instant("plain")

    trace = recorded(body, records=dice.choice([4, 8, 16]), fill=fill)
    known = trace.filter(region="n")
    valued = known.take(np.flatnonzero(~np.isnan(known.value)))
    kept = [valued.integers.number(at) for at in range(len(valued))] if valued.integers is not None else []
    kept = kept or [int(number) for number in valued.value]
    assert kept == (numbers[: len(kept)] if fill == "stop" else numbers[len(numbers) - len(kept) :])
    lost = sum(problem.count for problem in trace.problems if problem.kind == "half")
    assert lost == len(known) - len(valued) <= 1
    assert fill == "ring" or not lost


def test_a_key_that_lost_half_pairs_with_nothing() -> None:
    begin = rows("c\x1fkscope.begin", "i64", 1 << 40, 2000)[1:]  # its other half was overwritten
    end = rows("c\x1fkscope.end", "i64", 0, 2100)
    names = (("c\x1fkscope.begin", "i64"), ("c\x1fkscope.end", "i64"))
    trace = kscope.decode(synth.capture(synth.slab([*begin, *end]), names=names))
    assert sorted(region.name for region in map(trace.regions.__getitem__, trace.region)) == [
        "c (ended, not begun)",
        "c (not ended)",
    ]
    assert {problem.kind: problem.count for problem in trace.problems}["half"] == 1


@pytest.mark.parametrize("damage", range(8))
def test_a_damaged_row_makes_its_value_unknown(damage: int) -> None:
    """Any change of the words that tie two rows together."""
    whole = rows("n", "i64", 1 << 40, 2000)
    more, main = whole
    changed = [
        [main],
        [more, Rec("plain", 2001, 2001, Kind.INSTANT), main],
        [main, more],
        [Row("n", 1999, 2000, layout.MORE, more.bits), main],
        [Row("f", 2000, 2000, layout.MORE, more.bits), main],
        [Row("n", 2000, 2000, Kind.INSTANT_VALUE, more.bits), main],
        [more, Row("small", 2000, 2000, main.kind, main.bits)],
        [Row("n", 2000, 2001, layout.MORE, more.bits), main],
    ][damage]
    trace = decoded(changed)
    assert (1 << 40) not in trace.value.tolist()
    assert {problem.kind: problem.count for problem in trace.problems}["half"] == 1
    assert np.isnan(trace.value[-1]) or damage in (2, 5)


def test_rows_of_two_warps_are_not_tied_together() -> None:
    more, main = rows("n", "i64", 1 << 40, 2000)
    lines = np.concatenate([synth.slab([more]), synth.slab([main], warp=1)])
    trace = kscope.decode(synth.capture(lines, names=NAMES))
    assert np.isnan(trace.value).all()


def test_kinds_of_rows_without_a_known_name_stay_unknown_records() -> None:
    trace = decoded([Row("nobody", 2000, 2000, layout.MORE, 1), Row("nobody", 2000, 2000, 12, 1)])
    assert len(trace) == 2 and not any(region.known for region in map(trace.regions.__getitem__, trace.region))


def test_a_saved_capture_keeps_them(tmp_path: Path) -> None:
    with kscope.profile(str(tmp_path / "a.kscope")):
        kscope_sim.launch(kernel, grid=1, block=32)
    assert integers(kscope.load(str(tmp_path / "a.kscope")), "n") == list(EDGES)


def test_arrows_join_equal_numbers_that_a_double_confuses(tmp_path: Path) -> None:
    def body(warp: Any) -> None:
        for n in (1 << 53, (1 << 53) + 1):
            kscope.instant("from", np.int64(n))
        with kscope.region("to", value=np.int64(1 << 53)):
            warp.work(50)

    recorded(body).export(tmp_path / "a.json", flows=[("from", "to")])
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    (start,) = [one for one in events if one["ph"] == "s"]
    instants = sorted(one["ts"] for one in events if one["name"] == "from" and one["ph"] == "i")
    assert start["ts"] == pytest.approx(instants[0])
