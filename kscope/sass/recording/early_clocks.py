"""Reads a begin's clock into another register while the previous store may still read the record's registers. The clock
moves to the record before its next store, so the kernel does not stall at the begin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import replace

from .regions import Key
from .registers import EXTRA, RECORD, Allocation
from .sites import Site

_ACTS = ("enter", "clock", "exit")


def with_early_clocks(sites: Sequence[Site], chosen: Allocation, busy: Set[int], most: int) -> list[Site]:
    """The same sites; records whose begin would wait get a register for it while any are left.

    Args:
        sites: copies of marks, with `waits` where they must wait.
        chosen: the registers of records and state.
        busy: the registers that the kernel uses.
        most: registers a thread that it may use.
    """
    own = defaultdict[Key, list[Site]](list)
    for site in sites:
        own[site.record.key].append(site)
    taken = {*busy, *chosen.state.registers, *(first + n for first in chosen.quads.values() for n in range(RECORD))}
    free = [number for number in range(most - EXTRA) if number not in taken]
    found = dict[Key, int]()
    for key, some in own.items():
        if free and any(one.act == "enter" and one.waits for one in some) and all(map(_simple, some)) and _apart(some):
            found[key] = free.pop(0)
    return [_changed(site, found.get(site.record.key)) for site in sites]


def _simple(site: Site) -> bool:
    """True if a site's record has no value, predicate or guard."""
    plain = not (site.record.conditional or site.spot.guard or site.spot.after)
    valued = site.value is not None or any(site.held) or site.spot.source is not None
    return plain and site.act in _ACTS and not valued


def _apart(some: Sequence[Site]) -> bool:
    """True if kernel instructions separate begins and ends; else the clock would be moved before it arrives."""
    begins = {one.spot.at for one in some if one.act == "enter"}
    return begins.isdisjoint(one.spot.at for one in some if one.act != "enter")


def _changed(site: Site, register: int | None) -> Site:
    if register is None:
        return site
    first = "exit" if site.word is None else "clock"
    return replace(site, aside=register, waits=site.act == first)
