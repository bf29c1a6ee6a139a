"""One device in one context: its control block, its pool, its gate."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from kscope.capture import wire
from kscope.capture.capture_data import ClockSync, TimerReading
from kscope.capture.clock_rows import Layouts
from kscope.capture.model import ModuleMeta
from kscope.capture.pools import pool_folder
from kscope.capture.pools.pool_file import PoolFile
from kscope.errors import DriverError
from kscope.instrument.backend import OpenPool
from kscope.instrument.recording import AUTO_RECORDS
from kscope.instrument.subset import Subset

from .clocks import Clocks
from .device_memory import Allocation
from .driver import CudaDriver, DeviceFacts
from .driver_calls import DriverCalls
from .memory_ranges import Bytes, Ranges
from .pool import Rings, default_bytes, least, rings
from .pool_in_file import InFile
from .pool_place import PoolPlace, surviving
from .slab_sizes import SlabSizes
from .timer_readings import TimerReadings

PAGE = 1 << 16
_ZEROS = 4 << 20
_DRIFT = 10_000
"""The host's and the device's clocks differ by less than one part in this; 10 in a million were measured."""
_WORD, _CLOCK = slice(0, 8), slice(8, 16)


class Device:
    """Everything that kscope owns on the current context's device.

    The control block is never freed, because modules keep its address; the pool is replaced only when nothing can write
    to it. `stream` is for single words and arming, by any thread under the backend's lock; the drain has a separate
    one.
    """

    def __init__(self, driver: CudaDriver) -> None:
        self.driver = driver
        self.context = driver.context()
        self.facts: DeviceFacts = driver.facts()
        self.stream = driver.stream()
        self.page: Bytes = driver.pinned(PAGE)
        self.zeros: Bytes = driver.pinned(_ZEROS)
        self.sizes = SlabSizes(driver.pinned(4 * wire.SIZES).view("<u4"))
        self.sizes.words[:] = AUTO_RECORDS - 1
        self.stripes = self.facts.sms + 1
        self._place: PoolPlace | None = None
        self._control = driver.allocate(wire.control_bytes(self.facts.sms))
        self.control = self._control.address
        self.clear(self.control, wire.control_bytes(self.facts.sms), self.stream)
        driver.write(self.control + wire.SIZES_AT, self.sizes.words.view(np.uint8), self.stream)
        driver.synchronize(self.stream)
        self._clocks: Clocks | None = None
        self._timer: TimerReadings | None = None
        self.syncs: list[ClockSync] = []
        self._synced = 0  # time.monotonic_ns() after the last of them
        self.tick_ns = 0
        self.rings: Rings | None = None
        self.requested: int | None = None  # the user's pool=
        self._open_pool: OpenPool | None = None
        self.table = np.zeros(self.stripes, wire.STRIPE)
        self.layouts = Layouts()  # of its modules

    def clear(self, address: int, size: int, stream: int) -> None:
        """Zero device memory by copies: a memset is a kernel and would wait behind persistent blocks."""
        self.clear_ranges(Ranges.of(address, size), stream)

    def clear_ranges(self, ranges: Ranges, stream: int, calls: DriverCalls | None = None) -> None:
        """Clear several ranges like clear(). calls: makes the writes; None for the driver, at once."""
        if self.mapped is None or not InFile(self.mapped, self.driver).clear(ranges):
            (calls or self.driver).write_ranges(ranges.at_most(_ZEROS), self.zeros, stream)

    def clear_launches(self) -> None:
        """Clear the launch table; only while the gate is closed."""
        for table in self.launch_tables:
            self.clear(table, wire.SLOTS * wire.LAUNCH_BYTES, self.stream)
        self.driver.synchronize(self.stream)

    def bind(self, symbol: int, metas: Iterable[ModuleMeta]) -> None:
        """Write the control block's address into a module's constant. metas: the module's metadata."""
        self.layouts.add(metas)
        word = self.page[_WORD]
        word.view("<u8")[0] = self.control
        self.driver.write(symbol, word, self.stream)
        self.driver.synchronize(self.stream)

    def read(self, address: int, size: int) -> bytes:
        """A few bytes of device memory."""
        parts = []
        for at in range(0, size, PAGE // 2):
            piece = self.page[PAGE // 2 :][: min(PAGE // 2, size - at)]
            self.driver.read(piece, address + at, self.stream)
            self.driver.synchronize(self.stream)
            parts.append(piece.tobytes())
        return b"".join(parts)

    def fits(self, size: int | None, open_pool: OpenPool | None = None) -> bool:
        """True if the pool has the requested size (None requests the default size), and is in the session's file if it
        shall outlive the program.
        """
        if self._open_pool != open_pool:
            return False
        if self.rings is None or size is None:
            return self.rings is not None and self.requested is None
        return rings(size, self.facts.sms) == self.rings

    def open_pool(self, size: int | None, open_pool: OpenPool | None = None) -> None:
        """Create the pool, or replace it by another one; only while nothing can write to it. open_pool: creates the
        file for it.
        """
        if self.fits(size, open_pool):
            return
        free = self.driver.free_memory()
        if open_pool is not None and size is None:
            size = max(pool_folder.default_bytes(), least(self.facts.sms))
        sizes = rings(default_bytes(free, self.facts.sms) if size is None else size, self.facts.sms)
        try:
            place = self._made(sizes.total, open_pool)
        except DriverError as error:
            if error.name != "CUDA_ERROR_OUT_OF_MEMORY":
                raise
            need = f"the pool needs {sizes.total} bytes of device memory, {free} are free"
            advice = "free some before the session" if size is None else "pass a smaller profile(pool=bytes)"
            raise DriverError(error.call, error.name, error.number, f"{need}: {advice}") from None
        if place.mapped is None:
            self.clear(place.memory.address, sizes.total, self.stream)
        old, self._place, self.rings, self.requested = self._place, place, sizes, size
        self._open_pool = open_pool
        now, self.table = self.words(), sizes.words(place.memory.address)
        for name in ("head", "skipped", "lost"):
            self.table[name] = now[name]
        self.table["limit"] += now["head"]
        self.driver.write(self.control + wire.STRIPES_AT, self.table.view(np.uint8), self.stream)
        self.driver.synchronize(self.stream)
        if old is not None:
            old.release(self.driver)

    @property
    def pool(self) -> Allocation | None:
        """The pool, for kernels."""
        return None if self._place is None else self._place.memory

    @property
    def file(self) -> PoolFile | None:
        """Where the pool outlives the program; None if it does not."""
        return None if self._place is None else self._place.file

    @property
    def mapped(self) -> PoolFile | None:
        """The file that kernels write into; None if they write to the device."""
        return None if self._place is None else self._place.mapped

    @property
    def launches(self) -> int:
        """Address of the launch table, which is where the pool is."""
        return self.launch_tables[0]

    @property
    def launch_tables(self) -> tuple[int, ...]:
        """Addresses of the launch table and, if that is in a file, of the one on the device, to which kernels write
        that were not compiled for survive=."""
        table = self.control + wire.table_offset(self.facts.sms)
        return (table,) if (file := self.mapped) is None else (int(file.book.ctypes.data), table)

    def _made(self, size: int, open_pool: OpenPool | None) -> PoolPlace:
        if open_pool is None:
            return PoolPlace(self.driver.allocate(size))
        table = wire.table_offset(self.facts.sms)
        return surviving(self.driver, self.facts, self.tick_ns, size, open_pool, self._control, table)

    def allocations(self) -> tuple[Allocation, ...]:
        """The control block, and the pool if there is one on the device."""
        place = self._place
        return (self._control,) if place is None or place.mapped else (self._control, place.memory)

    def words(self) -> np.ndarray:
        """The stripes' current words, (stripes,) wire.STRIPE."""
        return np.frombuffer(self.read(self.control + wire.STRIPES_AT, self.stripes * wire.STRIPE_BYTES), wire.STRIPE)

    def gate(self, epoch: int, subset: Subset) -> None:
        """Open the gate, or close it with epoch 0: first the subset, then the line that kernels read first."""
        gate = self.page[128:256]
        words = subset.gate(epoch, self.facts.sms)
        words["launches"] = self.launches
        gate[:] = np.frombuffer(words.tobytes(), np.uint8)
        self.driver.write(self.control + 16, gate[16:], self.stream)
        self.driver.write(self.control, gate[:16], self.stream)
        self.driver.synchronize(self.stream)

    def now(self) -> int:
        """%globaltimer now, ns: the last comparison, extrapolated by the host's clock; 0 without one."""
        if not self.syncs:
            return 0
        last = self.syncs[-1]
        return last.globaltimer + time.time_ns() - (last.host_before + last.host_after) // 2

    def surely_past(self) -> int:
        """The latest %globaltimer, ns, that has certainly passed; 0 before the clocks were compared."""
        if not self.syncs:
            return 0
        since = time.monotonic_ns() - self._synced
        return max(0, self.syncs[-1].globaltimer + since - since // _DRIFT)

    def sync_clock(self) -> None:
        """Add a comparison with the host's clock, if the device has room to read its own."""
        if self._clocks is None:
            self._clocks = Clocks(self.driver, self.page[_CLOCK])
        found = self._clocks.sync()
        if found is not None:
            self.syncs.append(found)
            self._synced = time.monotonic_ns()
            self.tick_ns = self._clocks.tick_ns()

    def read_timer(self, when: str) -> None:
        """Launch the kernels that read the timer at a session's "begin" or "end"; at its end, wait for all of them."""
        if self._timer is None:
            self._timer = TimerReadings(self.driver)
        self._timer.launch(when)
        if when == "end":
            self._timer.read()

    def readings(self) -> tuple[TimerReading, ...]:
        """The readings of the timer in this session."""
        return () if self._timer is None else self._timer.found()

    def begin(self) -> None:
        """A session begins: forget an earlier one's readings and comparisons of clocks."""
        self.syncs.clear()
        if self._timer is not None:
            self._timer.clear()
        self.sync_clock()
