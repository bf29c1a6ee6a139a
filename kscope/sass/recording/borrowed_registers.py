"""Lends registers of the kernel to records where they hold no value. A register can be lent if, while the record is
open, no value in it is needed and no instruction, nor one in flight, uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

from ..checks import hazards
from ..cubin.instructions import Function, Instruction
from .liveness import live
from .regions import Key


@dataclass(frozen=True)
class Span:
    """The instructions at which a record is open.

    Attributes:
        begins: the instructions before which it begins.
        ends: the instructions before which it is stored.
        holding: the instructions that write its value or its predicate, which may run before it begins.
    """

    begins: frozenset[int]
    ends: frozenset[int]
    holding: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Lender:
    """Finds registers of a function that are free."""

    function: Function

    @cached_property
    def _by_address(self) -> dict[int, Instruction]:
        return {one.at: one for one in self.function.instructions}

    @cached_property
    def _live(self) -> dict[int, frozenset[str]]:
        return live(self.function.instructions)

    @cached_property
    def _flight(self) -> dict[int, frozenset[str]]:
        return hazards.in_flight(self.function)

    def inside(self, span: Span) -> frozenset[int]:
        """The instructions at which a record is open: those that run from a begin, or from its value, to an end."""
        return self._between(span.begins | span.holding, span.ends)

    def _between(self, begins: frozenset[int], ends: frozenset[int]) -> frozenset[int]:
        """The instructions that run from the first ones up to, but without, one of the others."""
        inside, work = set[int](), list(begins)
        while work:
            at = work.pop()
            if at not in inside:
                inside.add(at)
                work += [to for to in self._next(self._by_address[at]) if to not in ends]
        return frozenset(inside)

    def _held(self, span: Span) -> frozenset[int]:
        """The instructions before which a record's registers hold its value, up to its begin."""
        before = self._between(span.holding, span.begins | span.ends)
        return frozenset(to for at in before for to in self._next(self._by_address[at])) - (span.ends - span.begins)

    def busy(self, span: Span) -> frozenset[str]:
        """The registers that cannot be lent to a record."""
        inside, found = self.inside(span), set[str]()
        for at in inside:
            found |= self._by_address[at].reads | self._by_address[at].writes
        for at in inside | span.ends:
            found |= self._live[at] | self._flight.get(at, frozenset())
        return frozenset(found)

    def overlapping(self, spans: Mapping[Key, Span]) -> frozenset[frozenset[Key]]:
        """Pairs of records that are open at the same instruction; the value of one may be written before it begins."""
        inside = {key: self.inside(span) for key, span in spans.items()}
        # places of instants without a value, and those where other records use their registers
        moments = {key: span.ends for key, span in spans.items() if not span.begins | span.holding}
        used = {key: inside[key] - span.begins - span.holding | self._held(span) for key, span in spans.items()}
        return frozenset(
            frozenset((one, other))
            for one, other in permutations(spans, 2)
            if inside[one] & inside[other] or moments.get(one, frozenset()) & used[other]
        )

    def _next(self, one: Instruction) -> list[int]:
        return [to for to in hazards.successors(one) if to in self._by_address]

    def waits(self, span: Span, lent: frozenset[str]) -> frozenset[int]:
        """The instructions before which the code must wait for a record's store: the next that use its registers.

        Args:
            span: the record's.
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
                work += self._next(one)
        return frozenset(found)
