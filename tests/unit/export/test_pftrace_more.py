"""Slices of a .pftrace beyond name and time: arguments, groups, arrows; and the packed file."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st
from replay import Replay, Slice, replay
from synth import Rec, instant

from kscope.capture import layout
from kscope.capture.capture import Capture
from kscope.capture.layout import Kind
from kscope.errors import UsageError
from kscope.export.perfetto import event_rows, row_words
from kscope.trace import Trace, decode

NAMES = (("load", "u32"), ("dot", "u32"), ("wait", "u32"), "tile", "mark", ("queue", "f32"))


def exported(trace: Trace, tmp_path: Path, **options: object) -> Replay:
    trace.export(tmp_path / "x.pftrace", **options)
    found = replay(tmp_path / "x.pftrace")
    assert found.in_order
    assert found.stray_ends == found.unfinished == found.open_arrows == 0
    return found


def spans(found: Replay) -> list[Slice]:
    return [one for one in found.slices if one.name != "no records"]


def notes(found: Replay) -> dict[str, str]:
    """The description of the only warp's row, by name."""
    [text] = [note for path, note in found.notes.items() if "warp" in path[-1]]
    return dict(part.rsplit(" ", 1) for part in text.split(", ") if " " in part)  # type: ignore[misc]  # pairs


def valued(name: str, start: int, end: int, value: int) -> Rec:
    return Rec(name, start, end, Kind.SPAN_VALUE, value)


def test_a_span_carries_its_cycles_its_exact_start_and_its_value(tmp_path: Path) -> None:
    trace = decode(synth.capture(synth.slab([Rec("tile", 2000, 2107), valued("load", 2200, 2301, 5)]), names=NAMES))
    tile, load = spans(exported(trace, tmp_path))
    start = dict(zip(trace.region_names()[trace.region], trace.start_ns, strict=True))
    assert tile.args == {"cycles": 107, "start_ns": pytest.approx(start["tile"])}
    assert load.args == {"cycles": 101, "start_ns": pytest.approx(start["load"]), "value": 5}


def test_slices_without_extra_arguments_have_only_their_value(tmp_path: Path) -> None:
    trace = decode(synth.capture(synth.slab([Rec("tile", 2000, 2107), valued("load", 2200, 2301, 5)]), names=NAMES))
    found = exported(trace, tmp_path, args=False)
    assert {one.name: one.args for one in found.slices} == {"tile": {}, "load": {"value": 5}}


def test_rows_have_the_recording_cost_of_their_warp(tmp_path: Path) -> None:
    slab = synth.slab([Rec("tile", 1700, 2107)] * 9, start=1000, end=9000, width=36, log2=3)
    found = notes(exported(decode(synth.capture(slab, names=NAMES)), tmp_path))
    expected = {
        "cycles": 8000, "records": 9, "dropped": 1, "prologue_least": 36, "prologue_most": 700,
        "epilogue_least": 36, "epilogue_most": 9000 - 2107 + 36,
    }  # fmt: skip
    assert {name: int(found[name]) for name in expected} == expected


@pytest.mark.parametrize("narrowed", ["filter", "limit"])
def test_filters_do_not_change_what_a_row_states_about_its_warp(narrowed: str, tmp_path: Path) -> None:
    records = [Rec("load", 1700, 1800), Rec("dot", 2000, 2100), Rec("load", 2200, 2300)]
    trace = decode(synth.capture(synth.slab(records, start=1000, end=9000), names=("load", "dot")))
    limit = 1 if narrowed == "limit" else None
    part = trace if limit else trace.filter(region="dot")
    whole, shown = notes(exported(trace, tmp_path)), notes(exported(part, tmp_path, limit=limit))
    whole.pop("role load (warp 0,", None)
    assert {name: shown[name] for name in whole if not name.startswith("role")} == {
        name: text for name, text in whole.items() if not name.startswith("role")
    }
    assert (int(shown["prologue_most"]), int(shown["epilogue_most"])) == (
        700, 9000 - 2300 + int(shown["epilogue_least"]),
    )  # fmt: skip


def test_crossing_spans_keep_their_times(tmp_path: Path) -> None:
    records = [Rec("tile", 2000 + 100 * number, 5000 + 200 * number) for number in range(16)]
    slab = synth.slab(records, start=1000, end=9000, start_time=1000, end_time=9000, log2=4)
    found = exported(decode(synth.capture(slab, names=NAMES)), tmp_path)
    expected = [(1000 + 100 * number, 3000 + 100 * number) for number in range(16)]
    assert sorted((one.start, one.dur) for one in spans(found)) == expected


def test_unfinished_warps_have_no_epilogue_arguments(tmp_path: Path) -> None:
    slab = synth.slab([Rec("tile", 1700, 2107)], start=1000, end=None, width=36)
    found = notes(exported(decode(synth.capture(slab, names=NAMES)), tmp_path))
    assert not found.keys() & {"cycles", "epilogue_least", "epilogue_most"}
    assert int(found["prologue_most"]) == 700


def test_globaltimer_ticks_are_not_labeled_cycles(tmp_path: Path) -> None:
    slab = synth.slab([Rec("tile", 3200, 6400)], start_time=1600, end_time=9600, flags=layout.FLAG_GLOBALTIMER)
    [one] = spans(exported(decode(synth.capture(slab, names=NAMES)), tmp_path))
    assert one.args["timer_ns"] == 3200
    assert "cycles" not in one.args


@pytest.mark.parametrize("cycles", [0, 1, 127, 128, (1 << 21) - 1, 1 << 21, (1 << 28) + 5, (1 << 32) - 1])
def test_cycles_of_any_length_are_exact(cycles: int, tmp_path: Path) -> None:
    slab = synth.slab([Rec("tile", 2000, 2000 + cycles)], end=(1 << 32) + 1500)
    trace = decode(synth.capture(slab, names=NAMES))
    [one] = spans(exported(trace, tmp_path))
    assert one.args["cycles"] == cycles == trace.dur_cycles[0]


@pytest.mark.parametrize("value", [0, 1, 127, 300, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
@pytest.mark.parametrize("type", ["i32", "u32", "f32"])
@pytest.mark.parametrize("args", [True, False])
def test_values_of_every_type_are_exact(value: int, type: str, args: bool, tmp_path: Path) -> None:
    records = [valued("v", 2000, 2100, value), instant("v", 2200, value), Rec("v", 2300, 2300, Kind.COUNTER, value)]
    trace = decode(synth.capture(synth.slab(records), names=(("v", type),)))
    found = exported(trace, tmp_path, args=args)
    shown = [one.value for one in spans(found)]
    shown += [one[3] for one in found.instants if one[1] == "v"] + [one[2] for one in found.counters]
    np.testing.assert_array_equal(np.array(shown, float), trace.value)  # NaN is NaN


def test_many_names_and_tracks_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layout for more than 2^14 names and 2^21 tracks, on few of them."""
    records = [
        Rec("tile", 2000, 2600),
        valued("load", 2650, 2690, 3),
        instant("mark", 2700),
        Rec("queue", 2800, 2800, Kind.COUNTER),
    ]
    trace = decode(
        synth.capture(*(synth.slab(records, block=(b, 0, 0), grid=(4, 1, 1)) for b in range(4)), names=NAMES)
    )
    for args in (True, False):
        plain = exported(trace, tmp_path, args=args)
        with monkeypatch.context() as patch:
            patch.setattr(event_rows, "FEW_NAMES", 1)
            many = exported(trace, tmp_path, args=args)
        assert many.slices == plain.slices
        assert (many.instants, many.counters) == (plain.instants, plain.counters)
        assert [one.args for one in many.slices] == [one.args for one in plain.slices]


@pytest.mark.parametrize(
    ("group", "tracks"),
    [
        ("sm", {("SM 4", "block 2 warp 1"), ("SM 4", "block 2 warp 3"), ("SM 11", "block 10 warp 1")}),
        ("block", {("block 2 SM 4", "warp 1"), ("block 2 SM 4", "warp 3"), ("block 10 SM 11", "warp 1")}),
        ("warp", {("warp 1", "block 2 SM 4"), ("warp 3", "block 2 SM 4"), ("warp 1", "block 10 SM 11")}),
    ],
)
def test_lanes_are_grouped_as_requested(group: str, tracks: set[tuple[str, str]], tmp_path: Path) -> None:
    slabs = [
        synth.slab([Rec("tile", 2000, 2100)], sm=sm, block=(block, 0, 0), grid=(20, 1, 1), warp=warp)
        for sm, block, warp in ((4, 2, 1), (4, 2, 3), (11, 10, 1))
    ]
    found = exported(decode(synth.capture(*slabs, names=NAMES)), tmp_path, group=group)
    assert {one.track for one in found.slices} == {("synthetic", " · ".join(track)) for track in tracks}


def test_an_arrow_goes_from_each_load_to_every_warp_that_uses_it(tmp_path: Path) -> None:
    producer = synth.slab([valued("load", 2000 + 100 * tile, 2050 + 100 * tile, tile) for tile in range(3)], warp=0)
    consumers = [
        synth.slab([valued("dot", 2070 + 100 * tile, 2090 + 100 * tile, tile) for tile in range(3)], warp=warp)
        for warp in (1, 2)
    ]
    trace = decode(synth.capture(producer, *consumers, names=NAMES))
    arrows = exported(trace, tmp_path, flows=[("load", "dot")]).arrows
    assert sorted((one.lane, one.value, other.lane, other.value) for one, other in arrows) == sorted(
        ("block 0 warp 0", tile, f"block 0 warp {warp}", tile) for warp in (1, 2) for tile in range(3)
    )


def test_an_arrow_stays_in_its_block_and_launch(tmp_path: Path) -> None:
    load, dot = valued("load", 2000, 2050, 7), valued("dot", 2100, 2150, 7)
    slabs = [
        synth.slab([load], block=(0, 0, 0), grid=(2, 1, 1)),
        synth.slab([dot], block=(1, 0, 0), grid=(2, 1, 1)),
        synth.slab([dot], block=(0, 0, 0), grid=(2, 1, 1), grid_id=2),
    ]
    found = exported(decode(synth.capture(*slabs, names=NAMES)), tmp_path, flows={"load": "dot"})
    assert not found.arrows
    [text] = [name for _, name, _, _ in found.instants if name.startswith("unlinked")]
    assert "2 records of 'dot' without an arrow: no earlier 'load' has the same value" in text


def test_arrows_may_start_and_end_on_the_same_lane(tmp_path: Path) -> None:
    slabs = [synth.slab([valued("load", 2000, 2050, 7), valued("dot", 2100, 2150, 7)], warp=warp) for warp in range(3)]
    arrows = exported(decode(synth.capture(*slabs, names=NAMES)), tmp_path, flows=[("load", "dot")]).arrows
    assert len(arrows) == 3
    assert all(one.track == other.track for one, other in arrows)


def test_arrows_to_an_earlier_wait_point_to_its_end(tmp_path: Path) -> None:
    slabs = [synth.slab([valued("load", 2500, 2600, 4)]), synth.slab([valued("wait", 2000, 2700, 4)], warp=1)]
    [(one, other)] = exported(decode(synth.capture(*slabs, names=NAMES)), tmp_path, flows=[("load", "wait")]).arrows
    assert (one.name, other) == ("load", "load arrived")


def test_reused_slots_have_arrows_to_their_latest_use(tmp_path: Path) -> None:
    records = [
        valued(name, at, at + 40, 1) for at, name in ((2000, "load"), (2100, "dot"), (2200, "load"), (2300, "dot"))
    ]
    arrows = exported(decode(synth.capture(synth.slab(records), names=NAMES)), tmp_path, flows=[("load", "dot")]).arrows
    assert [other.start - one.start for one, other in arrows] == pytest.approx([50.5, 50.5], abs=1)


def test_instants_may_have_arrows(tmp_path: Path) -> None:
    slab = synth.slab([instant("load", 2000, 3), valued("dot", 2100, 2150, 3)])
    [(one, other)] = exported(decode(synth.capture(slab, names=NAMES)), tmp_path, flows=[("load", "dot")]).arrows
    assert (one, other.name) == ("load", "dot")


def test_arrows_from_a_region_without_values_are_refused(tmp_path: Path) -> None:
    trace = decode(synth.capture(synth.slab([Rec("tile", 2000, 2100), valued("dot", 2200, 2300, 1)]), names=NAMES))
    with pytest.raises(UsageError, match="no region 'tile' with value=; this trace has dot"):
        trace.export(tmp_path / "x.pftrace", flows=[("tile", "dot")])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group": "region"}, "expected one of sm, block, warp"),
        ({"args": 1}, "expected True or False"),
        ({"flows": "load"}, "expected pairs of region names"),
        ({"flows": [("load",)]}, "expected pairs of region names"),
        ({"flows": [("load", 3)]}, "expected pairs of region names"),
    ],
)
def test_invalid_export_options_are_refused(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        decode(synth.capture(names=NAMES)).export(tmp_path / "x.pftrace", **options)


def test_the_packed_file_holds_the_same(tmp_path: Path) -> None:
    lines = synth.bulk(100, 60, waves=4)
    trace = decode(Capture(synth.EPOCH, (synth.device(lines, tick_ns=32),), (synth.module(("load", "dot", "tile")),)))
    trace.export(tmp_path / "x.pftrace")
    trace.export(tmp_path / "x.pftrace.gz")
    packed = (tmp_path / "x.pftrace.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "x.pftrace").read_bytes()
    trace.export(tmp_path / "y.pftrace.gz")
    assert (tmp_path / "y.pftrace.gz").read_bytes() == packed


@given(data=st.data())
def test_any_recording_exports_with_any_option(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Every kind of record at every time, with every option: all spans, all values, all arrows."""
    kinds = {"load": (Kind.SPAN_VALUE, Kind.INSTANT_VALUE), "dot": (Kind.SPAN_VALUE,), "tile": (Kind.SPAN,)}
    kinds |= {"mark": (Kind.INSTANT,), "queue": (Kind.COUNTER,)}
    slabs = []
    for warp in range(data.draw(st.integers(1, 3))):
        records = []
        for end in sorted(data.draw(st.lists(st.integers(0, 30), max_size=8))):
            name = data.draw(st.sampled_from(sorted(kinds)))
            kind = data.draw(st.sampled_from(kinds[name]))
            start = data.draw(st.integers(0, end)) if kind <= Kind.SPAN_VALUE else end
            records.append(Rec(name, start * 990 + 5000, end * 990 + 5000, kind, data.draw(st.integers(0, 3))))
        slabs.append(synth.slab(records, warp=warp))
    trace = decode(synth.capture(*slabs, names=NAMES))
    have = {region.name for region in trace.regions if region.kind in (Kind.SPAN_VALUE, Kind.INSTANT_VALUE)}
    pairs = data.draw(st.lists(st.tuples(*2 * [st.sampled_from(sorted(have))]), max_size=2)) if have else []
    options = {"group": data.draw(st.sampled_from(["sm", "block", "warp"])), "args": data.draw(st.booleans())}
    found = exported(trace, tmp_path_factory.mktemp("any"), flows=pairs, **options)
    assert len(spans(found)) == int(trace.is_span.sum())
    shown = [one.value for one in spans(found) if one.value is not None]
    held = trace.value[trace.is_span & (trace.kind == Kind.SPAN_VALUE)]
    assert sorted(shown) == sorted(held.tolist())
    for one, other in found.arrows:
        if isinstance(one, Slice) and isinstance(other, Slice):
            assert one.value == other.value
            assert (one.name, other.name) in pairs
            assert one.start < other.start + other.dur


def test_impossible_cycle_counts_are_dropped() -> None:
    assert np.iinfo(np.int64).max > row_words.MOST_CYCLES > 1.98e9 * 3600 * 24
