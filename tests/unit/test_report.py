"""The report contains every record, warp and number of the trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import reports
import synth
from synth import Rec, instant

from kscope.capture.capture import Capture, load_capture
from kscope.capture.layout import Kind
from kscope.report.drawn_warps import arrange
from kscope.report.pack import narrow, pack, zigzag
from kscope.trace import Trace, decode

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NAMES = ("load", ("dot", "i32"), "mark", ("queue", "u32"), "tile", ("part", "f32"))


def several() -> Trace:
    """Nested spans, values of all types, points, counters, a warp that did not finish, records that were lost."""
    records = [
        Rec("load", 2000, 2198),
        Rec("dot", 2200, 2398, Kind.SPAN_VALUE, -5),
        instant("mark", 2400),
        Rec("queue", 2410, 2410, Kind.COUNTER, 3),
        Rec("part", 2420, 2440, Kind.SPAN_VALUE, int(np.float32(0.25).view(np.uint32))),
        Rec("tile", 1990, 2600),
    ]
    slabs = [synth.slab(records, sm=sm, block=(sm, 0, 0), grid=(9, 1, 1)) for sm in (3, 8)]
    slabs.append(synth.slab(records[:2], sm=3, block=(0, 0, 0), grid=(9, 1, 1), end=None))
    return decode(synth.capture(*slabs, names=NAMES))


def large(slabs: int = 400, records: int = 90) -> Trace:
    lines = synth.bulk(slabs, records, waves=5)
    return decode(Capture(synth.EPOCH, (synth.device(lines, tick_ns=32),), (synth.module(("load", "dot", "tile")),)))


TRACES = {"several": several, "large": large} | {
    path.stem: (lambda path=path: decode(load_capture(path))) for path in sorted(GOLDEN.glob("*.kscope"))
}


def rows(trace: Trace, found: reports.Report) -> np.ndarray:
    """The row of trace.warps of each warp of the report, matched by its labels."""
    drawn = found.columns("warps")
    warps = trace.warps
    known = {
        key: row
        for row, key in enumerate(
            zip(warps.launch.tolist(), warps.block.tolist(), warps.warp.tolist(), warps.lane.tolist(), strict=True)
        )
    }
    keys = zip(*(drawn[key].tolist() for key in ("launch", "block", "warp", "lane")), strict=True)
    return np.array([known[key] for key in keys])


@pytest.mark.parametrize("name", TRACES)
def test_every_record_is_in_the_report_exactly(name: str) -> None:
    trace = TRACES[name]()
    found = reports.written(trace)
    records = found.records()
    row = rows(trace, found)[records["warp"]]
    order = np.argsort(row, kind="stable")
    assert (row[order] == trace.track).all()
    dur = np.maximum(trace.dur_cycles, 0)
    assert (records["dur"][order] == dur).all()
    assert (records["end"][order] == trace.start_ticks + dur - trace.warps.first_tick[trace.track]).all()
    names = np.array(found.about["names"], object)
    assert (names[records["name"][order]] == trace.region_names()[trace.region]).all()
    valued = records["valued"][order]
    assert (valued == ~np.isnan(trace.value)).all()
    assert (records["bits"][order][valued] == trace.bits[valued]).all()


@pytest.mark.parametrize("name", TRACES)
def test_every_warp_has_its_time_and_its_place(name: str) -> None:
    trace = TRACES[name]()
    found = reports.written(trace)
    drawn, row, warps = found.columns("warps"), rows(trace, found), trace.warps
    assert sorted(row) == list(range(len(warps)))
    assert drawn["start"] + found.about["base"] == pytest.approx(warps.start_ns[row], abs=1e-3)
    done = drawn["done"].astype(bool)
    assert (done == warps.finished[row]).all()
    assert (drawn["end"] + found.about["base"] - warps.end_ns[row] > -1e-3)[done].all()
    places = np.array(found.about["places"])[drawn["place"]]
    assert (places[:, 0] == warps.device[row]).all()
    assert (places[:, 1] == warps.sm[row]).all()
    assert (drawn["lost"] == np.maximum(warps.written - warps.records, 0)[row]).all()


@pytest.mark.parametrize("name", TRACES)
def test_warps_of_one_row_never_run_at_the_same_time(name: str) -> None:
    drawn = reports.written(TRACES[name]()).columns("warps")
    order = np.lexsort((drawn["start"], drawn["row"], drawn["place"]))
    assert (order == np.arange(len(order))).all(), "by place, row and start: the page searches in it"
    same = (np.diff(drawn["place"].astype(int)) == 0) & (np.diff(drawn["row"].astype(int)) == 0)
    assert (drawn["start"][1:] >= drawn["end"][:-1])[same].all()


def test_warps_of_a_block_are_in_adjacent_rows() -> None:
    trace = large()
    drawn = reports.written(trace).columns("warps")
    for block in (0, 7, 49):
        mine = np.flatnonzero(drawn["block"] == block)
        first = drawn["row"][mine].min()
        assert dict(zip(drawn["warp"][mine], drawn["row"][mine] - first, strict=True)) == {w: w for w in range(8)}


def test_report_rows_are_reused_after_their_block_ended() -> None:
    lives = ((1000, 9000), (2000, 5000), (6000, 8000), (9500, 9900))
    slabs = [
        synth.slab([Rec("load", start + 10, end - 10)], start=start, end=end, block=(number, 0, 0), grid=(4, 1, 1))
        for number, (start, end) in enumerate(lives)
    ]
    trace = decode(synth.capture(*slabs))
    drawn = reports.written(trace).columns("warps")
    assert dict(zip(drawn["block"], drawn["row"], strict=True)) == {0: 0, 1: 1, 2: 1, 3: 0}


def test_the_row_of_an_unfinished_warp_is_not_reused() -> None:
    hung = synth.slab([Rec("load", 1100, 1200)], start=1000, end=None, block=(0, 0, 0), grid=(2, 1, 1))
    late = synth.slab([Rec("load", 8100, 8200)], start=8000, end=9000, block=(1, 0, 0), grid=(2, 1, 1))
    drawn = reports.written(decode(synth.capture(hung, late))).columns("warps")
    assert sorted(zip(drawn["block"], drawn["row"], drawn["done"], strict=True)) == [(0, 0, 0), (1, 1, 1)]


def test_filters_do_not_change_an_unfinished_warps_lifetime() -> None:
    trace = decode(synth.capture(synth.slab([Rec("load", 2000, 2100), Rec("dot", 5000, 9000)], end=None)))
    shown = (trace, trace.filter(region="load"), trace.filter(region="dot"))
    ends = [arrange(one).end[0] for one in shown]
    assert ends == [ends[0]] * 3
    assert ends[0] == pytest.approx((9000 - 1000) * trace.warps.tick_ns[0])


def test_spans_that_cross_are_on_separate_lines() -> None:
    records = [Rec("load", 2000, 2300), Rec("dot", 2100, 2400), Rec("load", 2350, 2500)]
    found = reports.written(decode(synth.capture(synth.slab(records)))).records()
    for line in set(found["line"].tolist()):
        end, dur = (found[key][found["line"] == line] for key in ("end", "dur"))
        assert ((end - dur)[1:] >= end[:-1]).all()
    assert len(set(found["line"].tolist())) == 2


def test_counters_are_below_all_spans() -> None:
    found = reports.written(several())
    records, names = found.records(), np.array(found.about["names"], object)
    assert records["line"][names[records["name"]] == "queue"].min() > records["line"][records["kind"] == 0].max()


def test_the_report_table_equals_the_summary() -> None:
    trace = several()
    summary, found = trace.summary(), reports.written(trace).about
    assert [(row["region"], row["count"], row["warp_time_ns"]) for row in found["table"]] == [
        (row.region, row.count, row.warp_time_ns) for row in summary.regions
    ]
    assert [row["name"] for row in found["points"]] == [row.name for row in summary.points]
    assert [one["text"] for one in found["problems"]] == [one.text for one in trace.problems]


def test_region_names_are_ordered_by_total_time() -> None:
    trace = large()
    assert reports.written(trace).about["names"] == [row.region for row in trace.summary().regions]


def test_a_filtered_trace_shows_the_warps_that_still_have_records() -> None:
    trace = large().filter(sm=range(3), region="tile")
    found = reports.written(trace)
    assert found.about["names"] == ["tile"]
    assert found.about["places"] == [[0, 0], [0, 1], [0, 2]]
    assert len(found.records()["warp"]) == len(trace)
    assert found.about["filtered"]


def test_a_trace_without_records_is_a_page_too() -> None:
    found = reports.written(decode(synth.capture()))
    assert found.about["names"] == [] and found.about["places"] == [] and found.about["chunks"] == []
    alive = reports.written(decode(synth.capture(synth.slab([]))))
    assert len(alive.columns("warps")["place"]) == 1


def test_damaged_clocks_are_kept_as_they_are() -> None:
    records = [Rec("load", 5000, 5100), Rec("dot", 3000, 3050), Rec("load", 4000, 4100)]
    trace = decode(synth.capture(synth.slab(records, start=4500)))
    found = reports.written(trace)
    records_ = found.records()
    end = trace.start_ticks + np.maximum(trace.dur_cycles, 0) - trace.warps.first_tick[trace.track]
    assert (records_["end"] == end).all()


@pytest.mark.parametrize(
    "column",
    [
        np.arange(300, dtype=np.uint8),
        np.array([0, 65535, 256], np.uint16),
        np.array([1 << 31, 7], np.uint32),
        np.array([1 << 52, 3], np.uint64),
        np.array([np.nan, -np.inf, 1e-300]),
        np.zeros(0, np.float32),
    ],
)
def test_columns_come_back_as_they_were(column: np.ndarray) -> None:
    packed = pack({"before": np.array([1, 2, 3], np.uint8), "column": column})
    about = {"specs": {"x": packed.spec}}
    read = reports.Report("", [("script", {"id": "data-x"}, packed.text)], about).columns("x")
    assert read["column"].dtype == column.dtype
    assert np.array_equal(read["column"], column, equal_nan=column.dtype.kind == "f")


def test_columns_of_a_wrong_type_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="'at' is int64: expected one of u1"):
        pack({"at": np.arange(3)})


def test_narrow_takes_the_smallest_type_and_zigzag_keeps_signs() -> None:
    assert [narrow(np.array([0, top])).dtype.itemsize for top in (255, 256, 65536, 1 << 32)] == [1, 2, 4, 8]
    assert zigzag(np.array([0, -1, 1, -2, 2])).tolist() == [0, 1, 2, 3, 4]


def test_report_size_is_a_few_bytes_per_record() -> None:
    trace = large(2000, 90)
    assert len(reports.written(trace).html) < 140_000 + 8 * len(trace)


def test_two_kernels_with_values_of_other_types_keep_them_apart() -> None:
    records = [Rec("load", 2000, 2198, Kind.SPAN_VALUE, 7)]
    slabs = [synth.slab(records, kernel=key, grid_id=key, sm=key) for key in (1, 2)]
    modules = (synth.module((("load", "i32"),), 1, "one"), synth.module((("load", "f32"),), 2, "two"))
    trace = decode(Capture(synth.EPOCH, (synth.device(slabs),), modules))
    about = reports.written(trace).about
    assert np.array(about["codes"]["types"]).shape == (2, len(about["codes"]["name"]))
    assert sorted(map(tuple, about["codes"]["types"])) == [(0,), (2,)]
