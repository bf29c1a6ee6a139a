"""The public columns of a trace, with and without filters."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import synth

import kscope
from kscope.errors import MissingError, UsageError
from kscope.trace import Trace, decode
from kscope.tracedata.data import COLUMNS


@pytest.fixture
def trace() -> Trace:
    """Two blocks on two SMs; tile holds load and dot."""
    slabs = [
        synth.slab(synth.EVERY_KIND, sm=sm, block=(block, 0, 0), grid=(2, 1, 1), warp=block)
        for block, sm in ((0, 3), (1, 8))
    ]
    return decode(synth.capture(*slabs, names=synth.ITS_NAMES))


def names(trace: Trace) -> list[str]:
    return list(trace.region_names()[trace.region])


def test_trace_columns_contain_the_recorded_values(trace: Trace) -> None:
    assert names(trace) == ["load", "dot", "mark", "queue", "tile"] * 2
    assert [trace.kernels[index] for index in trace.kernel] == ["matmul"] * 10
    assert trace.block.tolist() == trace.warp.tolist() == [0] * 5 + [1] * 5
    assert trace.sm.tolist() == [3] * 5 + [8] * 5
    assert trace.lane.tolist() == trace.launch.tolist() == [0] * 10
    assert trace.dur_cycles.tolist() == [198, 198, 0, 0, 610] * 2
    assert trace.depth.tolist() == [1, 1, 1, 1, 0] * 2
    assert trace.dur_ns[:5] == pytest.approx([100, 100, 0, 0, 308.08], rel=1e-4)
    assert trace.start_ns[:5] - trace.start_ns[4] == pytest.approx([5.05, 106.06, 207.07, 212.12, 0], abs=0.01)
    assert np.array_equal(trace.value[:5], [np.nan, 5, np.nan, 3, np.nan], equal_nan=True)
    assert trace.kind[:5].tolist() == [1, 2, 3, 5, 1]


def test_lifetimes_hold_all_records(trace: Trace) -> None:
    warps = trace.warps
    assert (warps.start_ns[trace.track] <= trace.start_ns).all()
    assert (warps.end_ns[trace.track] >= trace.start_ns + trace.dur_ns).all()


def test_filters_keep_matching_records_and_their_depth(trace: Trace) -> None:
    found = trace.filter(region=["lo*", "dot"], block=1)
    assert names(found) == ["load", "dot"]
    assert found.depth.tolist() == [1, 1]
    assert found.filter(region="dot").depth.tolist() == [1]
    assert found.warps is trace.warps
    assert (
        len(trace.filter(sm=range(5)))
        == len(trace.filter(warp=0))
        == len(trace.filter(kernel="mat*", launch=0, sm=3))
        == 5
    )


def test_a_filter_by_time_keeps_what_overlaps(trace: Trace) -> None:
    start = trace.start_ns[names(trace).index("mark")]
    assert set(names(trace.filter(time=(start, start)))) == {"mark", "tile"}


def test_a_filter_by_mask(trace: Trace) -> None:
    assert names(trace.filter(where=trace.dur_cycles > 500)) == ["tile", "tile"]
    with pytest.raises(UsageError, match=r"shape \(3,\), expected \(10,\)"):
        trace.filter(where=np.ones(3, bool))


def test_a_name_that_matches_nothing_lists_the_known_ones(trace: Trace) -> None:
    with pytest.raises(
        UsageError, match=r"region laod: not in this trace, which has region dot, load, mark, queue, tile"
    ):
        trace.filter(region="laod")
    with pytest.raises(UsageError, match="expected a number, a range or several of them"):
        trace.filter(warp=["zero"])  # type: ignore[list-item]  # the point of the test


def test_a_misspelled_name_or_a_path_in_the_place_of_a_trace_is_answered(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'profle'; did you mean profile\?"):
        kscope.profle  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(UsageError, match=r"limt=\.\.\.\): no such option; did you mean limit\?"):
        trace.export(tmp_path / "a.csv", limt=3)
    with pytest.raises(UsageError, match=r"compare\('b.kscope'\): expected a trace, such as kscope.load"):
        trace.compare("b.kscope")  # type: ignore[arg-type]  # the point of the test


def test_pandas_gets_every_column_with_names(trace: Trace) -> None:
    frame = trace.to_pandas()
    assert tuple(frame.columns) == COLUMNS
    assert frame.region.tolist() == names(trace)
    assert frame.kernel.unique().tolist() == ["matmul"]
    assert frame.kind[:5].tolist() == ["span", "span_value", "instant", "counter", "span"]
    assert frame[frame.region == "tile"].dur_cycles.tolist() == [610, 610]
    assert [frame[f"block_{axis}"].tolist() for axis in "xyz"] == trace.warps.block_xyz[trace.track].T.tolist()
    assert frame.warp_row.tolist() == trace.track.tolist()


def test_pandas_gets_the_block_of_a_grid_with_three_axes() -> None:
    frame = decode(synth.capture(synth.slab([synth.Rec("load", 10, 20)], block=(2, 1, 3), grid=(4, 2, 5)))).to_pandas()
    assert frame[["block", "block_x", "block_y", "block_z"]].values.tolist() == [[2 + 4 * (1 + 2 * 3), 2, 1, 3]]


def test_the_categories_of_pandas_are_names_in_the_trace(trace: Trace) -> None:
    frame = trace.to_pandas()
    assert not {"?", "none"} & {
        name for column in ("kernel", "region", "kind", "track") for name in frame[column].cat.categories
    }
    assert set(frame.region.cat.categories) == {"dot", "load", "mark", "queue", "tile"}


def test_missing_pandas_is_reported_with_the_remedy(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingError, match=r"pip install '\.\[pandas\]' in a checkout"):
        trace.to_pandas()


def test_the_repr_of_a_trace_counts_its_contents(trace: Trace) -> None:
    assert repr(trace) == "<kscope.Trace: 10 records, 2 warps, 1 launch, 0 problems>"
