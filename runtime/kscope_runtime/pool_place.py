"""Locations of a pool: on the device, in a file that kernels write, or on the device and kept by another process."""

from __future__ import annotations

from dataclasses import dataclass

from kscope.capture.pools.pool_file import PoolDevice, PoolFile
from kscope.errors import DriverError, UsageError
from kscope.instrument.backend import OpenPool

from .device_memory import Allocation
from .driver import CudaDriver, DeviceFacts
from .keeper import Keeper


@dataclass(frozen=True)
class PoolPlace:
    """A pool's memory.

    Attributes:
        memory: its addresses, for kernels.
        file: the file in which it outlives the program, or None.
        keeper: holds the memory for the file; None if the memory is the file.
    """

    memory: Allocation
    file: PoolFile | None = None
    keeper: Keeper | None = None

    @property
    def mapped(self) -> PoolFile | None:
        """The file, if kernels write into it."""
        return self.file if self.keeper is None else None

    def release(self, driver: CudaDriver) -> None:
        """Free it after all kernels have ended."""
        if self.mapped is not None:
            driver.unregister(self.mapped.memory)
            return
        if self.keeper is not None:
            self.keeper.end()
        driver.free(self.memory)


def surviving(
    driver: CudaDriver, facts: DeviceFacts, tick_ns: int, size: int, open_pool: OpenPool, control: Allocation,
    table: int,
) -> PoolPlace:  # fmt: skip
    """A pool that outlives the program.

    Args:
        driver: of the current context.
        facts: of its device.
        tick_ns: of its timer.
        size: bytes.
        open_pool: creates the file.
        control: the control block.
        table: offset of the launch table in it.

    Raises:
        UsageError: the driver does not allow it; the message has the remedy.
        DriverError: there is too little device memory.
    """
    can_keep = control.file >= 0 and not facts.exclusive
    device = PoolDevice(facts.ordinal, facts.name, facts.sms, facts.max_clock_khz, tick_ns, can_keep)
    file = open_pool(device, size)
    try:
        if not file.is_copy:
            return _in_file(driver, file)
        if not can_keep:
            why = "its compute mode allows only one process on the GPU" if facts.exclusive else "this driver cannot"
            raise UsageError(f"survive='keeper' shares memory with another process; {why}: use survive='shm'")
        memory = driver.allocate(size)
        try:
            return PoolPlace(memory, file, Keeper(facts.ordinal, file, control, memory, table))
        except BaseException:
            driver.free(memory)
            raise
    except BaseException:
        file.end(remove=True)
        raise


def _in_file(driver: CudaDriver, file: PoolFile) -> PoolPlace:
    """A pool with the same address for kernels and for this process."""
    try:
        driver.register(file.memory)
    except DriverError as error:
        raise UsageError(
            f"survive: the driver does not take the file {file.path} as memory of kernels ({error}): it must"
            " be in a file system in memory (KSCOPE_SURVIVE_FOLDER, usually /dev/shm), below the limit of locked memory"
            " (ulimit -l)"
        ) from None
    return PoolPlace(Allocation(file.pool.ctypes.data, len(file.pool)), file)
