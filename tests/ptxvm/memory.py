"""Byte-addressed memory of named allocations with guard bands: any access outside of one is a FaultError."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

GUARD = 1 << 20
"""Unallocated bytes between allocations."""


class FaultError(Exception):
    """An illegal address, a misaligned address or a trap on a GPU."""


@dataclass(eq=False)
class Allocation:
    """`data` at address `base`; `space` is const, global, shared or param; const and param refuse stores."""

    name: str
    space: str
    base: int
    data: bytearray


@dataclass(frozen=True)
class Access:
    """One store or atomic: `thread` is the thread's identity, `old` the value that an atomic replaced."""

    thread: Any
    line: int
    op: str
    address: int
    size: int
    value: int
    old: int = 0


ATOMIC: dict[str, Callable[[int, int], int]] = {
    "add": lambda old, value: old + value,
    "exch": lambda old, value: value,
    "and": lambda old, value: old & value,
    "or": lambda old, value: old | value,
    "xor": lambda old, value: old ^ value,
    "min": min,
    "max": max,
}


class Memory:
    """Allocations in ascending order of address; `log` holds every store and atomic in order."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._allocations: list[Allocation] = []
        self.log: list[Access] = []

    def allocate(self, name: str, size: int, *, space: str = "global", align: int = 256, base: int = 0) -> Allocation:
        """New zeroed bytes after all others, at least at `base`, with a guard band before and after."""
        last = self._allocations[-1] if self._allocations else None
        start = max(base, (last.base + len(last.data) if last else 0x7F00_0000_0000) + GUARD)
        start = -(-start // align) * align
        made = Allocation(name, space, start, bytearray(size))
        self._bases.append(start)
        self._allocations.append(made)
        return made

    def find(self, address: int, size: int, space: str, line: int, text: str) -> tuple[Allocation, int]:
        """The allocation and offset of an access; raises FaultError unless it lies inside one allocation."""
        i = bisect_right(self._bases, address) - 1
        if i >= 0:
            found = self._allocations[i]
            offset = address - found.base
            if offset + size <= len(found.data):
                if address % size:
                    raise FaultError(f"line {line}: {text} of {size} bytes at {address:#x} is misaligned")
                if space not in ("", found.space):
                    raise FaultError(
                        f"line {line}: {text}.{space} at {address:#x}, which is {found.space} ({found.name})"
                    )
                return found, offset
        raise FaultError(f"line {line}: {text} of {size} bytes at {address:#x} is outside of every allocation")

    def load(self, address: int, size: int, space: str, line: int) -> int:
        found, offset = self.find(address, size, space, line, "load")
        return int.from_bytes(found.data[offset : offset + size], "little")

    def store(self, thread: Any, address: int, size: int, value: int, space: str, line: int) -> None:
        found, offset = self.find(address, size, space, line, "store")
        if found.space in ("const", "param"):
            raise FaultError(f"line {line}: store to {found.space} memory ({found.name})")
        found.data[offset : offset + size] = value.to_bytes(size, "little")
        self.log.append(Access(thread, line, "st", address, size, value))

    def atomic(self, thread: Any, op: str, address: int, size: int, value: int, space: str, line: int) -> int:
        found, offset = self.find(address, size, space, line, "atomic")
        old = int.from_bytes(found.data[offset : offset + size], "little")
        new = ATOMIC[op](old, value) & ((1 << 8 * size) - 1)
        found.data[offset : offset + size] = new.to_bytes(size, "little")
        self.log.append(Access(thread, line, op, address, size, value, old))
        return old
