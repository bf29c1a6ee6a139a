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

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ...util.flow import reached
from ..checks.hazards import successors
from ..cubin.insertion import New
from ..cubin.instructions import Instruction
from ..placing.code import Machine
from .registers import EXTRA, RECORD, Allocation
from .sites import Site

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
        until: the instructions in front of which no other record may be stored, because an earlier one is left.
    """

    sites: list[Site]
    chosen: Allocation
    stores: Mapping[int, tuple[Site, ...]]
    until: frozenset[int]


def planned(
    machine: Machine,
    sites: Sequence[Site],
    chosen: Allocation,
    busy: Set[int],
    room: Mapping[int, int],
    most: int,
    all_of_loop: bool,
) -> Deferral:
    """Choose records of a pipeline that are stored later.

    Args:
        machine: the kernel.
        sites: copies of marks.
        chosen: the registers of records and state.
        busy: the registers that the kernel uses.
        room: registers that a thread has had at least up to an instruction.
        most: registers a thread that it may use.
        all_of_loop: also records that end in front of the wait for the tensor cores, which mostly are stored there.
    """
    none = Deferral(list(sites), chosen, {}, frozenset())
    if chosen.state.on is not None or chosen.state.mine is None:
        return none
    taken = {*busy, *chosen.state.registers, *(first + n for first in chosen.quads.values() for n in range(RECORD))}
    free = [number for number in range(most - EXTRA) if number not in taken]
    found, flags, until = list(sites), list[int](), set[int]()
    stores = dict[int, list[tuple[bool, Site]]]()
    for place, site in enumerate(sites):
        where = _Where.of(machine, site, sites) if _able(site) else None
        if where is None or (where.first and not all_of_loop):
            continue
        flag = next((one for one in free if one < room.get(site.spot.next, 0)), None)
        if flag is None:
            continue
        free.remove(flag)
        flags += [flag, *(site.quad + word for word in _WORDS)]  # which the first iteration reads, and does not store
        found[place] = replace(site, flag=flag)
        for at in where.stores:
            stores.setdefault(at, []).append((where.first, found[place]))
        until |= where.until
    if not flags:
        return none
    # stores come in another order now, so that another one may have read a record's registers last
    found = [replace(one, waits=one.waits or one.act != "exit") for one in found]
    state = replace(chosen.state, flags=tuple(flags))
    count = max(chosen.count, max(flags) + 1 + EXTRA)
    # what is left of the iteration before comes first
    kept = {at: tuple(site for _, site in sorted(some, key=lambda one: one[0])) for at, some in stores.items()}
    return Deferral(found, replace(chosen, state=state, count=count), kept, frozenset(until))


def in_order(deferral: Deferral, before: Mapping[int, Sequence[New]]) -> bool:
    """Whether no record is stored in front of an earlier one. before: what stands in front of each instruction."""
    return not any(_stores(new.seen) for at in deferral.until for new in before.get(at, ()))


def _stores(one: Instruction | None) -> bool:
    return one is not None and one.name == _STORE


def _able(site: Site) -> bool:
    """Whether a record's registers have its id, and its lanes are known by the end of its own instruction."""
    source = site.spot.source
    plain = not (site.spot.guard or site.spot.after or site.record.conditional or site.word is not None)
    guarded = source is not None and (source.voted or source.guard.lstrip("@!").startswith("UP"))
    return site.pipeline and not site.low and plain and not guarded and site.own and site.act != "enter"


@dataclass(frozen=True)
class _Where:
    """Where a record is stored, and in front of which instructions nothing else may be stored until then. first: the
    record ends in front of the wait for the tensor cores.
    """

    stores: tuple[int, ...]
    until: frozenset[int]
    first: bool

    @staticmethod
    def of(machine: Machine, site: Site, sites: Sequence[Site]) -> _Where | None:
        """For a site in a loop that waits for the tensor cores in each iteration; None for others."""
        flow, blocks = machine.flow, machine.blocks
        own = _block(machine, site)
        loops = [inside for inside in flow.loops.values() if inside >> own & 1]
        if not loops:
            return None
        inside = min(loops, key=int.bit_count)
        members = [n for n in range(len(blocks)) if inside >> n & 1]
        waits = [(n, one) for n in members for one in blocks[n] if one.code.startswith("WARPGROUP.DEPBAR")]
        again = [
            one for one in sites if one.quad == site.quad and one.act != "enter" and inside >> _block(machine, one) & 1
        ]
        if len(waits) != 1 or len(again) != 1 or any(one.name == "EXIT" for n in members for one in blocks[n]):
            return None
        block, wait = waits[0]
        if own != block and not (flow.dominators[own] >> block & 1 or flow.dominators[block] >> own & 1):
            return None
        first = site.spot.at <= wait.at if own == block else bool(flow.dominators[block] >> own & 1)
        leaves = sorted({blocks[to][0].at for n in members for to in flow.successors[n] if not inside >> to & 1})
        within = {one.at: one for n in members for one in blocks[n]}
        until = reached(
            [site.spot.at], lambda at: [to for to in successors(within[at]) if to in within and to != wait.at]
        )
        return _Where((wait.at, *leaves), frozenset(until), first)


def _block(machine: Machine, site: Site) -> int:
    return next(n for n, code in enumerate(machine.blocks) if code[0].at <= site.spot.at <= code[-1].at)
