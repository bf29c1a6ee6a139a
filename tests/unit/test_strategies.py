"""The four strategies: which lanes record, and their spelling."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kscope
from kscope.cli.common import recording_flags
from kscope.errors import UsageError
from kscope.instrument.options import Options
from kscope.instrument.recording import Recording
from kscope.marks.strategies import (
    MAX_WARPS,
    AllThreads,
    Elected,
    Lane0Warp0,
    Strategy,
    TargetWarp,
    parse_strategy,
    records_some_warps,
)

ANY = st.sampled_from([Lane0Warp0(), Elected(), AllThreads()]) | st.lists(
    st.integers(0, MAX_WARPS - 1), min_size=1, max_size=6
).map(lambda warps: TargetWarp(*warps))


@given(ANY)
def test_a_spec_names_its_strategy(strategy: Strategy) -> None:
    assert parse_strategy(strategy.spec) == strategy


@given(ANY)
def test_a_strategy_spec_contains_no_spaces(strategy: Strategy) -> None:
    assert strategy.spec.split() == [strategy.spec]


@pytest.mark.parametrize(
    ("strategy", "recording"),
    [
        (Lane0Warp0(), {(0, 0)}),
        (Elected(), {(0, 0), (1, 0), (2, 0)}),
        (TargetWarp(2, 0), {(0, 0), (2, 0)}),
        (AllThreads(), {(warp, lane) for warp in range(3) for lane in range(32)}),
    ],
    ids=lambda value: getattr(value, "spec", ""),
)
def test_a_strategy_chooses_lanes(strategy: Strategy, recording: set[tuple[int, int]]) -> None:
    assert {(w, lane) for w in range(3) for lane in range(32) if strategy.records(w, lane)} == recording


def test_strategies_of_some_warps() -> None:
    specs = ["lane0-warp0", "elected", "elected-any", "warps:0,4", "all", "warpsize", "", "of another profiler"]
    assert [spec for spec in specs if records_some_warps(spec)] == ["lane0-warp0", "warps:0,4"]


def test_target_warps_are_a_set() -> None:
    assert TargetWarp(4, 0, 4) == TargetWarp(0, 4)
    assert TargetWarp(0, 4).mask == 0b10001


@pytest.mark.parametrize("warp", [-1, 32, 1.0, "0", True, None])
def test_a_warp_that_no_block_has_is_refused(warp: object) -> None:
    with pytest.raises(UsageError, match="0 to 31"):
        TargetWarp(warp)  # type: ignore[arg-type]  # the error is the test


def test_target_warp_needs_a_warp() -> None:
    with pytest.raises(UsageError, match="at least one"):
        TargetWarp()


@pytest.mark.parametrize(
    "spec", ["", "warps", "warps:", "warps:1,", "warps:1+2", "warps:x", "Elected", "all:1", "warp"]
)
def test_an_unknown_spec_lists_the_known_ones(spec: str) -> None:
    with pytest.raises(UsageError, match="'lane0-warp0', 'elected', 'elected-any', 'all', or 'warps:0,4'"):
        parse_strategy(spec)


def test_the_base_class_is_not_a_strategy() -> None:
    with pytest.raises(AssertionError, match="one of"):
        Strategy().records(0, 0)


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("lane0-warp0", Lane0Warp0()),
        ("elected", Elected()),
        ("elected-any", Elected(any_lane=True)),
        ("warps:0,4", TargetWarp(0, 4)),
        ("all", AllThreads()),
    ],
)
def test_python_takes_the_texts_of_the_command_line(text: str, strategy: Strategy) -> None:
    assert strategy.spec == text
    assert Options(strategy=text).recording(Recording()) == Options(strategy=strategy).recording(Recording())
    parser = argparse.ArgumentParser()
    recording_flags.add(parser)
    assert recording_flags.profile_arguments(parser.parse_args(["--strategy", text])) == {"strategy": strategy}


def test_a_text_that_is_no_strategy_says_what_was_passed() -> None:
    with pytest.raises(UsageError, match="strategy='lanes': expected 'lane0-warp0'"):
        kscope.profile(strategy="lanes")
    with pytest.raises(UsageError, match="strategy=4: expected 'lane0-warp0'"):
        kscope.scope("load", strategy=4)  # type: ignore[arg-type]  # the error is the test
