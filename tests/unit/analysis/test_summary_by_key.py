"""The summary by any key: the same numbers as pandas and plain Python give."""

from __future__ import annotations

import csv
import io
import json
import random

import numpy as np
import orjson
import pandas as pd
import pytest
import synth
import traces
from hypothesis import given
from hypothesis import strategies as st
from synth import Rec

from kscope.analysis.groups import group
from kscope.analysis.imbalance import imbalance
from kscope.analysis.occupancy import utilization
from kscope.analysis.roles import roles as find_roles
from kscope.analysis.summary import summarize
from kscope.analysis.summary_data import RegionStats
from kscope.errors import UsageError
from kscope.trace import Trace, decode
from kscope.util.text import number_ranges

BY = ["", "launch", "sm", "block", "warp", "block,warp", "launch,sm"]


def expected(trace: Trace, keys: list[str]) -> pd.DataFrame:
    frame = trace.to_pandas()
    frame["region"] = frame["region"].astype(str)
    grouped = frame.groupby([*keys, "region"], observed=True)["dur_ns"]
    return grouped.agg(
        ["count", "sum", "mean", "min", "max", *(_quantile(q) for q in (0.5, 0.9, 0.99))]  # type: ignore[list-item]  # pandas takes functions
    )


def _quantile(q: float):  # type: ignore[no-untyped-def]  # an aggregation with a name
    def quantile(values: pd.Series) -> float:
        return float(values.quantile(q))

    quantile.__name__ = f"p{q * 100:.0f}"
    return quantile


@pytest.mark.parametrize("by", BY)
@given(rng=st.randoms(use_true_random=False))
def test_numbers_by_any_key_are_those_of_pandas(by: str, rng: random.Random) -> None:
    trace = traces.trace(traces.lanes(rng, launches=2))
    keys = [key for key in by.split(",") if key]
    table = expected(trace, keys) if len(trace) else pd.DataFrame()
    rows = summarize(trace, by).regions
    assert len(rows) == len(table)
    for row in rows:
        at = (*row.key, row.region) if keys else row.region
        want = table.loc[at]
        assert row.count == want["count"]
        got = [row.warp_time_ns, row.mean_ns, row.min_ns, row.max_ns, row.p50_ns, row.p90_ns, row.p99_ns]
        assert got == pytest.approx([want[name] for name in ("sum", "mean", "min", "max", "p50", "p90", "p99")])


def test_rows_of_each_kernel_are_ordered_by_key() -> None:
    def kernel(number: int, sms: tuple[int, ...]) -> list[np.ndarray]:
        where = {"kernel": number, "grid_id": number}
        return [
            synth.slab([Rec("load", 2000, 2100)], block=(at, 0, 0), grid=(4, 1, 1), sm=sm, **where)
            for at, sm in enumerate(sms)
        ]

    trace = decode(synth.capture(*kernel(1, (0, 1, 2, 3)), *kernel(2, (0, 2)), names=("load",)))
    for by in ("sm", "block"):
        rows = [(row.kernel, row.key) for row in summarize(trace, by).regions]
        assert rows == sorted(rows) == [(row.kernel, row.key) for row in summarize(trace, by).warps]


@given(st.randoms(use_true_random=False))
def test_self_idle_and_start_times_match_a_count_per_nanosecond(rng: random.Random) -> None:
    made = traces.lanes(rng)
    rows = {row.region: row for row in summarize(traces.trace(made)).regions}
    own = dict.fromkeys(traces.NAMES, 0)
    idle = dict.fromkeys(traces.NAMES, 0)
    starts: dict[str, list[int]] = {}
    for one in made:
        last = one.start
        for name, start, end in one.spans:
            starts.setdefault(name, []).append(start - traces.origin(made))
            own[name] += sum(one.innermost(time) == name for time in range(start, end) if _of(one, time, start, end))
            if not any(a <= start and end <= b and (a, b) != (start, end) for _, a, b in one.spans):
                last = max([one.start, *(b for _, a, b in one.spans if b <= start)])
                idle[name] += start - last
    for name, row in rows.items():
        assert (row.first_ns, row.last_ns) == (min(starts[name]), max(starts[name]))
    unique = all(len({(a, b) for _, a, b in one.spans}) == len(one.spans) for one in made)
    if unique:  # the nesting of two equal spans is ambiguous
        assert {name: row.self_ns for name, row in rows.items()} == pytest.approx({n: own[n] for n in rows})
        assert {name: row.idle_ns for name, row in rows.items()} == pytest.approx({n: idle[n] for n in rows})


def _of(lane: traces.Lane, time: int, start: int, end: int) -> bool:
    """True if [start, end) is the innermost span of the lane at a time."""
    inside = min((b - a, a, b) for _, a, b in lane.spans if a <= time < b)
    return inside[1:] == (start, end)


@given(st.randoms(use_true_random=False), st.sampled_from(BY))
def test_grouped_summaries_add_up_to_the_whole(rng: random.Random, by: str) -> None:
    trace = traces.trace(traces.lanes(rng, launches=2))
    whole, parts = summarize(trace), summarize(trace, by)
    assert sum(row.warp_time_ns for row in parts.regions) == pytest.approx(
        sum(row.warp_time_ns for row in whole.regions)
    )
    assert sum(row.alive_ns for row in parts.warps) == pytest.approx(sum(row.alive_ns for row in whole.warps))
    assert sum(row.idle_ns for row in parts.warps) == pytest.approx(sum(row.idle_ns for row in whole.warps))
    for row in parts.warps:
        regions = [one for one in parts.regions if (one.kernel, one.key) == (row.kernel, row.key)]
        assert sum(one.self_ns for one in regions) + row.idle_ns == pytest.approx(row.alive_ns)


@given(st.randoms(use_true_random=False), st.sampled_from(BY))
def test_lanes_blocks_launches_and_times_of_a_group_are_counted(rng: random.Random, by: str) -> None:
    made = traces.lanes(rng, launches=2)
    trace = traces.trace(made)
    keys = [key for key in by.split(",") if key]
    for row in summarize(trace, by).warps:
        expected_rows = dict(zip(keys, row.key, strict=True))
        places = [{"launch": one.grid_id - 1, "sm": one.sm, "block": one.block, "warp": one.warp} for one in made]
        mine = [one for one, place in zip(made, places, strict=True) if expected_rows.items() <= place.items()]
        launches = {one.grid_id for one in mine}
        assert (row.warps, row.launches) == (len(mine), len(launches))
        assert row.blocks == len({(one.grid_id, one.block) for one in mine})
        assert row.records == sum(len(one.spans) for one in mine)
        times = [
            max(one.end for one in mine if one.grid_id == launch)
            - min(one.start for one in mine if one.grid_id == launch)
            for launch in launches
        ]
        assert (row.time_ns, row.max_time_ns) == (pytest.approx(sum(times) / len(times)), max(times))
        quiet = [max(_quiet(one)) for one in mine]
        assert row.longest_idle_ns == max(quiet)


def _quiet(lane: traces.Lane) -> list[int]:
    """Lengths of the stretches in which a lane is in no region."""
    marks = "".join("." if lane.innermost(time) is None else "x" for time in range(lane.start, lane.end))
    return [len(stretch) for stretch in marks.split("x")]


def busy(lengths: dict[tuple[int, int, int], int]) -> Trace:
    """One `load` of that length in each (block, warp, SM)."""
    made = []
    for (block, warp, sm), length in lengths.items():
        one = traces.Lane(block=block, warp=warp, sm=sm, end=5000)
        one.spans = [("load", 1100, 1100 + length)]
        made.append(one)
    return traces.trace(made)


def load(trace: Trace, by: str = "") -> RegionStats:
    [row] = summarize(trace, by).regions
    return row


def test_the_worst_block_is_scored_and_named() -> None:
    row = load(busy({(block, 0, block): 230 if block == 17 else 100 for block in range(32)}))
    assert (row.imbalance, row.worst) == (pytest.approx(2.3), "SM 17 takes 2.3x the median")
    row = load(busy({(block, 0, 0): 230 if block == 17 else 100 for block in range(32)}))
    assert (row.imbalance, row.worst) == (pytest.approx(2.3), "block 17 takes 2.3x the median")


def test_the_worst_warp_is_scored_and_named() -> None:
    row = load(busy({(block, warp, block): 100 + 200 * (warp == 3) for block in range(4) for warp in range(8)}))
    assert (row.imbalance, row.worst) == (pytest.approx(3.0), "warp 3 takes 3x the median")


def test_summaries_by_sm_name_no_worst_sm() -> None:
    rows = summarize(busy({(block, 0, block): 100 * (block + 1) for block in range(4)}), "sm").regions
    assert {row.worst for row in rows} == {""}
    assert all(np.isnan(row.sm_imbalance) and row.block_imbalance == row.warp_imbalance == 1 for row in rows)


def test_imbalance_scores_of_sms_blocks_and_warps_share_a_table() -> None:
    row = load(busy({(block, warp, block % 2): 100 + 100 * warp for block in range(4) for warp in range(3)}))
    assert (row.sm_imbalance, row.block_imbalance, row.warp_imbalance) == (1.0, 1.0, 1.5)
    assert (row.imbalance, row.worst) == (1.5, "warp 2 takes 1.5x the median")


@given(st.randoms(use_true_random=False), st.sampled_from(["sm", "block", "warp"]))
def test_the_scores_of_the_summary_are_those_of_the_totals(rng: random.Random, across: str) -> None:
    trace = traces.trace(traces.lanes(rng, launches=2))
    totals = {one.region: one for one in imbalance(trace, across)}
    frame = (
        trace.to_pandas()
        .groupby(["region", *(["launch", "block"] if across == "block" else [across])], observed=True)["dur_ns"]
        .sum()
    )
    for row in summarize(trace).regions:
        found = totals[row.region]
        assert getattr(row, f"{across}_imbalance") == pytest.approx(found.score, nan_ok=True)
        assert sorted(found.totals_ns.tolist()) == sorted(frame[row.region].tolist())
        assert found.worst in found.text


def test_a_balanced_region_has_a_score_of_one() -> None:
    row = load(busy({(block, 0, block): 100 for block in range(4)}))
    assert (row.imbalance, row.worst) == (1.0, "")


def test_roles_are_found_by_what_warps_record() -> None:
    made = [traces.Lane(warp=warp, end=3000, spans=[("load" if warp == 4 else "dot", 1100, 1200)]) for warp in range(5)]
    found = find_roles(traces.trace(made))
    assert found.names == ("dot (warp 0-3, inferred)", "load (warp 4, inferred)")
    assert found.code.tolist() == [0, 0, 0, 0, 1]
    assert found.known == ("", "")


def test_roles_have_user_given_names() -> None:
    made = [traces.Lane(warp=warp, end=3000, spans=[("load", 1100, 1200)]) for warp in range(3)]
    summary = summarize(traces.trace(made), "role", {"producer": [0], "consumer": [1]})
    assert {row.key for row in summary.regions} == {("producer",), ("consumer",), ("other",)}


@pytest.mark.parametrize(
    ("by", "roles", "message"),
    [
        ("smm", None, r"by='smm': expected .*sm"),
        ("role", {"a": [40]}, "warp numbers from 0 to 31"),
        ("role", {"a": []}, "expected warp numbers"),
        ("role", {"a": [0, 1], "b": [1]}, "warp 1 has the role 'a' already"),
    ],
)
def test_invalid_keys_and_roles_are_refused(by: str, roles: dict[str, list[int]] | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        group(traces.trace([traces.Lane(end=2000)]), by, roles)


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 5, 7, 8], "0-2,5,7-8")])
def test_numbers_are_spelled_as_ranges(numbers: list[int], text: str) -> None:
    assert number_ranges(numbers) == text


HOSTILE = ("a|b", "</td><script>alert(1)</script>", 'quote"d, and\nnewline', "[x](javascript:y)", "`code` *b* _i_")


def hostile() -> Trace:
    import synth
    from synth import Rec

    from kscope.trace import decode

    records = [Rec(name, 2000 + 100 * i, 2050 + 100 * i) for i, name in enumerate(HOSTILE)]
    return decode(synth.capture(synth.slab(records), names=HOSTILE))


def test_names_with_markup_stay_in_their_cell_in_markdown() -> None:
    lines = summarize(hostile()).markdown().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + len(HOSTILE)
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1
    assert not any("<script" in line or "[x](" in line for line in lines)


def test_names_with_quotes_and_newlines_survive_csv_and_json() -> None:
    summary = summarize(hostile())
    assert {row["region"] for row in csv.DictReader(io.StringIO(summary.csv()))} == set(HOSTILE)
    data = json.loads(orjson.dumps(summary.to_dict()))
    assert {row["region"] for row in data["regions"]} == set(HOSTILE)


def test_names_with_newlines_stay_on_their_line_in_the_terminal() -> None:
    text = summarize(hostile()).text(100)
    assert text.count("quote") == 1
    assert all(char.isprintable() or char == "\n" for char in text)


@given(st.randoms(use_true_random=False))
def test_idle_time_is_exact_with_zero_length_spans(rng: random.Random) -> None:
    made = traces.lanes(rng, shortest=0)
    trace = traces.trace(made)
    without = [[one.innermost(time) is None for time in range(one.start, one.end)] for one in made]
    whole = summarize(trace).warps
    assert sum(lane.idle_ns for lane in whole) == pytest.approx(sum(map(sum, without)))
    assert max(lane.longest_idle_ns for lane in whole) == max(map(_longest, made))
    busy = sum(one.end - one.start for one in made) - sum(map(sum, without))
    assert sum(row.busy_ns for row in utilization(trace)) == pytest.approx(busy)


def _longest(one: traces.Lane) -> int:
    """The longest time in no region; a region of no length ends one and begins the next."""
    points = {start for _, start, end in one.spans if start == end}
    times = range(one.start, one.end)
    marks = ((" " if time in points else "") + ("x" if one.innermost(time) is None else " ") for time in times)
    return max(map(len, "".join(marks).split()), default=0)


def test_json_with_top_keeps_the_longest_rows_and_counts_the_rest() -> None:
    trace = busy({(block, 0, block): 100 + block for block in range(30)})
    data = summarize(trace, "block").to_dict(top=5)
    assert (len(data["regions"]), data["left_out"]) == (5, {"regions": 25})
    assert {row["block"] for row in data["regions"]} == {25, 26, 27, 28, 29}
    assert len(data["warps"]) == 5


def test_a_table_of_many_rows_shows_the_longest_and_counts_the_rest() -> None:
    text = summarize(busy({(block, 0, block): 100 + block for block in range(80)}), "block").text(100)
    assert "block 79: load" in text
    assert "block 3: load" not in text
    assert "+ 30 more rows" in text


@given(st.randoms(use_true_random=False))
def test_statistics_do_not_depend_on_the_number_of_groups(rng: random.Random) -> None:
    from kscope.analysis import quantiles

    values = np.array([rng.randrange(100) for _ in range(60)], float)
    row = np.sort(np.array([rng.randrange(7) for _ in range(12)]))
    offset, count = np.arange(12) * 5, np.array([rng.randrange(6) for _ in range(12)])
    few = quantiles.quantiles(values.copy(), row, 7, offset, count)
    found = np.full((7, 5), np.nan)
    used = np.flatnonzero(count)
    if len(used):
        quantiles._sorted(values, row[used], offset[used], count[used], found)
    np.testing.assert_allclose(found, few)
