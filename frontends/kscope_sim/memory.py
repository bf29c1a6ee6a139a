"""Simulated device memory: the control block and the pool."""

from __future__ import annotations

import mmap
import threading
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kscope.capture.pools.pool_file import PoolDevice, PoolFile
from kscope.capture.wire import LAUNCH, SLOTS, STRIPE, UNIT
from kscope.errors import UsageError
from kscope.instrument.backend import OpenPool
from kscope.instrument.subset import Subset

from .machine import GHZ, TICK_NS

U32 = 0xFFFFFFFF
POOL_ADDRESS = 0x7_0000_0000
"""The pool's simulated address."""
POOL_BYTES = 16 << 20
STRIPES = 16
_LEAST = 2
"""Units of a ring: its address is a multiple of 64."""

Word = Literal["head", "skipped", "lost"]


@dataclass(frozen=True)
class Memory:
    """One armed session's memory.

    Attributes:
        gate: () wire.GATE.
        stripes: (n + 1,) wire.STRIPE, the reserve last.
        table: (SLOTS,) wire.LAUNCH, the launch table.
        pool: (units, 8) uint32.
        lock: held to claim and to free, because host threads may launch at the same time, and this memory has no
            atomics.
    """

    gate: np.ndarray
    stripes: np.ndarray
    table: np.ndarray = field(repr=False)
    pool: npt.NDArray[np.uint32] = field(repr=False)
    file: PoolFile | None = field(default=None, repr=False, compare=False)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @staticmethod
    def of(
        epoch: int, subset: Subset, pool_bytes: int | None = None, stripes: int = STRIPES,
        open_pool: OpenPool | None = None,
    ) -> Memory:  # fmt: skip
        """Cleared memory: half of the pool is the reserve, the other half is shared by the stripes. open_pool: creates
        the file for pool and table, if they shall outlive the program.
        """
        units = (POOL_BYTES if pool_bytes is None else pool_bytes) // UNIT
        if units < 2 * _LEAST:
            raise UsageError(f"pool={pool_bytes!r}: expected at least {2 * _LEAST * UNIT} bytes")
        reserve = _power_of_two(units // 2)
        each = _power_of_two(max(_LEAST, units // 2 // stripes))
        lines = np.zeros(stripes + 1, STRIPE)
        sizes = np.array([each] * stripes + [reserve])
        starts = np.array([reserve + each * i for i in range(stripes)] + [0], dtype=np.uint64)
        lines["base"] = POOL_ADDRESS + starts * np.uint64(UNIT)
        lines["mask"], lines["limit"] = sizes - 1, sizes
        gate, size = subset.gate(epoch, stripes), int(sizes.sum()) * UNIT
        if open_pool is not None:
            device = PoolDevice(0, "simulated", stripes, round(GHZ * 1e6), TICK_NS)
            file = open_pool(device, size)
            return Memory(gate, lines, file.book, file.pool.view(np.uint32).reshape(-1, UNIT // 4), file)
        try:
            pool = _cleared(size, np.dtype(np.uint32)).reshape(-1, UNIT // 4)
        except (OSError, OverflowError):
            raise UsageError(f"pool={pool_bytes}: more than this machine's memory; pass a smaller one") from None
        return Memory(gate, lines, _cleared(SLOTS * LAUNCH.itemsize, LAUNCH.dtype), pool)

    def atom_add(self, stripe: int, word: Word, amount: int) -> int:
        """atom.add on a word of a stripe, modulo 2^32. Returns the value before."""
        before = int(self.stripes[word][stripe])
        self.stripes[word][stripe] = before + amount & U32
        return before

    def store(self, address: int, words: npt.NDArray[np.uint32]) -> None:
        """Store consecutive words. Raises IndexError outside the pool, as a memory fault."""
        at = (address - POOL_ADDRESS) // 4
        flat = self.pool.reshape(-1)
        if not 0 <= at <= len(flat) - len(words):
            raise IndexError(f"illegal memory access at {address:#x}")
        flat[at : at + len(words)] = words

    def ring(self, stripe: int) -> npt.NDArray[np.uint32]:
        """The units of a stripe's ring, (mask + 1, 8) uint32, as a view."""
        first = (int(self.stripes["base"][stripe]) - POOL_ADDRESS) // UNIT
        return self.pool[first : first + int(self.stripes["mask"][stripe]) + 1]


def _cleared(size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An array of zeros that takes only the pages that are used; the allocator would clear memory that it reuses."""
    return np.frombuffer(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype)


def _power_of_two(units: int) -> int:
    """The largest power of two up to `units`."""
    return 1 << units.bit_length() - 1
