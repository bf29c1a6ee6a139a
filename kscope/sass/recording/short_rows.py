"""Rows with short clocks: two records of a pipeline, in one store where their clocks are close.

        row     clock 0, id, distances of the other clocks, varying parts of the values, in 16 bits each
        else    both records

docs/design/protocol.md has the row's form, docs/design/sass.md what is written for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...capture import wire
from ...capture.model import RowLayout
from ..placing.basic_blocks import Machine
from ..placing.operands import Source
from .regions import Key
from .registers import RECORD
from .sites import BEGIN, END, VALUE, Site
from .store_places import block_of, loop_of

_NO_VALUE = (0, False)
_LARGE = -1 << wire.SHORT_BITS & 0xFFFFFFFF


@dataclass(frozen=True)
class ShortRow:
    """A row of two records.

    Attributes:
        key: the row's, as a record.
        quad: its first register.
        about: its layout.
    """

    key: Key
    quad: int
    about: RowLayout


def planned(
    machine: Machine, sites: Sequence[Site], groups: Collection[Sequence[Site]], free: list[int], most: int
) -> Mapping[tuple[Key, Key], ShortRow]:
    """Rows of records that follow each other in loops, by the keys of both; takes their registers from the free ones.

    Args:
        machine: the kernel.
        sites: copies of marks.
        groups: sites whose records are stored together, in order.
        free: registers that nothing uses.
        most: registers that each thread has where they are stored.
    """
    layouts = defaultdict[tuple[Key, Key], set[RowLayout | None]](set)
    for first, second in (pair for group in groups for pair in pairwise(group)):
        layouts[first.record.key, second.record.key].add(_layout(machine, sites, first, second))
    found = dict[tuple[Key, Key], ShortRow]()
    for keys, some in layouts.items():
        about, *others = some  # of copies in several loops, several
        quad = next((one for one in free if _quad(one) <= {*free} and one + RECORD <= most), None)
        if about is not None and not others and quad is not None:
            free[:] = [one for one in free if one not in _quad(quad)]
            name = f"{keys[0][0]}, {keys[1][0]}"
            found[keys] = ShortRow((name, f"row {about.row_id:#x} at {quad}"), quad, about)
    return found


def _quad(first: int) -> set[int]:
    """The registers of a record from one on; more than there are where it cannot begin."""
    return set(range(first, first + RECORD)) if first % RECORD == 0 else {-1}


def _layout(machine: Machine, sites: Sequence[Site], *both: Site) -> RowLayout | None:
    """The layout of two records; None if they are not always stored together, or a row has no room for them."""
    first, second = both
    if _condition(first) != _condition(second) or first.warp_flag is not None or first.low or second.low:
        return None
    records, values, clock = list[tuple[int, int, int]](), list[tuple[int, bool]](), 0
    for site in both:
        value = _value(machine, sites, site)
        if value is None or loop_of(machine, block_of(machine, site)) is None:
            return None
        end = clock + (site.act == "exit")
        records.append((site.record.id, clock, end))
        values.append(value)
        clock = end + 1
    shorts = clock - 1 + sum(rest for _, rest in values)
    return RowLayout(tuple(records), tuple(values)) if shorts <= wire.SHORTS else None


def _condition(site: Site) -> tuple[object, ...]:
    """What decides if a record is stored where it is stored later."""
    return site.flag, site.flagged, site.guard, site.warp_flag


def _value(machine: Machine, sites: Sequence[Site], site: Site) -> tuple[int, bool] | None:
    """The constant part of a record's value, and True if there is another part; None if several marks write it."""
    if not site.record.valued:
        return _NO_VALUE
    loop = loop_of(machine, block_of(machine, site))
    writers = [one for one in sites if one.record.key == site.record.key and one.act != "exit"]
    inside = {one.spot.source for one in writers if loop_of(machine, block_of(machine, one)) == loop}
    if len(inside) != 1 or not isinstance(source := inside.pop(), Source):
        return None
    return source.fixed, not source.constant


def shorts(row: ShortRow, first: Site, second: Site) -> Iterator[tuple[int, list[str]]]:
    """The registers of the shorts of a row, and the instructions that write all of their bits there."""
    registers = iter((row.quad + 2, row.quad, row.quad + 3, row.quad + 1))
    clocks = [one.quad + word for one in (first, second) for word in ((BEGIN, END) if one.act == "exit" else (BEGIN,))]
    for before, clock in pairwise(clocks):
        into = next(registers)
        yield into, [f"IMAD.IADD R{into}, R{clock}, 0x1, -R{before}"]
    for site, (constant, rest) in zip((first, second), row.about.values, strict=True):
        if rest:
            into, value = next(registers), site.quad + VALUE
            less = [f"VIADD R{into}, R{value}, {-constant & 0xFFFFFFFF:#x}"] if constant else []
            value = into if constant else value
            yield into, [*less, f"SHF.R.W.U32 R{into}, R{value}, {wire.SHORT_SHIFT:#x}, R{value}"]


def large(registers: Sequence[int], into: int) -> list[str]:
    """Instructions that write the bits to a register for which a row has no room: 0 if all shorts fit."""
    first, second, third, *rest = [*(f"R{one}" for one in registers), *["RZ"] * (wire.SHORTS - len(registers))]
    return [
        f"LOP3.LUT R{into}, {first}, {second}, {third}, 0xfe, !PT",
        f"LOP3.LUT R{into}, R{into}, {_LARGE:#x}, {rest[0]}, 0xc8, !PT",
    ]


def packed(row: ShortRow, first: Site, registers: Sequence[int]) -> list[str]:
    """Instructions that make the row of its shorts, which are in registers()' order."""
    one, two, three, four = [*(f"R{one}" for one in registers), *["RZ"] * (wire.SHORTS - len(registers))]
    return [
        f"PRMT R{row.quad + 2}, {one}, 0x5410, {two}",
        f"PRMT R{row.quad + 3}, {three}, 0x5410, {four}",
        f"IADD3 R{row.quad}, R{first.quad + BEGIN}, RZ, RZ",
        f"IMAD.MOV.U32 R{row.quad + 1}, RZ, RZ, {row.about.row_id:#x}",
    ]
