"""Compiled code and numpy find the same slabs in a copy of claimed memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptxvm.profile import examples

from kscope.capture import layout
from kscope_runtime.slab_search import Lines, Pieces, find

EPOCH, STRIPE = 7, 3
SETTLED = 2000
slabs = st.tuples(
    st.sampled_from([2, 2, 2, 3, 6]),  # log2 of its records
    st.integers(0, 70),  # records written
    st.sampled_from(["closed"] * 6 + ["open", "late record", "torn", "gap", "foreign"]),
    st.sampled_from([SETTLED - 1, SETTLED - 1, SETTLED]),  # %globaltimer at the end
)


def memory(expected: list[tuple[int, int, str, int]], tail: int) -> Lines:
    """Slabs one behind the other from position `tail` on."""
    parts = []
    for log2, count, state, ended in expected:
        units = layout.slab_units(log2)
        words = np.zeros(units * 16, np.uint32)
        parts.append(words)
        if state != "gap":
            words[0], words[1] = layout.HEADER_WORD, EPOCH
            words[11] = log2 << layout.LOG2_SHIFT
            words[13] = (tail + sum(map(len, parts[:-1])) // 16 + (state == "foreign")) & 0xFFFFFFFF
            words[14], words[16], words[18] = STRIPE, 100, 1000
            words[15] = layout.header_check(words[None, :32])[0] ^ (state == "torn")
            kept = min(count, 1 << log2)
            words[33 : 33 + 4 * kept : 4] = 0x11
            if state == "late record" and kept:
                words[33 + 4 * (count % kept)] = 0
            if state != "open":
                words[24], words[26], words[29] = 500, ended, count
                words[31] = 500 ^ count ^ layout.DONE_WORD
    return np.concatenate(parts).reshape(-1, 16)


def pieces(lines: Lines, tail: int, cut: int) -> Iterator[Pieces]:
    """The memory as one part, and as one that ends early beside one that begins there."""
    for bounds, whole in (([0, len(lines)], [True]), ([0, cut, len(lines)], [False, True])):
        starts = np.array(bounds[:-1])
        yield Pieces(
            stripe=np.full(len(starts), STRIPE),
            first=np.array(bounds),
            tail=(starts + tail).astype(np.uint32),
            whole=np.array(whole),
            skipped=np.zeros(len(starts), np.uint32),
            head=np.full(len(starts), (tail + len(lines)) & 0xFFFFFFFF, np.uint32),
        )


@examples(150)
@given(st.lists(slabs, min_size=1, max_size=60), st.integers(0, 0xFFFFFFFF), st.sampled_from([0, SETTLED]), st.data())
def test_compiled_code_finds_the_same_slabs_as_numpy(
    expected: list[tuple[int, int, str, int]], tail: int, settled: int, data: st.DataObject
) -> None:
    lines = memory(expected, tail)
    cut = data.draw(st.integers(1, len(lines) - 1))
    for parts in pieces(lines, tail, cut):
        compiled = find(lines, parts, settled)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KSCOPE_NATIVE", "0")
            scanned = find(lines, parts, settled)
        for name in ("at", "piece", "units", "closed", "epoch", "position", "over"):
            got, plain = getattr(compiled, name), getattr(scanned, name)
            assert got.dtype == plain.dtype and np.array_equal(got, plain), name
        if len(parts.stripe) == 1 and {state for _, _, state, _ in expected} == {"closed"}:
            assert len(scanned.at) == len(expected) and scanned.closed.all()


@pytest.mark.parametrize("native", ["1", "0"])
def test_records_are_checked_only_in_recently_closed_slabs(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSCOPE_NATIVE", native)
    expected = [(3, 8, "closed", SETTLED), (3, 8, "late record", SETTLED), (3, 8, "late record", SETTLED - 1)]
    lines = memory(expected, 0)
    (whole, _) = pieces(lines, 0, 1)
    assert find(lines, whole, SETTLED).closed.tolist() == [True, False, True]
    assert find(lines, whole).closed.tolist() == [True, False, False]
