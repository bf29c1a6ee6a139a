"""Proves that the value and the predicate of each record are in their registers when it is stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ...errors import UnsupportedError
from .basic_blocks import Machine, Text
from .mark_order import Spot

_Held = tuple[str, str]
"""A region's name, and "value" or "predicate"."""


def check(text: Text, machine: Machine, spots: Sequence[Spot]) -> None:
    """Refuse regions that end before the instruction that computes their value or their predicate.

    Args:
        text, machine: the kernel.
        spots: where its marks stand.

    Raises:
        UnsupportedError: a region does.
    """
    events = _events(text, spots)
    names = frozenset(held for some in events.values() for act, held in some if act == "written")
    if not names:
        return
    states: dict[int, frozenset[_Held]] = {0: frozenset()}
    work = [0]
    while work:
        block = work.pop()
        state = states[block]
        for one in machine.blocks[block]:
            for act, held in (event for place in (0, 1, 2) for event in events.get((one.at, place), ())):
                if act == "written":
                    state |= {held}
                elif held in names and held not in state:
                    raise UnsupportedError(f"region {held[0]!r} would end before its {held[1]} is computed")
                elif one.name != "EXIT":  # after a conditional exit the region stays open for the other threads
                    state -= {held}
        for to in machine.flow.successors[block]:
            merged = states.get(to, state) & state
            if merged != states.get(to):
                states[to] = merged
                work.append(to)


def _events(text: Text, spots: Sequence[Spot]) -> dict[tuple[int, int], list[tuple[str, _Held]]]:
    """Registers that are written or stored, by address and time: before the instruction (0), by it (1), after it
    (2).
    """
    found = defaultdict[tuple[int, int], list[tuple[str, _Held]]](list)
    for spot in spots:
        mark = text.labels.marks[spot.mark]
        if mark.act == "enter":
            for kind, at in (("value", spot.value), ("predicate", spot.when)):
                where = (spot.at, 2 * spot.after) if at is None else (at, 1)
                found[where].append(("written", (mark.name, kind)))
        elif mark.act == "exit":
            found[spot.at, 2 * spot.after] += _stored(mark.name)
    return found


def _stored(name: str) -> Iterator[tuple[str, _Held]]:
    yield from (("stored", (name, kind)) for kind in ("value", "predicate"))
