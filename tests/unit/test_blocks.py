"""Blocks have one name: what selects them, in Python and on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synth

from kscope import cli
from kscope.capture.blocks import Blocks, selections
from kscope.errors import UsageError
from kscope.trace import Trace, decode

NX, NY, NZ = 8, 16, 2


@pytest.fixture(scope="module")
def trace() -> Trace:
    """One warp of every block of a grid of 8 x 16."""
    places = [(x, y, 0) for y in range(NY) for x in range(NX)]
    slabs = [synth.slab(synth.EVERY_KIND, block=place, grid=(NX, NY, 1)) for place in places]
    return decode(synth.capture(*slabs, names=synth.ITS_NAMES))


def shown(trace: Trace) -> list[str]:
    """The blocks of the records, as outputs write them."""
    return sorted({str(one) for one in trace.warps.blocks(np.unique(trace.track).astype(np.int64)).strings()})


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("0,8", ["0,8"]),
        ((0, 8), ["0,8"]),
        ("0,8,0", ["0,8"]),
        ("#64", ["0,8"]),
        ("64", ["0,8"]),
        (64, ["0,8"]),
        (np.int64(64), ["0,8"]),
        ("0:3,8", ["0,8", "1,8", "2,8"]),
        ((range(3), 8), ["0,8", "1,8", "2,8"]),
        ((slice(None, None, 4), 8), ["0,8", "4,8"]),
        (":,8", [f"{x},8" for x in range(NX)]),
        ("7:9", ["0,1", "7,0"]),
        ("#7:9", ["0,1", "7,0"]),
        ("::100", ["0,0", "4,12"]),
        (range(7, 9), ["0,1", "7,0"]),
        (["0,8", (1, 8), 7], ["0,8", "1,8", "7,0"]),
        (np.array([7, 8, 8]), ["0,1", "7,0"]),
    ],
)
def test_coordinates_ranges_and_linear_numbers_select_blocks(trace: Trace, typed: Any, expected: list[str]) -> None:
    assert shown(trace.filter(block=typed)) == expected


@pytest.mark.parametrize("typed", ["0,16", "8,0", "#128", 128, "0,8,1", "200:", (0, 99), ["0,8", 500]])
def test_blocks_that_the_trace_does_not_have_are_refused(trace: Trace, typed: Any) -> None:
    with pytest.raises(UsageError, match=r"block .*: not in this trace, which has block 0,0 1,0 .* and 120 more"):
        trace.filter(block=typed)


@pytest.mark.parametrize(
    ("name", "typed"),
    [("warp", 99), ("warp", [0, 99]), ("sm", range(50, 60)), ("launch", 1), ("device", 3), ("lane", 9)],
)
def test_numbers_that_the_trace_does_not_have_are_refused(trace: Trace, name: str, typed: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} .*: not in this trace, which has {name} 0"):
        trace.filter(**{name: typed})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"warp": True}, r"filter\(warp=True\): expected a number, a range or several"),
        ({"warp": 1.5}, "expected a number"),
        ({"warp": "0"}, "expected a number"),
        ({"warp": []}, "expected a number"),
        ({"sm": range(3, 3)}, "expected a number"),
        ({"region": []}, r"filter\(region=\[\]\): expected a name or several"),
        ({"region": 3}, "expected a name"),
        ({"region": "lood"}, "region lood: not in this trace, which has region .*; did you mean load"),
        ({"track": "loads"}, "track loads: not in this trace, which has no track"),
        ({"time": (5, 1)}, r"filter\(time=\(5, 1\)\): expected \(first, last\) in ns"),
        ({"time": "0:5us"}, "expected .first, last. in ns"),
        ({"time": (1e9, 2e9)}, "time 1,000,000.000 to 2,000,000.000 us: not in this trace, which has 0."),
        ({"time": (-9, -1)}, "not in this trace"),
    ],
)
def test_what_the_trace_does_not_have_is_refused_in_every_dimension(
    trace: Trace, given: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UsageError, match=expected):
        trace.filter(**given)


@pytest.mark.parametrize(
    "typed",
    ["", ",", "0,", "a", "1,2,3,4", "#1,2", "1:2:3:4", "4:2", "::0", "-1", "0,-1", (1,), (1, 2, 3, 4), 1.5, True, []],
)
def test_text_that_selects_no_block_is_refused_with_what_was_expected(typed: Any) -> None:
    with pytest.raises(UsageError, match=r"block.*expected"):
        selections(typed)


def test_two_coordinates_select_nothing_in_a_grid_of_three_dimensions() -> None:
    linear = np.arange(NX * NY * NZ)
    xyz = np.stack([linear % NX, linear // NX % NY, linear // (NX * NY)], axis=1)
    grid = np.broadcast_to(np.array([NX, NY, NZ]), xyz.shape)
    assert not Blocks.of("0,8").mask(linear, xyz, grid).any()
    assert np.flatnonzero(Blocks.of("0,8,1").mask(linear, xyz, grid)).tolist() == [8 * NX + NX * NY]


@pytest.mark.parametrize("text", ["40", "0,8", "0:4,8", "0:100", "0::8", "3,0:,0:8:2"])
def test_a_selection_is_written_as_it_is_typed(text: str) -> None:
    assert str(Blocks.of(text)) == text


@pytest.fixture
def summarized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """`kscope summary` of a capture of the grid."""
    from kscope.capture.file import write

    slabs = [synth.slab(synth.EVERY_KIND, block=(x, y, 0), grid=(NX, NY, 1)) for y in range(NY) for x in range(NX)]
    write(synth.capture(*slabs, names=synth.ITS_NAMES), tmp_path / "a.kscope")

    def run(*flags: str) -> tuple[int, str]:
        code = cli.main(["export", str(tmp_path / "a.kscope"), "-o", str(tmp_path / "a.csv"), *flags])
        rows = (tmp_path / "a.csv").read_text().splitlines() if code == 0 else []
        return code, capsys.readouterr().err if code else str(len(rows) - 1)

    return run


def test_the_command_line_takes_the_same_words(summarized: Callable[..., tuple[int, str]]) -> None:
    one = len(synth.EVERY_KIND)
    assert summarized("--block", "0,8") == (0, str(one))
    assert summarized("--block", "0,8", "--block", "1,8") == (0, str(2 * one))
    assert summarized("--block", "0:4,8") == (0, str(4 * one))
    assert summarized("--block", "#64") == (0, str(one))
    code, error = summarized("--block", "0,16")
    assert code == 2 and "block 0,16: not in this trace" in error
    code, error = summarized("--warp", "0", "--warp", "9")
    assert code == 2 and "warp 9: not in this trace, which has warp 0" in error


def test_tables_name_blocks_by_their_coordinates(trace: Trace) -> None:
    rows = trace.filter(block="0:2,8").summary("block").to_dicts()
    assert {row["block"] for row in rows} == {"0,8", "1,8"}
    assert [row["block"] for row in trace.summary("block").to_dicts() if row["region"] == "tile"][:9] == [
        *(f"{x},0" for x in range(8)), "0,1",
    ]  # fmt: skip


def test_the_busiest_block_is_named_by_its_coordinates() -> None:
    busy = [synth.Rec("load", 2000, 2900)]
    slabs = [
        synth.slab(busy if place == (1, 2, 0) else [synth.Rec("load", 2000, 2090)], block=place, grid=(2, 3, 1))
        for place in [(x, y, 0) for y in range(3) for x in range(2)]
    ]
    [row] = decode(synth.capture(*slabs)).summary().regions
    assert row.worst == "block 1,2 takes 10x the median"
