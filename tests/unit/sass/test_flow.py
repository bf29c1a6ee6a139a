"""Groups of blocks that run equally often, loops, and order within an iteration of a loop."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kscope.errors import UnsupportedError
from kscope.sass.placing.flow import Flow

NESTED = Flow(((1,), (2, 5), (3, 4), (4,), (2, 1), ()), frozenset({5}))
"""0; a loop of 1 to 4, in it one of 2 to 4, in which 3 is passed by sometimes; 5."""


def test_blocks_that_every_way_passes_run_equally_often() -> None:
    assert set(NESTED.alike) == {(0, 5), (1,), (2, 4), (3,)}
    assert NESTED.group[0] == NESTED.group[5] != NESTED.group[1]


def test_loops_are_found_with_their_blocks() -> None:
    assert {head: {n for n in range(6) if inside >> n & 1} for head, inside in NESTED.loops.items()} == {
        1: {1, 2, 3, 4},
        2: {2, 3, 4},
    }
    assert NESTED.common(2, 5) is None and NESTED.common(3, 4) == 2 and NESTED.common(1, 3) == 1


def test_order_is_that_of_one_turn() -> None:
    assert NESTED.before(2, 4) and not NESTED.before(4, 2)
    assert NESTED.before(0, 3) and NESTED.before(3, 5) and not NESTED.before(5, 3)
    assert NESTED.before(1, 2) and not NESTED.before(2, 1)


def test_a_loop_with_two_entries_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="several entries"):
        _ = Flow(((1, 2), (2,), (1, 3), ()), frozenset({3})).loops


def test_blocks_that_never_end_are_apart() -> None:
    flow = Flow(((1, 4), (2, 3), (1,), (1,), ()), frozenset({4}))
    assert set(flow.alike) == {(0, 4), (1,), (2,), (3,)}


def ran(flow: Flow, dice: random.Random) -> Counter[int] | None:
    """How often each block runs on a random way; None if it has no end."""
    counts, at = Counter[int](), 0
    for _ in range(400):
        counts[at] += 1
        ways = [*flow.successors[at], *([-1] if at in flow.leaves else [])]
        at = dice.choice(ways)
        if at < 0:
            return counts
    return None


def test_groups_run_equally_often_on_every_way() -> None:
    for seed in range(200):
        check(random.Random(seed))


def check(dice: random.Random) -> None:
    many = dice.randrange(3, 12)
    ways = tuple(tuple({*dice.choices(range(many), k=dice.randrange(0, 2)), n + 1}) for n in range(many - 1))
    flow = Flow((*ways, ()), frozenset({many - 1}))
    try:
        groups = flow.alike
    except UnsupportedError:
        return
    for _ in range(50):
        counts = ran(flow, dice)
        for group in groups if counts else ():
            assert counts is not None and len({counts[block] for block in group}) == 1, (flow, group, counts)
