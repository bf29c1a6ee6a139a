"""Lanes of a simulated warp: how a kernel names some of them, and the state of a recording one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .memory import U32
from .protocol import Slab
from .values import Halves

Lanes = int | Iterable[int] | Callable[[int], bool]


@dataclass
class Lane:
    """Registers of a recording lane: its slab, and start, value and predicate of each open region."""

    slab: Slab | None
    late: bool = False  # claims at its first store
    starts: dict[str, list[tuple[int, Halves | None, bool]]] = field(default_factory=dict)


def mask(lanes: Lanes) -> int:
    """The lanes as bits."""
    if isinstance(lanes, int):
        return lanes & U32
    numbers = filter(lanes, range(32)) if callable(lanes) else lanes
    return sum(1 << lane for lane in set(numbers) if 0 <= lane < 32)
