"""Regions that follow one another: where a block has several, one reading ends the one and begins the next."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptxvm.cases import Case, cases, execute, judged
from ptxvm.host import Pool, Ring
from ptxvm.judge import Wrong
from ptxvm.machine import Grid
from ptxvm.profile import examples
from ptxvm.writing import Node, written

from kscope.instrument.recording import Recording
from kscope.lowering.plan import lower

NAMES = ("load", "dot", "a b/c", "wait.x")


def regions(*names: str) -> tuple[Node, ...]:
    return tuple(Node("region", (name, None, "%v1", False), ((),)) for name in names)


def reads(*nodes: Node, **options: bool | int) -> int:
    """Clock reads of the marks of a kernel with these nodes."""
    text = lower(written(nodes).text(), Recording(**options), frontend="test").text
    return len(re.findall(r"mov\.u64 ks_[se]\d+, %clock64;", text))


def test_four_adjacent_regions_read_the_clock_five_times() -> None:
    assert reads(*regions(*NAMES)) == 5


def test_short_sequences_read_the_clock_at_every_mark() -> None:
    assert reads(*regions(*NAMES[:2])) == 4
    assert reads(*regions(*NAMES[:3])) == 6


@pytest.mark.parametrize("apart", [Node("bar"), Node("store", (0, "%v0")), Node("wait")])
def test_non_adjacent_regions_read_their_own_begin_clock(apart: Node) -> None:
    first, *others = regions(*NAMES)
    assert reads(first, apart, *others, *regions("überlauf")) == 2 + 5


@pytest.mark.parametrize(
    ("names", "options"),
    [(("load", "load", "load", "load"), {}), ((*NAMES, "load"), {}), (NAMES, {"pending": 3})],
    ids=["a name again", "a name again behind others", "more than may wait"],
)
def test_a_store_within_adjacent_regions_prevents_shared_clock_reads(names: Any, options: Any) -> None:
    """Otherwise the store, and the claim before the first one, would fall into the next region."""
    assert reads(*regions(*names), **options) == 2 * len(names)


def test_shared_clock_reads_have_no_store_between_their_marks() -> None:
    text = lower(written(regions(*NAMES, "überlauf")).text(), Recording(), frontend="test").text
    between = re.findall(r"mov\.u64 (ks_e\d+), %clock64;(.*?)mov\.b64 ks_s\d+, \1;", text, re.S)
    assert len(between) == 4
    assert not any(re.search(r"st\.|atom|bra|KS_", one) for _, one in between)


def test_pairs_are_counted_within_one_block() -> None:
    assert reads(*regions(*NAMES[:3]), Node("trap"), *regions(*NAMES[:3])) == 12


def test_regions_stored_in_place_begin_after_the_store() -> None:
    assert reads(*regions(*NAMES), pending=0) == 8


row = st.one_of(st.permutations((*NAMES, "überlauf")), st.lists(st.sampled_from(NAMES), min_size=3, max_size=9))


@examples(15)
@given(cases(depth=1, threads=2, ample=True), row, st.sampled_from([1, 2, 8]))
def test_shared_clock_reads_record_what_the_marks_mean(case: Case, names: list[str], pending: int) -> None:
    kernel = written((Node("loop", ("bottom", 3), (regions(*names), ())),))
    judged(execute(replace(case, kernel=kernel, recording=replace(case.recording, pending=pending))))


def test_a_begin_that_reuses_the_wrong_clock_read_is_detected() -> None:
    kernel = written((Node("loop", ("bottom", 3), (regions(*NAMES), ())),))
    case = Case(kernel, Recording(), Grid((1, 1, 1), (32, 1, 1)), ((0, 0, 0),), (0,), Pool((Ring(12), Ring(12))))
    judged(execute(case))

    def mutate(text: str) -> str:
        first, second, _ = re.findall(r"mov\.b64 ks_s\d+, ks_e\d+;", text)
        return text.replace(second, second.partition(",")[0] + "," + first.partition(",")[2])

    with pytest.raises(Wrong, match="records"):
        judged(execute(case, mutate=mutate))
