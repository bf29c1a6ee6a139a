"""Reads the records of a broken context: a pool in a file directly, other memory through another process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from kscope.errors import DriverError, UnsupportedError

from .device_memory import Allocation
from .drain import Drain
from .driver import Memory
from .pool_in_file import InFile

Salvage = Callable[[int, Sequence[Allocation]], AbstractContextManager[Memory]]
"""Reads the allocations of a device, by ordinal, whose context is broken."""


def salvaged(drain: Drain, salvage: Salvage, error: DriverError) -> str:
    """Take the contents of the device's memory, after `error`, into a drain that has stopped. Returns a description of
    the result.
    """
    device, file = drain.device, drain.device.file
    try:
        with salvage(device.facts.ordinal, device.allocations()) as memory:
            drain.salvage(memory if device.mapped is None else InFile(device.mapped, memory))
        kept = "the records written until then are in the capture"
    except (UnsupportedError, MemoryError) as reason:
        rest = "lost" if file is None else f"in {file.path} (kscope summary reads it)"
        kept = f"what was drained before is in the capture, the rest is {rest}: {reason}"
    if file is None:
        return kept
    file.note("problem", {"name": "driver", "text": str(error)})
    return f"{kept}; kscope watch {file.path} shows where every warp was"
