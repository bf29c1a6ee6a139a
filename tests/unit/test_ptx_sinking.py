"""Stores that wait for the end of their block give the same records, in the same order, as stores in place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptxvm.cases import Case, Outcome, cases, execute, judged
from ptxvm.profile import examples
from ptxvm.writing import Node, written

from kscope.instrument.recording import Recording
from kscope.lowering import hoist
from kscope.lowering.plan import lower


def by_lane(outcome: Outcome) -> dict[tuple[int, int, int, int], tuple[bytes, bytes]]:
    """Each lane's head and records."""
    return {slab.key: (slab.head.tobytes(), np.ascontiguousarray(slab.records()).tobytes()) for slab in outcome.slabs}


@examples(15)
@given(cases(depth=3, threads=2, ample=True), st.sampled_from([1, 2, 3, 64]))
def test_deferred_and_in_place_stores_record_the_same(case: Case, pending: int) -> None:
    in_place = judged(execute(replace(case, recording=replace(case.recording, pending=0))))
    for most in (pending, 8):
        sunk = judged(execute(replace(case, recording=replace(case.recording, pending=most))))
        assert by_lane(sunk) == by_lane(in_place)
        assert sunk.out[1] == in_place.out[1]


VALUES = st.sampled_from(["%v0", "%v1", "%v2", "%v3"])
assigned = st.builds(
    lambda *args: Node("assign", args), st.sampled_from(["add.u32", "xor.b32", "sub.s32"]), VALUES, VALUES, VALUES
)
several = st.lists(assigned, min_size=1, max_size=3).map(tuple)


@examples(15)
@given(cases(depth=1, threads=2, ample=True), several, several, VALUES, st.sampled_from([0, 1, 8]))
def test_a_loops_counter_that_is_moved_changes_no_record(
    case: Case, work: tuple[Node, ...], tail: tuple[Node, ...], when: str, pending: int
) -> None:
    point = Node("point", ("depth", None, "%v2", False, when))
    region = Node("region", ("dot", None, "%v1", True, when), ((point, *work),))
    stored = [Node("store", (n, f"%v{n}")) for n in range(4)]
    kernel = written((Node("loop", ("bottom", 3), ((region,), tail)), *stored))
    recording = replace(case.recording, pending=pending)
    moved = judged(execute(replace(case, kernel=kernel, recording=recording)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hoist, "moves", lambda *_: ())
        still = judged(execute(replace(case, kernel=kernel, recording=recording)))
    assert moved.lowered.text != still.lowered.text
    assert by_lane(moved) == by_lane(still)
    assert moved.out == still.out


def stores(text: str) -> list[str]:
    """In order: S for a record's store, and the other lines of interest."""
    return ["S" if "st.global.v4.b32" in line else line.strip() for line in text.splitlines()]


def test_a_store_waits_for_the_end_of_its_block_and_no_longer() -> None:
    kernel = written((Node("region", ("load", None, None, False), ((),)), Node("bar"), Node("trap"), Node("bar")))
    lines = stores(lower(kernel.text(), Recording(pending=8), frontend="test").text)
    barrier, trap = lines.index("bar.sync 0;"), lines.index("@%p2 trap;")
    assert barrier < lines.index("S") < trap, "it waits across a barrier, not across a trap"
    lines = stores(lower(kernel.text(), Recording(pending=0), frontend="test").text)
    assert lines.index("S") < lines.index("bar.sync 0;"), "in place, it does not wait at all"


def test_a_store_waits_across_a_wait_for_copies() -> None:
    kernel = written((Node("region", ("load", None, None, False), ((),)), Node("wait"), Node("bar"), Node("trap")))
    lines = stores(lower(kernel.text(), Recording(pending=8), frontend="test").text)
    assert lines.index("cp.async.wait_all;") < lines.index("bar.sync 0;") < lines.index("S") < lines.index("@%p2 trap;")


def test_the_slab_is_claimed_before_the_kernels_own_first_access() -> None:
    kernel = written((Node("region", ("load", None, None, False), ((),)), Node("store", (0, "%v0")), Node("bar")))
    lines = stores(lower(kernel.text(), Recording(), frontend="test").text)
    claim = next(n for n, line in enumerate(lines) if "atom.global.add" in line)
    assert claim < lines.index("st.global.u32 [%rd0+0], %v0;")


def test_at_most_pending_records_wait() -> None:
    regions = tuple(Node("region", (name, None, "0", False), ((),)) for name in ("load", "dot", "a b/c", "wait.x"))
    kernel = written((*regions, Node("bar")))
    for pending in range(5):
        lines = stores(lower(kernel.text(), Recording(pending=pending), frontend="test").text)
        assert lines[lines.index("bar.sync 0;") :].count("S") == pending
