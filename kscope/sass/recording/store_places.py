"""Places at which the records of a pipeline are stored; `deferring` uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...util.graph_walks import reached
from ..checks.hazards import successors
from ..cubin.instructions import Instruction
from ..placing.basic_blocks import Machine
from ..placing.mark_order import Spot
from .regions import Record

_DRAIN, _ALL = "WARPGROUP.DEPBAR", "0x0"
_AWAITS = "SYNCS.PHASECHK"
_COPY = "UTMALDG"
_PRODUCTS = frozenset({"HGMMA", "IGMMA", "QGMMA", "BGMMA"})
_FEWEST = 4
"""Least number of products that hide the stores."""
_PIPELINED = ("WARPGROUP", _COPY)
"""Instructions of loops in which copies or products are under way where an iteration ends."""
_MANY = 2
"""Operations in a row."""
_GIVES_BACK = "USETMAXREG.DEALLOC"


class Copy(Protocol):
    """A copy of a mark: a site, or the mark that becomes one."""

    @property
    def spot(self) -> Spot: ...
    @property
    def act(self) -> str: ...
    @property
    def record(self) -> Record: ...


@dataclass(frozen=True)
class Where:
    """Where a record is stored.

    Attributes:
        stores: the instructions before which it is stored.
        until: the instructions before which nothing else may be stored until then.
        first: it is stored in its own iteration.
        always: its mark follows the first of `stores` in each iteration, in the same block.
        written: the registers that the loop writes.
        ends: it is stored where the iteration ends.
        run: it belongs to one of several operations in a row, outside loops of a pipeline.
        depth: number of blocks, and bytes of its block, before it in each iteration.
    """

    stores: tuple[int, ...]
    until: frozenset[int]
    first: bool
    always: bool
    written: frozenset[str]
    ends: bool
    depth: tuple[int, int]
    run: bool = False

    @staticmethod
    def of(machine: Machine, mark: Copy, others: Sequence[Copy]) -> Where | None:
        """Where the record of a mark in a loop of a pipeline, or in a row of marks, is stored; None for others."""
        flow, blocks = machine.flow, machine.blocks
        own = block_of(machine, mark)
        loop = loop_of(machine, own)
        if loop is None:
            return _of_run(machine, mark, others)
        if uniform(mark):
            return None
        head, inside = loop
        members = [n for n in range(len(blocks)) if inside >> n & 1]
        within = {one.at: one for n in members for one in blocks[n]}
        again = [
            one
            for one in others
            if one.record.key == mark.record.key and one.act != "enter" and inside >> block_of(machine, one) & 1
        ]
        if len(again) != 1 or any(one.name == "EXIT" for one in within.values()):
            return None
        waits = [(n, one) for n in members for one in blocks[n] if one.code.startswith(_DRAIN)]
        written = frozenset[str]().union(*(one.writes for one in within.values()))
        depth = flow.dominators[own].bit_count(), mark.spot.at - blocks[own][0].at

        def passed(last: int) -> list[int]:
            """The code from the mark up to an instruction."""
            return list(
                reached([mark.spot.at], lambda at: [to for to in successors(within[at]) if to in within and to != last])
            )

        if len(waits) == 1 and waits[0][1].operands[-1] == _ALL:
            block, wait = waits[0][0], _ahead(blocks[waits[0][0]], waits[0][1])
            if own != block and not (flow.dominators[own] >> block & 1 or flow.dominators[block] >> own & 1):
                return None
            first = mark.spot.at <= wait.at if own == block else bool(flow.dominators[block] >> own & 1)
            leaves = sorted({blocks[to][0].at for n in members for to in flow.successors[n] if not inside >> to & 1})
            always, until = own == block and not first, passed(wait.at)
            if first and not _stays(within, until):
                return None
            stores = (wait.at,) if first else (wait.at, *leaves)
            return Where(stores, frozenset(until), first, always, written, False, depth)
        ends = [n for n in members if head in flow.successors[n]]
        if len(ends) != 1 or not any(one.name in _PIPELINED for one in within.values()):
            return None
        code = blocks[own]
        at, copies = code[-1].at, [one.at for one in code if one.name == _COPY and one.at > mark.spot.at]
        if own not in ends:  # the next wait is in another block
            if not copies:
                return None
            begun = (one.spot.at for one in others if one.act == "enter" and copies[-1] < one.spot.at < at)
            at = min(begun, default=at)
        until = passed(at)
        if code[-1].name != "BRA" or at in until or not _stays(within, until):
            return None
        return Where((at,), frozenset(until), True, False, written, True, depth)


def _ahead(code: Sequence[Instruction], wait: Instruction) -> Instruction:
    """The instruction before which waiting records are stored, in a block that waits for all products: the product in
    the middle of many, because those after it hide the stores; else the wait.
    """
    products = [one for one in code if one.name in _PRODUCTS and one.at < wait.at]
    middle = len(products) // 2
    return products[middle] if middle >= _FEWEST else wait


def plain(mark: Copy) -> bool:
    """True if the lanes of a record are known by the end of its instruction."""
    source = mark.spot.source
    voted = source is not None and source.voted
    return not (mark.spot.guard or mark.spot.after or mark.record.conditional or voted) and mark.act != "enter"


def instant(mark: Copy) -> bool:
    """True if the operation of a mark takes no time: its record has one clock."""
    return mark.act not in ("enter", "exit", "clock")


def uniform(mark: Copy) -> bool:
    """True if the predicate of an operation holds for the whole warp."""
    return mark.spot.source is not None and mark.spot.source.guard.lstrip("@!").startswith("UP")


def _of_run(machine: Machine, mark: Copy, others: Sequence[Copy]) -> Where | None:
    """Where the record of one of several operations in a row, outside loops of a pipeline, is stored: before the branch
    that ends the last block which always follows, and follows nothing else.
    """
    flow, blocks, own = machine.flow, machine.blocks, block_of(machine, mark)
    here = [one for one in others if block_of(machine, one) == own and instant(one)]
    if not instant(mark) or len({one.spot.at for one in here}) < _MANY:
        return None
    behind_it = chain(machine, own)
    code = [one for n in behind_it for one in blocks[n] if n != own or one.at >= mark.spot.at]
    last, until = code[-1], frozenset(one.at for one in code[:-1])
    behind = [one for one in others if one is not mark and one.spot.next in {*until, last.at}]
    again = [block for block in behind_it if block in flow.successors[block]]
    if last.name != "BRA" or mark.spot.at == last.at or behind_it[-1] in again:
        return None
    if any(block_of(machine, one) in again for one in (mark, *behind)):
        return None
    stored = [one for one in behind if one.act not in ("enter", "clock")]
    if any(not instant(one) or not plain(one) or one.record.key == mark.record.key for one in stored):
        return None
    depth = flow.dominators[own].bit_count(), mark.spot.at - blocks[own][0].at
    written = frozenset[str]().union(*(one.writes for one in code))
    return Where((last.at,), until, True, False, written, False, depth, True)


def chain(machine: Machine, first: int) -> list[int]:
    """The blocks that always follow one, and nothing else; a thread keeps its registers. A block may be repeated."""
    flow, blocks, found = machine.flow, machine.blocks, [first]
    while len(ways := {to for to in flow.successors[found[-1]] if to != found[-1]}) == 1:
        (to,) = ways
        if {one for one in flow.predecessors[to] if one != to} != {found[-1]}:
            break
        if any(one.name == "EXIT" or one.code.startswith(_GIVES_BACK) for one in blocks[to]):
            break
        found.append(to)
    return found


def _stays(within: Mapping[int, Instruction], some: Sequence[int]) -> bool:
    """True if only instructions of a loop follow some of it."""
    return all(to in within for at in some for to in successors(within[at]))


def loop_of(machine: Machine, block: int) -> tuple[int, int] | None:
    """The loop with a block: its first block, and all of them; None if there is none, or if it contains another loop.

    A repeated wait does not count as a loop.
    """
    loops = [
        (head, inside)
        for head, inside in machine.flow.loops.items()
        if not (inside == 1 << head and machine.blocks[head][0].code.startswith(_AWAITS))
    ]
    found = min((one for one in loops if one[1] >> block & 1), key=lambda one: one[1].bit_count(), default=None)
    return found if found and not any(other & found[1] == other != found[1] for _, other in loops) else None


def block_of(machine: Machine, mark: Copy) -> int:
    return next(n for n, code in enumerate(machine.blocks) if code[0].at <= mark.spot.at <= code[-1].at)
