"""Finds the marks that must wait for the store of an earlier record, because they write registers that it may not have
read yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...util.graph_walks import settled
from ..checks.hazards import successors
from ..cubin.instructions import Function
from ..placing.mark_order import Spot

_Stored = tuple[frozenset[int], frozenset[int]]
"""Registers of the records that the last store but one, and the last one, may have stored."""


@dataclass(frozen=True)
class Use:
    """A mark's use of a record's registers: its place, its act, and the first of the registers."""

    spot: Spot
    act: str
    quad: int


def waiting_marks(function: Function, uses: Sequence[Use]) -> frozenset[Spot]:
    """The spots of begins and instants that must wait, and of ends after one that only some lanes of a warp reach.

    Every store waits for the one before it, because both use the register of the address. The last store on each path
    to a mark may be in flight, and also the one before that, because the last one may follow the mark.

    Args:
        function: the kernel without its marks.
        uses: the marks; those at one place in the order in which they are inserted.
    """
    behind: dict[int, list[Use]] = defaultdict(list)
    before: dict[int, list[Use]] = defaultdict(list)
    for use in uses:
        (behind if use.spot.after else before)[use.spot.at].append(use)
    partly = {use.quad for use in uses if use.act == "exit" and use.spot.guard}
    by_address = {one.at: one for one in function.instructions}
    found = set[Spot]()

    def onward(at: int, stored: _Stored) -> Iterator[tuple[int, _Stored]]:
        ahead, last = stored
        here = ahead | last  # clocks of one place may be read one after the other, before all its stores
        for use in (*before[at], *behind[at]):
            if (use.act != "exit" or use.quad in partly) and use.quad in here:
                found.add(use.spot)
            if use.act != "enter":
                ahead, last = last, frozenset({use.quad})
                here |= last
        yield from ((to, (ahead, last)) for to in successors(by_address[at]) if to in by_address)

    settled(
        {0: (frozenset[int](), frozenset[int]())}, onward, lambda one, other: (one[0] | other[0], one[1] | other[1])
    )
    return frozenset(found)
