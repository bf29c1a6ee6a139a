"""Registers that the kernel uses elsewhere, lent to records where it has no value in them.

A register can be lent to a record if, wherever the record is open, no value in it is needed, no instruction uses it,
and none that is in flight will. Behind the record's store, the kernel's next use of the register waits until the store
has read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from . import hazards
from .instructions import Function, Instruction


@dataclass(frozen=True)
class Span:
    """Where a record is open: in front of which instructions it begins, and in front of which it is stored."""

    begins: frozenset[int]
    ends: frozenset[int]


@dataclass(frozen=True)
class Lender:
    """Knows where registers of a function are free."""

    function: Function

    @cached_property
    def _by_address(self) -> dict[int, Instruction]:
        return {one.at: one for one in self.function.instructions}

    @cached_property
    def _live(self) -> dict[int, frozenset[str]]:
        return live(self.function)

    @cached_property
    def _flight(self) -> dict[int, frozenset[str]]:
        return hazards.in_flight(self.function)

    def busy(self, span: Span) -> frozenset[str]:
        """The registers that cannot be lent to a record."""
        inside, work = set[int](), list(span.begins)
        found = set[str]()
        while work:
            at = work.pop()
            if at in inside:
                continue
            inside.add(at)
            one = self._by_address[at]
            found |= one.reads | one.writes
            work += [to for to in self._next(one) if to not in span.ends]
        for at in inside | span.ends:
            found |= self._live[at] | self._flight.get(at, frozenset())
        return frozenset(found)

    def _next(self, one: Instruction) -> list[int]:
        return [to for to in hazards.successors(one) if to in self._by_address]

    def waits(self, span: Span, marks: frozenset[int], lent: frozenset[str]) -> frozenset[int]:
        """The instructions in front of which the code must wait for a record's store: the next that use its registers.

        Args:
            span: the record's.
            marks: where marks are, whose own instructions wait.
            lent: the record's registers.
        """
        found, seen, work = set[int](), set[int](), list(span.ends)
        while work:
            at = work.pop()
            if at in seen:
                continue
            seen.add(at)
            one = self._by_address[at]
            if (one.reads | one.writes) & lent:
                found.add(at)
            elif one.name != "EXIT" or one.conditional:
                work += [to for to in self._next(one) if to not in marks]
        return frozenset(found)


def live(function: Function) -> dict[int, frozenset[str]]:
    """The registers whose values are needed, in front of each instruction."""
    found = {one.at: frozenset[str]() for one in function.instructions}
    changed = True
    while changed:
        changed = False
        for one in reversed(function.instructions):
            after = frozenset[str]().union(*(found[to] for to in hazards.successors(one) if to in found))
            here = one.reads | (after if one.conditional else after - one.writes)
            if here != found[one.at]:
                found[one.at], changed = here, True
    return found
