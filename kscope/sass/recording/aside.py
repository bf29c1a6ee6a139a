"""Begins that need not wait for the store of the record before: their clock waits in another register.

In a loop, a record is stored at the end of an iteration and begins again at the start of the next one, where its
store may not have read its registers yet. The kernel would stall there. So the clock is read into another register, and
moved to the record before the next store, with the record's constants. Only these writes, which come much later, wait
for the previous store.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import replace

from .regions import Key
from .registers import EXTRA, RECORD, Allocation
from .sites import Site

_ACTS = ("enter", "clock", "exit")


def placed(sites: Sequence[Site], chosen: Allocation, busy: Set[int], most: int) -> list[Site]:
    """The same sites; those of records whose begin would wait have a register for it, as far as there are any.

    Args:
        sites: copies of marks, of which those that must wait do.
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
    """Whether a site is of a record without a value, a predicate or a guard."""
    plain = not (site.record.conditional or site.spot.guard or site.spot.after)
    valued = site.value is not None or any(site.held) or site.spot.source is not None
    return plain and site.act in _ACTS and not valued


def _apart(some: Sequence[Site]) -> bool:
    """Whether instructions of the kernel stand between begins and ends: else the clock would be moved before it is
    there.
    """
    begins = {one.spot.at for one in some if one.act == "enter"}
    return begins.isdisjoint(one.spot.at for one in some if one.act != "enter")


def _changed(site: Site, register: int | None) -> Site:
    if register is None:
        return site
    first = "exit" if site.word is None else "clock"
    return replace(site, aside=register, waits=site.act == first)
