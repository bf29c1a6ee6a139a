"""Compiled code and numpy account for the same slabs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptxvm.profile import examples
from wired import Head, slab

from kscope import native
from kscope.capture import wire
from kscope_runtime.accounting import MASK, Share, Stripes, account
from kscope_runtime.launch_table import Found
from kscope_runtime.slab_search import Pieces, find

RING = 256
UNITS = wire.slab_units(2)
kinds = st.sampled_from(["closed"] * 16 + ["open", "gap", "short gap"])
NEAR = [0] * 12 + [-5, -UNITS, -1, 1, UNITS, 40]


def ring(expected: list[str]) -> np.ndarray:
    """Slabs and gaps one after the other."""
    parts = []
    for kind in expected:
        units = slab(Head(cycles=None if kind == "open" else 500))
        units[:] = 0 if "gap" in kind else units
        parts.append(units[:1] if kind == "short gap" else units)
    return np.concatenate(parts)


def edges(expected: list[str]) -> list[int]:
    """Where the ring's edge may be: inside a gap, behind the copy, or anywhere."""
    starts = np.cumsum([0, *(1 if kind == "short gap" else UNITS for kind in expected)]).tolist()
    inside = [start + 1 for start, kind in zip(starts, expected, strict=False) if kind == "gap"]
    return [*inside * 3, starts[-1], starts[-1] - 2, RING]


@st.composite
def batches(draw: st.DrawFn) -> tuple[np.ndarray, Pieces, Stripes]:
    """A copy of some stripes, its parts, and the stripes."""
    expected = draw(st.lists(st.lists(kinds, min_size=1, max_size=30), min_size=1, max_size=3))

    def each(*values: int) -> npt.NDArray[np.int64]:
        return np.array([draw(st.sampled_from(values)) for _ in expected])

    whole = each(1, 1, 1, 0) > 0
    rest = slab(Head(), 6)[:10]  # of a slab that the copy cuts
    both = zip(expected, whole.tolist(), strict=True)
    copies = [ring(kinds) if to_head else np.concatenate([ring(kinds), rest]) for kinds, to_head in both]
    units = np.array([len(copied) for copied in copies])
    before_edge = np.array([draw(st.sampled_from(edges(kinds))) for kinds in expected])
    tail = each(0, MASK - RING + 1, 5 * RING) + RING - before_edge
    head = tail + units + np.where(whole, each(0, UNITS, 30), 30)
    empty = [sum({"gap": UNITS, "short gap": 1}.get(kind, 0) for kind in kinds) for kinds in expected]
    columns = tail, empty + each(*NEAR), head, tail + each(*NEAR)
    tail, skipped, head, found = ((column & MASK).astype(np.uint32) for column in columns)
    state = Stripes.at(np.zeros(len(units), wire.STRIPE))
    state.ring[:] = RING
    state.tail, state.found, state.limit = tail.copy(), found, tail + np.uint32(RING)
    state.proven = tail + np.where(each(1, 0, 0), units - 1, each(0, UNITS)).astype(np.uint32)
    state.clean = tail + each(0, 0, 0, RING).astype(np.uint32)
    return np.concatenate(copies), Pieces.of(np.arange(len(units)), tail, units, whole, skipped, head), state


def accounted(batch: tuple[np.ndarray, Pieces, Stripes], running: bool) -> tuple[Share, Stripes]:
    units, pieces, before = batch
    state = replace(before, found=before.found.copy(), proven=before.proven.copy())
    slabs = find(units, pieces)
    found = Found(np.zeros(1, wire.LAUNCH), np.arange(len(slabs.at), dtype=np.int32), 0)
    return account(state, units, pieces, slabs, found, None if running else pieces.units // 2), state


@pytest.mark.skipif(not native.available(), reason="no compiled loops")
@examples(300)
@given(batches(), st.sampled_from([True, True, True, False]))
def test_compiled_code_accounts_for_the_same_slabs_as_numpy(
    batch: tuple[np.ndarray, Pieces, Stripes], running: bool
) -> None:
    taken, state = accounted(batch, running)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KSCOPE_NATIVE", "0")
        expected, plain = accounted(batch, running)
    for name in ("free", "at", "entry", "opens"):
        got, wanted = getattr(taken, name), getattr(expected, name)
        assert got.dtype == wanted.dtype and np.array_equal(got, wanted), name
    assert state.found.tolist() == plain.found.tolist() and state.proven.tolist() == plain.proven.tolist()
