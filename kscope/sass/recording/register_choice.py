"""Chooses the registers of records with which most blocks fit on an SM."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ...errors import UnsupportedError
from ...machine_code import elf, occupancy
from ..cubin import attributes
from ..cubin.instructions import BYTES, Function
from . import borrowed_registers, marking, regions, registers, rows

_MOST, _WARP = 255, 32
"""Registers that a thread can have; threads of a warp."""


def choose_registers(
    pool: registers.Pool,
    found: Sequence[regions.Record],
    together: frozenset[frozenset[regions.Key]],
    apart: Sequence[frozenset[regions.Key]],
    before: int,
    fitting: Fitting,
) -> registers.Allocation:
    """Registers with which most blocks fit on an SM. Tried in this order: separate registers for each record, for some
    records, shared ones, and lent ones.

    apart: sets of records with separate registers, tried in order.
    """

    def blocks(one: registers.Allocation) -> int:
        return fitting.blocks(max(before, one.count))

    tries: list[Callable[[], registers.Allocation]] = [
        lambda: pool.owned(found, _numbers(pool, found, together, frozenset(one.key for one in found))),
        *(
            partial(lambda some, more: pool.owned(found, _numbers(pool, found, together, some, more)), some, more)
            for some in dict.fromkeys(apart)
            for more in (2, 1)
        ),
        lambda: pool.owned(found, _numbers(pool, found, together, frozenset())),
        lambda: pool.lent(pool.spans, together),
    ]
    made, refusals = list[registers.Allocation](), list[UnsupportedError]()
    for one in tries:
        try:
            made.append(one())
        except UnsupportedError as error:
            refusals.append(error)
        if made and blocks(made[0]) >= fitting.blocks(before):
            break
    if not made:
        raise refusals[0]
    chosen = max(made, key=blocks)
    if chosen.count > _MOST or not blocks(chosen):
        raise UnsupportedError(
            f"{pool.function.name} would need {chosen.count} registers in each of {fitting.threads} threads"
        )
    return chosen


def _numbers(
    pool: registers.Pool,
    found: Sequence[regions.Record],
    together: frozenset[frozenset[regions.Key]],
    apart: frozenset[regions.Key],
    more: int = 1,
) -> dict[regions.Key, int]:
    """A number for each record; some have separate registers, unless a thread has few there.

    The others then share as few as they need: they are in no loop of a pipeline. more: sets of registers, beside those
    that are needed, where a thread has few.
    """
    few = _few(pool, found)
    own = [one for one in found if one.key in apart and one.key not in few]
    rest = [one for one in found if one.key not in few and one not in own]
    numbers = regions.separate_numbers(own)
    for some, spare in (([one for one in found if one.key in few], more), (rest, 0 if own else 1)):
        many = max(numbers.values(), default=-1) + 1
        shared = regions.shared_numbers(some, together, spare) if some else {}
        numbers |= {key: many + number for key, number in shared.items()}
    return numbers


def _few(pool: registers.Pool, found: Sequence[regions.Record]) -> frozenset[regions.Key]:
    """The records where a thread has few registers."""
    return frozenset(
        one.key for one in found if pool.room.get(one.key, registers.NUMBERS) <= pool.fewest < registers.NUMBERS
    )


@dataclass(frozen=True)
class Fitting:
    """Blocks that fit on an SM. limit: their number without regard to registers; None if unknown."""

    threads: int
    arch: int
    limit: int | None

    def blocks(self, count: int) -> int:
        """Blocks that fit with this many registers a thread."""
        found = warps(count, self.arch) // max(1, self.threads // _WARP)
        return found if self.limit is None else min(found, self.limit)

    def most(self, count: int) -> int:
        """The most registers a thread with which as many blocks fit."""
        return max(one for one in range(count, _MOST + 1) if self.blocks(one) == self.blocks(count))


def warps(count: int, arch: int) -> int:
    """Warps that fit on an SM with this many registers a thread."""
    return min(occupancy.SMS.get(arch, occupancy.LARGEST).warps, occupancy.warps_by_registers(count))


def spans(plan: rows.Plan, function: Function) -> dict[regions.Key, borrowed_registers.Span]:
    """The instructions at which each record is open. Its value may be written before it begins, and some lanes may
    leave earlier than others.
    """
    begins, ends, holding = (defaultdict[regions.Key, set[int]](set) for _ in range(3))
    for one in plan.placed:
        key, spot = one.record.key, one.spot
        holding[key] |= {at for at in (spot.value, spot.when) if at is not None}
        begins[key] |= {spot.next} if one.act == "enter" else set()
        leaves = spot.guard and function.instructions[spot.at // BYTES].name == "EXIT"
        ends[key] |= set() if one.act in marking.STARTS or leaves else {spot.next}
    return {
        record.key: borrowed_registers.Span(*(frozenset(some[record.key]) for some in (begins, ends, holding)))
        for record in plan.records
    }


def counts(file: elf.Elf, function: Function) -> tuple[int, int]:
    """The function's registers, and the most threads of a block."""
    symbols, shared, own = file.symbols(), file.find(".nv.info"), file.find(f".nv.info.{function.name}")
    assert shared is not None and own is not None
    count = next(
        int.from_bytes(one.payload[4:8], "little")
        for one in attributes.read(shared.content)
        if one.number == attributes.REGISTERS
        and symbols[int.from_bytes(one.payload[:4], "little")].name == function.name
    )
    threads = 1024
    for one in attributes.read(own.content):
        if one.number in (attributes.THREADS, attributes.MOST_THREADS):
            x, y, z = (int.from_bytes(one.payload[at : at + 4], "little") for at in (0, 4, 8))
            threads = x * y * z
    return count, threads
