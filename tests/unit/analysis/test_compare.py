"""Comparing two recordings: slower regions are reported, noise is not."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import traces

import kscope
from kscope.analysis.compare import Options, compare
from kscope.errors import UsageError
from kscope.trace import Trace


def run(
    scale: float = 1.0, *, seed: int = 0, blocks: int = 32, launches: int = 1, names: tuple[str, ...] = ("load", "dot")
) -> Trace:
    """Blocks that take a random time of about 1000 ns per region; `load` takes `scale` times that."""
    rng = np.random.default_rng(seed)
    made = []
    for launch in range(launches):
        for block in range(blocks):
            one = traces.Lane(block=block, sm=block % 4, grid_id=launch + 1, start=1000 + 100_000 * launch)
            time = one.start
            for _ in range(4):
                for name in names:
                    took = round(rng.normal(1000, 60) * (scale if name == "load" else 1))
                    one.spans.append((name, time, time + took))
                    time += took
            one.end = time
            made.append(one)
    return traces.trace(made)


def verdicts(a: Trace, b: Trace) -> dict[str, str]:
    return {row.region: row.verdict for row in compare(a, b).regions}


def test_only_the_slower_region_is_reported_as_slower() -> None:
    found = compare(run(seed=1), run(1.2, seed=2))
    rows = {row.region: row for row in found.regions}
    assert rows["load"].verdict == "slower"
    assert rows["dot"].verdict in ("same", "unsure")
    assert rows["load"].change == pytest.approx(0.2, abs=0.03)
    assert rows["load"].low < 0.2 < rows["load"].high
    assert found.regions[0].region == "load"
    assert found.verdict == "slower"


def test_swapping_the_recordings_swaps_the_verdict() -> None:
    assert compare(run(1.2, seed=2), run(seed=1)).verdict == "faster"


def test_comparing_identical_recordings_finds_no_change() -> None:
    found = compare(run(), run())
    assert {row.verdict for row in (*found.regions, *found.kernels)} == {"same"}
    assert found.verdict == "same"
    assert found.problems == ()


def test_new_and_gone_regions_are_reported() -> None:
    assert verdicts(run(names=("load", "dot")), run(names=("load", "tile"))) == {
        "load": verdicts(run(), run(names=("load", "tile")))["load"],
        "dot": "gone",
        "tile": "new",
    }


def test_new_and_gone_regions_are_sorted_by_time() -> None:
    def one(**took: int) -> Trace:
        lane, time = traces.Lane(), 1000
        for name, ns in took.items():
            lane.spans.append((name, time, time + ns))
            time += ns
        lane.end = time
        return traces.trace([lane])

    found = compare(one(load=100, dot=300, wait=1000), one(load=150, tile=700, wait=1010)).regions
    assert [row.region for row in found] == ["tile", "dot", "load", "wait"]


def test_comparisons_of_many_launches_resample_launches() -> None:
    found = compare(run(launches=10, seed=1), run(1.3, launches=10, seed=2))
    assert {row.unit for row in found.regions} == {"launch"}
    [kernel] = found.kernels
    assert (kernel.verdict, kernel.a_units, kernel.b_units) == ("slower", 10, 10)
    assert found.verdict == "slower"


def test_the_verdict_is_the_kernels_where_both_have_several_launches() -> None:
    docs = Path(__file__).resolve().parents[3] / "docs" / "tutorial"
    found = compare(kscope.load(docs / "slow.kscope"), kscope.load(docs / "fast.kscope"))
    assert {row.verdict for row in found.regions} >= {"slower", "faster", "unsure"}
    assert ([row.verdict for row in found.kernels], found.verdict) == (["faster"], "faster")
    once = compare(run(seed=1), run(1.3, seed=2))
    assert (once.kernels[0].verdict, once.verdict) == ("unsure", "slower")


def test_one_lane_alone_has_no_interval() -> None:
    found = compare(run(blocks=1, seed=1), run(2, blocks=1, seed=2))
    assert {row.verdict for row in found.regions} == {"unsure"}
    assert all(math.isnan(row.low) for row in found.regions)


def test_comparisons_of_few_blocks_resample_lanes() -> None:
    [load] = [row for row in compare(run(blocks=4, seed=3), run(1.5, blocks=4, seed=4)).regions if row.region == "load"]
    assert (load.unit, load.verdict) == ("warp", "slower")


def test_confidence_intervals_cover_the_truth_at_their_rate() -> None:
    options = Options(draws=300)
    inside = 0
    for seed in range(60):
        [row] = compare(run(seed=seed, names=("load",)), run(1.1, seed=seed + 1000, names=("load",)), options).regions
        inside += row.low < 0.1 < row.high
    assert inside >= 50  # 57 expected; fewer than 50 in one of 10,000 tries


def test_the_interval_of_very_many_blocks_is_as_wide_as_the_spread_of_their_mean() -> None:
    a, b = run(seed=1, blocks=3000), run(seed=2, blocks=3000)
    for row in compare(a, b).regions:
        error = 60 / 1000 / math.sqrt(4 * 3000) * math.sqrt(2)
        assert (row.unit, row.a_units) == ("block", 3000)
        assert row.high - row.low == pytest.approx(2 * 1.96 * error, rel=0.15)
        assert row.low < row.change < row.high


def test_noise_is_rarely_called_a_change() -> None:
    changed = sum(verdicts(run(seed=seed), run(seed=seed + 500))["dot"] in ("slower", "faster") for seed in range(30))
    assert changed <= 3


def test_equal_recordings_give_equal_words() -> None:
    assert repr(compare(run(seed=1), run(1.1, seed=2))) == repr(compare(run(seed=1), run(1.1, seed=2)))


@pytest.mark.filterwarnings("error")
def test_comparisons_accept_samples_of_zero_duration() -> None:
    def short(lasting: int) -> Trace:
        lanes = [traces.Lane(block=block, grid_id=1) for block in range(8)]
        for lane in lanes:
            lane.spans = [("load", lane.start, lane.start + (32 if lane.block < lasting else 0))]
            lane.end = lane.start + 100
        return traces.trace(lanes)

    [row] = compare(short(2), short(3)).regions
    assert (row.verdict, math.isnan(row.low)) == ("unsure", True)


def test_comparisons_of_different_grids_report_a_problem() -> None:
    found = compare(run(blocks=4), run(blocks=8))
    assert any("launched with different grids" in one for one in found.problems)


def test_empty_recordings_compare_to_nothing() -> None:
    found = compare(traces.trace([]), traces.trace([]))
    assert (found.regions, found.verdict) == ((), "unsure")


@pytest.mark.parametrize("wrong", [{"draws": 1}, {"level": 1.0}, {"least": -1}])
def test_invalid_comparison_options_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="expected"):
        Options(**wrong)  # type: ignore[arg-type]  # the point of the test
