"""Walks over graphs, such as a function's code: what can be reached, and what holds on every path, or on any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

Place = TypeVar("Place")
State = TypeVar("State")


def reached(starts: Iterable[Place], onward: Callable[[Place], Iterable[Place]]) -> set[Place]:
    """The starts, and all places to which a way leads from there."""
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
    """The state in front of each place that can be reached, when no way changes it any more.

    Args:
        starts: where ways begin, and with which state.
        onward: from a place and the state in front of it to the next places, each with the state that arrives there.
        join: the state where ways with two states meet: what both know, or what one of them does.
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
