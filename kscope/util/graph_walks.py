"""Walks over graphs, such as a function's code: reachable places, and facts that hold on every path, or on any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

Place = TypeVar("Place")
State = TypeVar("State")


def reached(starts: Iterable[Place], onward: Callable[[Place], Iterable[Place]]) -> set[Place]:
    """The starts, and all places that can be reached from them."""
    found, work = set[Place](), list(starts)
    while work:
        place = work.pop()
        if place not in found:
            found.add(place)
            work += onward(place)
    return found


def settled(
    starts: Mapping[Place, State],
    onward: Callable[[Place, State], Iterable[tuple[Place, State]]],
    join: Callable[[State, State], State],
) -> dict[Place, State]:
    """The final state before each reachable place.

    Args:
        starts: places where paths begin, with their state.
        onward: maps a place and the state before it to the next places, each with the state that arrives there.
        join: merges the states of two paths: their common facts, or the facts of either.
    """
    states, work = dict(starts), list(starts)
    while work:
        place = work.pop()
        for to, arriving in onward(place, states[place]):
            state = join(states[to], arriving) if to in states else arriving
            if to not in states or state != states[to]:
                states[to] = state
                work.append(to)
    return states
