"""Moves stores of pipeline records off the critical path: at its mark, a record only reads its clock and operands.
docs/design/sass.md, "Pipelines", has the rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ...capture.model import RowLayout
from ..cubin.insertion import New
from ..cubin.instructions import Instruction
from ..placing.basic_blocks import Machine
from . import rows, short_rows
from .deferred_records import Later
from .regions import Key, Record
from .registers import EXTRA, RECORD, UNIFORM, Allocation
from .short_rows import ShortRow
from .sites import Site
from .store_places import Copy, Where, block_of, instant, loop_of, plain, uniform

_STORE = "STG"
_WORDS = (0, 2, 3)
"""Words of a record without its id."""
_ADDRESSES = 3
"""Registers, beside the state's, for addresses of records that are stored together."""


@dataclass(frozen=True)
class Deferral:
    """Records that are stored away from their marks.

    Attributes:
        sites: all sites; those of these records are `later`.
        chosen: registers, with those of the flags.
        stores: the records that are stored before an instruction, by its address.
        until: the instructions before which no other record may be stored, because an earlier one waits.
        layouts: of rows with short clocks.
    """

    sites: list[Site]
    chosen: Allocation
    stores: Mapping[int, Later]
    until: frozenset[int]
    layouts: tuple[RowLayout, ...] = ()


@dataclass(frozen=True)
class Kinds:
    """The loops whose records are stored elsewhere.

    Attributes:
        ends: loops in which copies or products are under way where an iteration ends.
        ahead: also records that end before a wait for all products, most of which are stored there.
        runs: records of several operations in a row.
    """

    ends: bool
    ahead: bool
    runs: bool = True

    def has(self, where: Where) -> bool:
        """True if a record that is stored at a place is one of them."""
        return self.runs if where.run else self.ends if where.ends else self.ahead or not where.first


_BOTH = (True, False)
ALL_KINDS = tuple(Kinds(ends, ahead, runs) for runs in _BOTH for ends in _BOTH for ahead in _BOTH)
"""In the order in which they are tried."""


def planned(
    machine: Machine,
    sites: Sequence[Site],
    chosen: Allocation,
    busy: Set[int],
    room: Mapping[int, int],
    most: int,
    kinds: Kinds,
    short: bool = False,
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
        short: rows with short clocks may be written.
    """
    none = Deferral(list(sites), chosen, {}, frozenset())
    if not chosen.state.uniform:
        return none
    taken = {*busy, *chosen.state.registers, *(first + n for first in chosen.quads.values() for n in range(RECORD))}
    free = [number for number in range(most - EXTRA) if number not in taken]
    used = frozenset[str]().union(*(one.reads | one.writes for one in machine.function.instructions))
    taken_too = chosen.state.warp_wide
    warp_flags = [number for number in UNIFORM if f"UR{number}" not in used and number not in taken_too]
    found, zeros, until = list(sites), list[int](), set[int]()
    flags, begins = dict[Key | int, int](), defaultdict[int, set[int]](set)
    stores = dict[int, list[tuple[bool, tuple[int, int], int]]]()
    for place, site in enumerate(sites):
        where = Where.of(machine, site, sites) if _able(site) else None
        if where is None or _taken(site, where, sites, chosen) or not kinds.has(where):
            continue
        if uniform(site):
            if not warp_flags:
                continue
            found[place] = replace(site, later=True, warp_flag=warp_flags.pop(0))
            stores.setdefault(where.stores[0], []).append((where.first, where.depth, place))
            until |= where.until
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
    free = [one for one in free if one not in addresses]
    flagged = tuple(one.warp_flag for one in found if one.warp_flag is not None)
    state = replace(chosen.state, zeros=tuple(dict.fromkeys(zeros)), addresses=addresses, warp_flags=flagged)
    groups = {at: tuple(found[place] for *_, place in sorted(some)) for at, some in stores.items()}
    pairs = dict[tuple[Key, Key], ShortRow]()
    everywhere = [one for one in free if one < min(room.values())]
    if short and addresses and chosen.narrow is None and (state.extra is not None or everywhere):
        extra = everywhere[0] if state.extra is None else state.extra
        others = [one for one in free if one != extra]
        pairs |= short_rows.planned(machine, found, groups.values(), others, least)
        state = replace(state, extra=extra) if pairs else state
    quads = {row.key: row.quad for row in pairs.values()}
    highest = max([*zeros, *addresses, *(quad + RECORD - 1 for quad in quads.values()), state.extra or 0])
    chosen = replace(chosen, state=state, count=max(chosen.count, highest + 1 + EXTRA), quads={**chosen.quads, **quads})
    kept = {at: Later(some, frozenset(begins[at]), pairs) for at, some in groups.items()}
    layouts = tuple(dict.fromkeys(row.about for row in pairs.values()))
    return Deferral(found, chosen, kept, frozenset(until), layouts)


def _taken(site: Site, where: Where, sites: Sequence[Site], chosen: Allocation) -> bool:
    """True if another record may use a record's registers before it is stored."""
    if not where.first:
        return [key for key, quad in chosen.quads.items() if quad == site.quad] != [site.record.key]
    return any(one.quad == site.quad and one.spot.at in where.until and one is not site for one in sites)


def candidates(machine: Machine, placed: Sequence[Copy], pipeline: Set[int]) -> tuple[frozenset[Key], frozenset[Key]]:
    """The records that may be stored elsewhere, if each has separate registers; and those of them that are in loops.

    pipeline: numbers of such marks.
    """
    able = [
        (one.record.key, Where.of(machine, one, placed)) for one in placed if one.spot.mark in pipeline and plain(one)
    ]
    found = {key: where for key, where in able if where is not None}
    return frozenset(found), frozenset(key for key, where in found.items() if not where.run)


def divided(machine: Machine, plan: rows.Plan, pipeline: Set[int]) -> rows.Plan:
    """The plan in which operations of one line in one loop, or in one block outside loops, have separate records: they
    may wait together.

    Args:
        machine: the kernel.
        plan: where records of one name have one key.
        pipeline: numbers of the marks of a pipeline.
    """
    inside, marks = defaultdict[tuple[Key, int, bool], set[int]](set), defaultdict[Key, set[int]](set)
    for one in plan.placed:
        if one.spot.mark in pipeline:
            block = block_of(machine, one)
            loop = loop_of(machine, block)
            marks[one.record.key].add(one.spot.mark)
            if loop is not None and one.act != "enter":
                inside[one.record.key, loop[0], True].add(one.spot.mark)
            elif instant(one):
                inside[one.record.key, block, False].add(one.spot.mark)
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
    return site.pipeline and site.word is None and plain(site)
