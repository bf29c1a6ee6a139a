"""Records of a pipeline that are stored while the tensor cores work, in the next iteration.

A loop that waits for the tensor cores in each iteration is as fast as what stands between that wait and the next
products. A store there delays it; in front of the wait it costs nothing:

        HGMMA                                 the tensor cores begin
        store what is left, if something is
        WARPGROUP.DEPBAR                      wait for them
        clock; flag = 1                       a record that is left
    @P0 BRA loop
        store what is left                    where the loop ends

The flag is a register of the lane, which the claim sets to 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ..cubin.insertion import New
from ..cubin.instructions import Instruction
from ..placing.code import Machine

from .records import Site
from .registers import EXTRA, RECORD, Allocation

_STORE = "STG"
_WORDS = (0, 2, 3)
"""Of a record, but for its id."""


@dataclass(frozen=True)
class Deferral:
    """Records that are stored later.

    Attributes:
        sites: all sites; those of these records have a flag.
        chosen: registers, with those of the flags.
        stores: by the address of an instruction, the sites whose records are stored in front of it, in their order.
        ahead: the instructions of the loops in front of which no other record may be stored, because it would come
            before an earlier one.
    """

    sites: list[Site]
    chosen: Allocation
    stores: Mapping[int, tuple[Site, ...]]
    ahead: frozenset[int]


def planned(
    machine: Machine, sites: Sequence[Site], chosen: Allocation, busy: Set[int], room: Mapping[int, int], most: int
) -> Deferral:
    """Choose records of a pipeline that are stored later.

    Args:
        machine: the kernel.
        sites: copies of marks.
        chosen: the registers of records and state.
        busy: the registers that the kernel uses.
        room: registers that a thread has had at least up to an instruction.
        most: registers a thread that it may use.
    """
    none = Deferral(list(sites), chosen, {}, frozenset())
    if chosen.state.on is not None or chosen.state.mine is None:
        return none
    taken = {*busy, *chosen.state.registers, *(first + n for first in chosen.quads.values() for n in range(RECORD))}
    free = [number for number in range(most - EXTRA) if number not in taken]
    found, flags, stores, ahead = list(sites), list[int](), dict[int, list[Site]](), set[int]()
    for place, site in enumerate(sites):
        where = _Where.of(machine, site) if _able(site, sites, chosen) else None
        if where is None:
            continue
        flag = next((one for one in free if one < room.get(site.spot.next, 0)), None)
        if flag is None:
            continue
        free.remove(flag)
        flags += [flag, *(site.quad + word for word in _WORDS)]  # which the first iteration reads, and does not store
        found[place] = replace(site, flag=flag)
        for at in where.stores:
            stores.setdefault(at, []).append(found[place])
        ahead |= where.ahead
    if not flags:
        return none
    # stores come in another order now, so that another one may have read a record's registers last
    found = [replace(one, waits=one.waits or one.act != "exit") for one in found]
    state = replace(chosen.state, flags=tuple(flags))
    count = max(chosen.count, max(flags) + 1 + EXTRA)
    kept = {at: tuple(some) for at, some in stores.items()}
    return Deferral(found, replace(chosen, state=state, count=count), kept, frozenset(ahead))


def in_order(deferral: Deferral, before: Mapping[int, Sequence[New]]) -> bool:
    """Whether no record is stored in front of an earlier one. before: what stands in front of each instruction."""
    return not any(_stores(new.seen) for at in deferral.ahead for new in before.get(at, ()))


def _stores(one: Instruction | None) -> bool:
    return one is not None and one.name == _STORE


def _able(site: Site, sites: Sequence[Site], chosen: Allocation) -> bool:
    """Whether a record has registers that nothing else uses, and one place where it ends."""
    same = [one for one in sites if one.quad == site.quad]
    ends = [one for one in same if one.act != "enter"]
    source = site.spot.source
    plain = not (site.spot.guard or site.spot.after or site.record.conditional or site.word is not None)
    guarded = source is not None and (source.voted or source.guard.lstrip("@!").startswith("UP"))
    return site.pipeline and plain and not guarded and site.own and len(ends) == 1 and ends[0] is site


@dataclass(frozen=True)
class _Where:
    """Where a record is stored, and what must store nothing in an iteration before."""

    stores: tuple[int, ...]
    ahead: frozenset[int]

    @staticmethod
    def of(machine: Machine, site: Site) -> _Where | None:
        """For a site in a loop that waits for the tensor cores before; None for others."""
        flow, blocks = machine.flow, machine.blocks
        own = next(n for n, code in enumerate(blocks) if code[0].at <= site.spot.at <= code[-1].at)
        loops = [(head, inside) for head, inside in flow.loops.items() if inside >> own & 1]
        if not loops:
            return None
        head, inside = min(loops, key=lambda loop: loop[1].bit_count())
        members = [n for n in range(len(blocks)) if inside >> n & 1]
        waits = [
            (n, one)
            for n in members
            for one in blocks[n]
            if one.code.startswith("WARPGROUP.DEPBAR")
            and (flow.dominators[own] >> n & 1 and (n != own or one.at < site.spot.next))
        ]
        if len(waits) != 1 or any(one.name == "EXIT" for n in members for one in blocks[n]):
            return None
        (block, wait), _ = waits[0], head
        leaves = sorted({blocks[to][0].at for n in members for to in flow.successors[n] if not inside >> to & 1})
        behind = set(_reached(flow.successors, block, head, inside))
        ahead = {one.at for n in members if n not in behind for one in blocks[n]}
        ahead |= {one.at for one in blocks[block] if one.at < wait.at}
        return _Where((wait.at, *leaves), frozenset(ahead))


def _reached(
    successors: Sequence[Sequence[int]], start: int, head: int, inside: int
) -> Iterator[int]:
    """The blocks of a loop that run behind one, up to the end of the iteration, with that one."""
    seen, work = {start}, [start]
    while work:
        block = work.pop()
        yield block
        for to in successors[block]:
            if to != head and inside >> to & 1 and to not in seen:
                seen.add(to)
                work.append(to)


