"""Control flow graphs of PTX or machine code: which blocks run equally often, and which one precedes another. Sets of
blocks are integers, one bit per block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...errors import UnsupportedError


@dataclass(frozen=True)
class Flow:
    """A control-flow graph. Block 0 is the entry; a block may also leave the function.

    Attributes:
        successors: of each block.
        leaves: blocks at which the function may end.
    """

    successors: tuple[tuple[int, ...], ...]
    leaves: frozenset[int]

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.successors]
        for block in self.order:
            for to in self.successors[block]:
                found[to].append(block)
        return tuple(map(tuple, found))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The blocks that can be reached, each before its successors, except in loops."""
        done, seen, work = list[int](), {0}, [(0, iter(self.successors[0]))]
        while work:
            block, rest = work[-1]
            for to in rest:
                if to not in seen:
                    seen.add(to)
                    work.append((to, iter(self.successors[to])))
                    break
            else:
                done.append(block)
                work.pop()
        return tuple(reversed(done))

    @cached_property
    def dominators(self) -> list[int]:
        """For each block, the blocks on every path to it."""
        return _fixed(self.order, self.predecessors, {0}, len(self.successors))

    @cached_property
    def followers(self) -> list[int]:
        """For each block, the blocks on every path from it to an end; the block alone if no path leads to one."""
        ending, work = set(self.leaves), list(self.leaves)
        while work:
            before = [one for one in self.predecessors[work.pop()] if one not in ending]
            ending.update(before)
            work += before
        found = _fixed(self.order[::-1], self.successors, self.leaves, len(self.successors))
        return [some if block in ending else 1 << block for block, some in enumerate(found)]

    @cached_property
    def loops(self) -> dict[int, int]:
        """The blocks of each loop, by its first block.

        Raises:
            UnsupportedError: a loop can be entered at several blocks.
        """
        place = {block: number for number, block in enumerate(self.order)}
        found = dict[int, int]()
        for block in self.order:
            for to in self.successors[block]:
                if place[to] > place[block]:
                    continue
                if not self.dominators[block] >> to & 1:
                    raise UnsupportedError("a loop of the code has several entries")
                inside, work = found.get(to, 0) | 1 << to, [block]
                while work:
                    one = work.pop()
                    if not inside >> one & 1:
                        inside |= 1 << one
                        work += self.predecessors[one]
                found[to] = inside
        return found

    @cached_property
    def around(self) -> tuple[frozenset[int], ...]:
        """For each block, the first blocks of the loops around it."""
        return tuple(
            frozenset(head for head, inside in self.loops.items() if inside >> block & 1)
            for block in range(len(self.successors))
        )

    @cached_property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """The blocks in groups that run equally often, each in the order in which they run."""
        groups = list[list[int]]()
        for block in sorted(self.order, key=lambda one: self.dominators[one].bit_count()):
            for group in groups:
                first = group[-1]
                if (
                    self.dominators[block] >> first & 1
                    and self.followers[first] >> block & 1
                    and not self._comes_again(first, block)
                    and not self._comes_again(block, first)
                ):
                    group.append(block)
                    break
            else:
                groups.append([block])
        return tuple(map(tuple, groups))

    def _comes_again(self, block: int, without: int) -> bool:
        """True if a path leads from a block back to itself without passing another one."""
        work, seen = list(self.successors[block]), {without}
        while work:
            one = work.pop()
            if one == block:
                return True
            if one not in seen:
                seen.add(one)
                work += self.successors[one]
        return False

    @cached_property
    def group(self) -> dict[int, int]:
        """The number of each block's group in `alike`."""
        return {block: number for number, group in enumerate(self.alike) for block in group}

    def deciding(self, block: int) -> frozenset[int]:
        """The blocks whose branches decide if a block runs."""
        return frozenset(
            one
            for one in self.order
            if any(self.followers[to] >> block & 1 for to in self.successors[one])
            and (one == block or not self.followers[one] >> block & 1)
        )

    def common(self, one: int, other: int) -> int | None:
        """The first block of the innermost loop around both; None if there is none."""
        shared = self.around[one] & self.around[other]
        return max(shared, key=lambda head: len(self.around[head]), default=None)

    def before(self, one: int, other: int) -> bool:
        """True if a path leads from a block to another one within one iteration of the innermost loop around both."""
        return one != other and bool(self._behind(one, self.common(one, other)) >> other & 1)

    def _behind(self, block: int, head: int | None) -> int:
        known = self._reached.get((block, head))
        if known is not None:
            return known
        inside = self.loops[head] & ~(1 << head) if head is not None else -1
        found, work = 0, list(self.successors[block])
        while work:
            one = work.pop()
            if inside >> one & 1 and not found >> one & 1:
                found |= 1 << one
                work += self.successors[one]
        self._reached[block, head] = found
        return found

    @cached_property
    def _reached(self) -> dict[tuple[int, int | None], int]:
        return {}


def _fixed(
    order: Sequence[int], ways: Sequence[Sequence[int]], ends: set[int] | frozenset[int], many: int
) -> list[int]:
    """For each block, itself and what all its paths have in common; ends have nothing else."""
    everything = (1 << many) - 1
    found = [1 << block if block in ends else everything for block in range(many)]
    changed = True
    while changed:
        changed = False
        for block in order:
            if block in ends:
                continue
            shared = everything
            for way in ways[block]:
                shared &= found[way]
            shared |= 1 << block
            if shared != found[block]:
                found[block], changed = shared, True
    return found


def bits(blocks: int) -> Iterator[int]:
    """The blocks of a set."""
    while blocks:
        low = blocks & -blocks
        yield low.bit_length() - 1
        blocks ^= low
