"""Moves stores of pipeline records off the critical path: at its mark, a record only reads its clock and operands.
docs/design/sass.md, "Pipelines", has the rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from ...util.flow import reached
from ..checks.hazards import successors
from ..cubin.insertion import New
from ..cubin.instructions import Instruction
from ..placing.code import Machine
from ..placing.paths import Spot
from . import rows
from .later import Later
from .regions import Key, Record
from .registers import EXTRA, RECORD, Allocation
from .sites import Site

_STORE = "STG"
_WORDS = (0, 2, 3)
"""Words of a record without its id."""
_DRAIN, _ALL = "WARPGROUP.DEPBAR", "0x0"
_AWAITS = "SYNCS.PHASECHK"
_PIPELINED = ("WARPGROUP", "UTMALDG")
"""Instructions of loops in which something is under way where an iteration ends."""
_ADDRESSES = 3
"""Registers, beside the state's, for addresses of records that are stored together."""


class _Mark(Protocol):
    """A copy of a mark: a site, or what becomes one."""

    @property
    def spot(self) -> Spot: ...
    @property
    def act(self) -> str: ...
    @property
    def record(self) -> Record: ...


@dataclass(frozen=True)
class Deferral:
    """Records that are stored away from their marks.

    Attributes:
        sites: all sites; those of these records are `later`.
        chosen: registers, with those of the flags.
        stores: the records that are stored before an instruction, by its address.
        until: the instructions before which no other record may be stored, because an earlier one waits.
    """

    sites: list[Site]
    chosen: Allocation
    stores: Mapping[int, Later]
    until: frozenset[int]


@dataclass(frozen=True)
class Kinds:
    """The loops whose records are stored elsewhere.

    Attributes:
        ends: loops in which copies or products are under way where an iteration ends.
        ahead: also records that end before a wait for all products, most of which are stored there.
    """

    ends: bool
    ahead: bool


ALL_KINDS = tuple(Kinds(ends, ahead) for ends in (True, False) for ahead in (True, False))
"""In the order in which they are tried."""


def planned(
    machine: Machine,
    sites: Sequence[Site],
    chosen: Allocation,
    busy: Set[int],
    room: Mapping[int, int],
    most: int,
    kinds: Kinds,
) -> Deferral:
    """Choose records of a pipeline that are stored elsewhere.

    In a loop that waits for all products, a record is stored in the next iteration; docs/design/sass.md has the rules:

            HGMMA                                 the tensor cores begin
            store the waiting records, if any
            flag = 1
            WARPGROUP.DEPBAR 0                    wait for the products
            clock                                 a record that waits
        @P0 BRA loop
            store the waiting records             where the loop ends

    Args:
        machine: the kernel.
        sites: copies of marks.
        chosen: the registers of records and state.
        busy: the registers that the kernel uses.
        room: least registers of a thread up to an instruction.
        most: registers a thread that it may use.
        kinds: the loops to consider.
    """
    none = Deferral(list(sites), chosen, {}, frozenset())
    if not chosen.state.uniform:
        return none
    taken = {*busy, *chosen.state.registers, *(first + n for first in chosen.quads.values() for n in range(RECORD))}
    free = [number for number in range(most - EXTRA) if number not in taken]
    found, zeros, until = list(sites), list[int](), set[int]()
    flags, begins = dict[Key | int, int](), defaultdict[int, set[int]](set)
    stores = dict[int, list[tuple[bool, tuple[int, int], int]]]()
    for place, site in enumerate(sites):
        alone = [key for key, quad in chosen.quads.items() if quad == site.quad] == [site.record.key]
        where = _Where.of(machine, site, sites) if _able(site) and alone else None
        if where is None or not (kinds.ends if where.ends else kinds.ahead or not where.first):
            continue
        stays = site.guard.lstrip("@!") not in where.written
        flag = None
        if not (stays and where.first):
            whose = where.stores[0] if stays and where.always else site.record.key
            flag = flags.get(whose, next((one for one in free if one < room.get(site.spot.next, 0)), None))
            if flag is None:
                continue
            if flag in free:
                free.remove(flag)
            flags[whose] = flag
            if stays and where.always:
                begins[where.stores[0]].add(flag)
            # the first iteration reads these, and does not store
            zeros += [flag, *(site.quad + word for word in _WORDS)]
        found[place] = replace(site, later=True, flag=flag, flagged=stays and where.always)
        for at in where.stores:
            # records of the previous iteration come first
            stores.setdefault(at, []).append((where.first, where.depth, place))
        until |= where.until
    if not stores:
        return none
    # stores come in another order now, so another one may have read a record's registers last
    found = [replace(one, waits=one.waits or one.act != "exit") for one in found]
    least = min((room.get(at, 0) for at in stores if not chosen.narrow or at not in chosen.narrow.inside), default=0)
    many = min(_ADDRESSES, max(map(len, stores.values())) - 1)
    addresses = tuple(one for one in free if one < least)[:many]
    state = replace(chosen.state, zeros=tuple(dict.fromkeys(zeros)), addresses=addresses)
    count = max(chosen.count, max([*zeros, *addresses, 0]) + 1 + EXTRA)
    kept = {
        at: Later(tuple(found[place] for *_, place in sorted(some)), frozenset(begins[at]))
        for at, some in stores.items()
    }
    return Deferral(found, replace(chosen, state=state, count=count), kept, frozenset(until))


def candidates(machine: Machine, placed: Sequence[_Mark], pipeline: Set[int]) -> frozenset[Key]:
    """The records that may be stored elsewhere, if each has separate registers. pipeline: numbers of such marks."""
    return frozenset(
        one.record.key
        for one in placed
        if one.spot.mark in pipeline and _plain(one) and _Where.of(machine, one, placed) is not None
    )


def divided(machine: Machine, plan: rows.Plan, pipeline: Set[int]) -> rows.Plan:
    """The plan in which operations of one line in one loop have separate records: they may wait together.

    Args:
        machine: the kernel.
        plan: where records of one name have one key.
        pipeline: numbers of the marks of a pipeline.
    """
    inside, marks = defaultdict[tuple[Key, int], set[int]](set), defaultdict[Key, set[int]](set)
    for one in plan.placed:
        if one.spot.mark in pipeline:
            loop = _loop(machine, _block(machine, one))
            marks[one.record.key].add(one.spot.mark)
            if loop is not None and one.act != "enter":
                inside[one.record.key, loop[0]].add(one.spot.mark)
    number = dict[int, int]()
    for some in inside.values():
        number |= {mark: max(at, number.get(mark, 0)) for at, mark in enumerate(sorted(some))}
    others, by_mark = dict[int, Record](), {one.spot.mark: one for one in plan.placed}
    for key, some in marks.items():
        copy = 0
        for mark in sorted(some, reverse=True):  # a begin belongs to the next end
            if by_mark[mark].act != "enter":
                copy = number.get(mark, 0)
            if copy:
                others[mark] = replace(by_mark[mark].record, key=(key[0], f"{key[1]} {copy}"))
    placed = tuple(replace(one, record=others.get(one.spot.mark, one.record)) for one in plan.placed)
    keys = defaultdict[Key, set[Key]](set)
    for before, after in zip(plan.placed, placed, strict=True):
        keys[before.record.key].add(after.record.key)
    together = frozenset(
        frozenset((one, other))
        for first, second in map(tuple, plan.together)
        for one in keys.get(first, {first})
        for other in keys.get(second, {second})
    )
    records = tuple(dict.fromkeys([*plan.records, *(one.record for one in placed)]))
    return replace(plan, placed=placed, records=records, together=together)


def in_order(deferral: Deferral, before: Mapping[int, Sequence[New]]) -> bool:
    """True if no record is stored before an earlier one. before: the code inserted before each instruction."""
    return not any(_stores(new.seen) for at in deferral.until for new in before.get(at, ()))


def _stores(one: Instruction | None) -> bool:
    return one is not None and one.name == _STORE


def _able(site: Site) -> bool:
    """True if everything that a record needs is known by the end of its instruction."""
    return site.pipeline and site.word is None and _plain(site)


def _plain(mark: _Mark) -> bool:
    """True if the lanes of a record are known by the end of its instruction."""
    source = mark.spot.source
    guarded = source is not None and (source.voted or source.guard.lstrip("@!").startswith("UP"))
    return not (mark.spot.guard or mark.spot.after or mark.record.conditional or guarded) and mark.act != "enter"


@dataclass(frozen=True)
class _Where:
    """Where a record is stored.

    Attributes:
        stores: the instructions before which it is stored.
        until: the instructions before which nothing else may be stored until then.
        first: it is stored in its own iteration.
        always: its mark follows the first of `stores` in each iteration, in the same block.
        written: the registers that the loop writes.
        ends: it is stored where the iteration ends.
        depth: number of blocks, and bytes of its block, before it in each iteration.
    """

    stores: tuple[int, ...]
    until: frozenset[int]
    first: bool
    always: bool
    written: frozenset[str]
    ends: bool
    depth: tuple[int, int]

    @staticmethod
    def of(machine: Machine, mark: _Mark, others: Sequence[_Mark]) -> _Where | None:
        """Where the record of a mark in a loop of a pipeline is stored; None for others."""
        flow, blocks = machine.flow, machine.blocks
        own = _block(machine, mark)
        loop = _loop(machine, own)
        if loop is None:
            return None
        head, inside = loop
        members = [n for n in range(len(blocks)) if inside >> n & 1]
        within = {one.at: one for n in members for one in blocks[n]}
        again = [
            one
            for one in others
            if one.record.key == mark.record.key and one.act != "enter" and inside >> _block(machine, one) & 1
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
            block, wait = waits[0]
            if own != block and not (flow.dominators[own] >> block & 1 or flow.dominators[block] >> own & 1):
                return None
            first = mark.spot.at <= wait.at if own == block else bool(flow.dominators[block] >> own & 1)
            leaves = sorted({blocks[to][0].at for n in members for to in flow.successors[n] if not inside >> to & 1})
            always, until = own == block and not first, passed(wait.at)
            if first and not _stays(within, until):
                return None
            stores = (wait.at,) if first else (wait.at, *leaves)
            return _Where(stores, frozenset(until), first, always, written, False, depth)
        ends = [n for n in members if head in flow.successors[n]]
        if len(ends) != 1 or not any(one.name in _PIPELINED for one in within.values()):
            return None
        (end,) = ends
        last = blocks[end][-1]
        until = passed(last.at)
        if last.name != "BRA" or own != end or last.at in until or not _stays(within, until):
            return None
        return _Where((last.at,), frozenset(until), True, False, written, True, depth)


def _stays(within: Mapping[int, Instruction], some: Sequence[int]) -> bool:
    """True if only instructions of a loop follow some of it."""
    return all(to in within for at in some for to in successors(within[at]))


def _loop(machine: Machine, block: int) -> tuple[int, int] | None:
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


def _block(machine: Machine, mark: _Mark) -> int:
    return next(n for n, code in enumerate(machine.blocks) if code[0].at <= mark.spot.at <= code[-1].at)
