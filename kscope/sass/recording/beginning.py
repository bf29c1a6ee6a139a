"""The entry code of a kernel that records: reads its clocks, and loads the gate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ... import ptx
from ...errors import UnsupportedError
from ..cubin.control_codes import Control
from ..cubin.insertion import New
from ..encoding import writing
from . import fragments

_CONTROL = ("ctl lo", "ctl hi")
_CLOCK, _TIME = ("c lo", "c hi"), ("g lo", "g hi")
_LOADS_CONSTANTS = 90
"""The first architecture on which ptxas loads constants into registers."""
_AGAIN, _LAST, _GATE = "d", "last", "epoch"


@dataclass(frozen=True)
class Begin:
    """The entry code, and the gate's load at the kernel's first wait.

    Attributes:
        clocks: reads the anchor's clocks, and loads the control block's address if it is a constant.
        loads: loads the gate; before that, moves the address if it is not a constant.
        where: the register of each value after these, by name.
    """

    clocks: tuple[New, ...]
    loads: tuple[New, ...]
    where: Mapping[str, int]


def begun(
    kernel: ptx.Kernel,
    chosen: Mapping[str, int],
    free: list[int],
    board: int,
    control: int | None,
    predicate: int,
    descriptor: str,
    pair: int,
) -> Begin:
    """Return the entry code of a kernel.

    Args:
        kernel: the options of the protocol's code.
        chosen: the registers of some values.
        free: registers that it may use for the others.
        board: the scoreboard of its loads.
        control: offset of the control block's address in constant bank 3; None for moves of it.
        predicate: free at the gate's load.
        descriptor: the constant with the descriptor of global memory.
        pair: the first of two uniform registers for it.

    Raises:
        UnsupportedError: there are too few registers.
    """
    where = dict(_placed(chosen, free, fragments.rows(fragments.passed_values(kernel))))
    low, high = (where[name] for name in _CONTROL)
    first, new = where[_GATE], partial(writing.new, arch=kernel.arch)
    loaded, block = Control(writes=board), f"desc[UR{pair}][R{low}.64"
    address = _address(kernel, low, high, control, board)
    clocks = [
        *(() if control is None else address),
        new(f"CS2R R{where[_CLOCK[0]]}, SR_CLOCKLO"),
        new(f"CS2R R{where[_TIME[0]]}, SR_GLOBALTIMERLO"),
        new(f"CS2R.32 R{where[_AGAIN]}, SR_CLOCKLO"),
        new(f"CS2R R{first}, SRZ"),
        new(f"CS2R R{first + 2}, SRZ"),
        *([new(f"MOV R{where[_LAST]}, RZ")] if kernel.sized else ()),
    ]
    waits = Control(waits=_awaited(kernel, control, board))
    loads = [
        *(address if control is None else ()),
        new(f"ULDC.64 UR{pair}, {descriptor}"),
        # no control block is in the first 4 GiB of a device's addresses
        new(f"ISETP.NE.U32.AND P{predicate}, PT, R{high}, RZ, PT", waits),
        new(f"@P{predicate} LDG.E.128 R{first}, {block}]", loaded),
    ]
    if kernel.sized:
        size = int(kernel.size_offset or "0")
        loads.append(new(f"@P{predicate} LDG.E R{where[_LAST]}, {block}+{size:#x}]", loaded))
    return Begin(tuple(clocks), tuple(loads), where)


def _address(kernel: ptx.Kernel, low: int, high: int, control: int | None, board: int) -> list[New]:
    """The control block's address: moves of it, a load of a constant, or constants as operands before sm_90."""
    if control is None:
        new = partial(writing.new, arch=kernel.arch)
        return [
            replace(new(f"MOV R{high}, 0x0"), half="high"),
            replace(new(f"MOV R{low}, 0x0"), half="low"),
        ]
    if kernel.arch >= _LOADS_CONSTANTS:
        return [writing.new(f"LDC.64 R{low}, c[0x3][{control:#x}]", Control(writes=board), arch=kernel.arch)]
    return [
        writing.new(f"MOV R{number}, c[0x3][{at:#x}]", arch=kernel.arch)
        for number, at in ((low, control), (high, control + 4))
    ]


def _awaited(kernel: ptx.Kernel, control: int | None, board: int) -> frozenset[int]:
    """The scoreboards to wait for before the address is available."""
    return frozenset({board} if control is not None and kernel.arch >= _LOADS_CONSTANTS else ())


def _placed(chosen: Mapping[str, int], free: list[int], rows: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, int]]:
    """Assign registers to values; some of them must be consecutive."""
    left = list(free)
    for row in rows:
        if row[0] in chosen:  # consecutive, as in a claim
            yield from ((name, chosen[name]) for name in row)
            continue
        some = (range(first, first + len(row)) for first in left if first % len(row) == 0)
        numbers = next((one for one in some if all(number in left for number in one)), None)
        if numbers is None:
            raise UnsupportedError("the kernel leaves too few registers for the claim")
        left = [one for one in left if one not in numbers]
        yield from zip(row, numbers, strict=True)
