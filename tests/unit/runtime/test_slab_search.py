"""Compiled code and numpy find the same slabs in a copy of claimed memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptxvm.profile import examples
from wired import TIME, Head, slab

from kscope import native
from kscope.capture import wire
from kscope_runtime.slab_search import Pieces, Units, find

STRIPE = 3
SETTLED = TIME + 2000 * 32
slabs = st.tuples(
    st.sampled_from([2, 2, 2, 3, 6]),  # log2 of its records
    st.integers(0, 70),  # records written
    st.sampled_from(["closed"] * 6 + ["open", "late record", "no head", "gap", "impossible"]),
    st.sampled_from([SETTLED - 32, SETTLED - 32, SETTLED]),  # %globaltimer at the end
)


def memory(expected: list[tuple[int, int, str, int]]) -> Units:
    """Slabs one after the other."""
    parts = []
    for log2, count, state, ended in expected:
        head = Head(cycles=None if state == "open" else 500, ns=ended - TIME, count=count)
        units = slab(head, log2, [[1000, 0x11, 1100, 0]] * count)
        parts.append(units)
        if state in ("gap", "no head"):
            units[: len(units) if state == "gap" else 1] = 0
        if state == "impossible":
            units[0, 3] |= 31 << wire.LOG2_SHIFT
        kept = min(count, 1 << log2)
        if state == "late record" and kept:
            units[1:].reshape(-1, 4)[count % kept] = 0
    return np.concatenate(parts)


def pieces(copied: Units, tail: int, cut: int) -> Iterator[Pieces]:
    """The memory as one part, and as one that ends early beside one that begins there."""
    for bounds, whole in (([0, len(copied)], [True]), ([0, cut, len(copied)], [False, True])):
        starts = np.array(bounds[:-1])
        yield Pieces(
            stripe=np.full(len(starts), STRIPE),
            first=np.array(bounds),
            tail=(starts + tail).astype(np.uint32),
            whole=np.array(whole),
            skipped=np.zeros(len(starts), np.uint32),
            head=np.full(len(starts), (tail + len(copied)) & 0xFFFFFFFF, np.uint32),
        )


@examples(150)
@given(st.lists(slabs, min_size=1, max_size=60), st.integers(0, 0xFFFFFFFF), st.sampled_from([0, SETTLED]), st.data())
def test_compiled_code_finds_the_same_slabs_as_numpy(
    expected: list[tuple[int, int, str, int]], tail: int, settled: int, data: st.DataObject
) -> None:
    copied = memory(expected)
    cut = data.draw(st.integers(1, len(copied) - 1))
    for parts in pieces(copied, tail, cut):
        compiled = find(copied, parts, settled)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KSCOPE_NATIVE", "0")
            scanned = find(copied, parts, settled)
        for name in ("at", "log2", "closed", "over", "opens"):
            got, plain = getattr(compiled, name), getattr(scanned, name)
            assert got.dtype == plain.dtype and np.array_equal(got, plain), name
        assert compiled.overrun == scanned.overrun == np.count_nonzero(scanned.over)
        if len(parts.stripe) == 1 and {state for _, _, state, _ in expected} == {"closed"}:
            assert len(scanned.at) == len(expected) and scanned.closed.all()


@pytest.mark.parametrize("compiled", ["1", "0"])
def test_records_are_checked_only_in_recently_closed_slabs(compiled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSCOPE_NATIVE", compiled)
    expected = [(3, 8, "closed", SETTLED), (3, 8, "late record", SETTLED), (3, 8, "late record", SETTLED - 32)]
    copied = memory(expected)
    (whole, _) = pieces(copied, 0, 1)
    assert find(copied, whole, SETTLED).closed.tolist() == [True, False, True]
    assert find(copied, whole).closed.tolist() == [True, False, False]


LARGE = 9
"""log2 of the records of slabs that lie over the edges of what a thread searches: 257 units, of 16,384."""


def large(count: int) -> Units:
    return memory([(LARGE, 5, "closed", SETTLED)] * count)


@pytest.mark.skipif(not native.available(), reason="no compiled loops")
def test_threads_find_the_same_slabs_as_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "threads", lambda short=False: 4)
    kinds = [(2, 3, "closed", SETTLED), (LARGE, 9, "closed", SETTLED), (3, 9, "closed", SETTLED), (2, 3, "open", 0)]
    copied = memory([kinds[index * index % 4] for index in range(1500)])
    assert len(copied) > 3 * 16_384
    for parts in pieces(copied, 7, 20_000):
        compiled = find(copied, parts)
        with monkeypatch.context() as patch:
            patch.setenv("KSCOPE_NATIVE", "0")
            plain = find(copied, parts)
        for name in ("at", "log2", "closed", "over", "opens"):
            assert np.array_equal(getattr(compiled, name), getattr(plain, name)), name


@pytest.mark.skipif(not native.available(), reason="no compiled loops")
def test_slabs_in_damaged_memory_do_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake head inside a slab, after the place where the next thread begins."""
    monkeypatch.setattr(native, "threads", lambda short=False: 4)
    copied = large(100)
    inside = 16_384 + 20
    assert inside % 257 > 30
    copied[inside : inside + 3] = slab(Head())
    (whole, _) = pieces(copied, 0, 1)
    assert find(copied, whole).at.tolist() == [257 * index for index in range(100)]


@pytest.mark.parametrize("end", [0, 1, 257, 258, 2570])
def test_the_slabs_before_a_unit_keep_their_parts(end: int) -> None:
    (_, two) = pieces(large(10), 0, 5 * 257)
    found = find(large(10), two)
    which, opens = found.before(np.array([end, 2570]))
    mine = [index for index in range(5) if 257 * index < end]
    assert which.tolist() == [*mine, *range(5, 10)]
    assert opens.tolist() == [0, len(mine), len(mine) + 5]
