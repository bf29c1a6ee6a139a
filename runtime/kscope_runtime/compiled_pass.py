"""Runs batches of a pass in one compiled call (kscope/native/passes.c): a batch takes less than a millisecond, and the
interpreter's lock may take several to get. A call ends when Python must process a batch, or when launches that wait
must learn of room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from kscope import native
from kscope.capture import layout, wire
from kscope.capture.expand import Expander

from .accounting import Stripes
from .arena import Arena
from .device import Device
from .driver_calls import DriverCalls
from .launch_table import STALE_S, WINDOW, LaunchTable
from .pass_words import COLUMNS, PASS, SETS
from .slab_search import LOG2, most_slabs
from .slab_sizes import LOOKS
from .staging import PLACES, Batches, Staging

_STEPS, _LINES_PER_UNIT = 128, 2
"""Same as in C: parts of a batch that threads write, and most lines of a unit, where rows are three records."""


Floats = npt.NDArray[np.float64]


class Status(IntEnum):
    """Reasons for the end of a call, as in batches.h."""

    DONE = 0
    UNUSUAL = 1
    MISSING = 2
    NEWS = 3
    FULL = 4
    FAILED = 5


class CompiledPass:
    """Passes over the rings of a device whose driver has functions for compiled code. Not thread-safe.

    Args:
        device: its rings.
        staging: memory for copies.
        calls: the driver's functions.
        writes: a stream to the device.
        pinned: from the drain: "before" and "control" for two readings of the stripes, and "limits".

    Attributes:
        stuck: (stripes,) stripes of which a batch held a part, and freed nothing.
    """

    def __init__(
        self, device: Device, staging: Staging, calls: DriverCalls, writes: int, pinned: Mapping[str, np.ndarray]
    ) -> None:
        assert calls.entry_points is not None
        self._device, self._staging, self._calls = device, staging, calls
        self._about, self.stuck = np.zeros(1, PASS), np.zeros(device.stripes, bool)
        self._words = {name: self._about[name] for name in PASS.names or ()}  # much faster than fields
        sizes = {
            "slabs": most_slabs(staging.units, device.stripes), "parts": device.stripes + 1, "steps": _STEPS + 1,
            "launches": 2 * wire.SLOTS, "words": 2 * wire.SLOTS * wire.LAUNCH_BYTES // 4,
        }  # fmt: skip
        columns = {
            f"{name}{number}": np.empty(sizes[size], kind)
            for number in range(SETS)
            for name, (kind, size) in COLUMNS.items()
        }
        self._columns: dict[str, np.ndarray] = {**columns, **pinned, "stuck": self.stuck, "zeros": device.zeros}
        self._used: dict[str, np.ndarray] = {}
        addresses = {
            name: getattr(calls.entry_points, name) for name in ("read", "write", "write_column", "synchronize")
        }
        words = device.control + wire.STRIPES_AT
        self._set(
            **addresses, stream=staging.stream, writes=writes, stripes=device.stripes, words_at=words, window=WINDOW,
            limits_at=words + wire.STRIPE.offset("limit"), launches_at=device.launches, zeros_bytes=len(device.zeros),
            stale=STALE_S, sizes=wire.SIZES, enough_looks=LOOKS, least_log2=LOG2[0], most_log2=LOG2[1],
            header_word=layout.HEADER_WORD, done_word=layout.DONE_WORD,
        )  # fmt: skip
        self._point(self._columns)

    def begin(
        self, batches: Batches, state: Stripes, launches: LaunchTable, expander: Expander, waits: tuple[Floats, Floats],
        settled: int,
    ) -> None:  # fmt: skip
        """Begin a pass, whose batches run() takes.

        Args:
            batches: what is taken.
            state: the stripes, which are updated.
            launches: the launch table, which is updated.
            expander: of earlier passes; updated.
            waits: time until which each stripe waits, and its next wait; updated.
            settled: as for find().
        """
        parts, known = batches.parts, expander.layouts.known
        places = {f"place{number}": self._staging.place(number) for number in range(min(len(batches), PLACES))}
        self._used = {
            **places, **launches.columns(), "table": self._device.table, "bounds": np.array(batches.bounds, np.int64),
            "stripe": parts.stripe, "units": parts.units, "tail": parts.tail, "skipped": parts.skipped,
            "head": parts.head, "whole": parts.whole, "ring": state.ring, "tails": state.tail, "found": state.found,
            "proven": state.proven, "clean": state.clean, "limit": state.limit, "then": state.then,
            "turned": state.turned, "again": waits[0], "delay": waits[1], "looks": self._device.sizes.looks,
            "clock": expander.clock, "time": expander.time, "kernel": known.kernels, "layouts": known.table,
            "layout_first": known.first, "layout_stop": known.stop,
        }  # fmt: skip
        self._point(self._used)
        self._set(
            batches=len(batches), epoch=launches.epoch, rate=expander.rate, first_turn=expander.first_turn,
            kernels=len(known.kernels), settled=settled, threads=native.threads(), pending=-1,
            **dict.fromkeys(("batch", "fetched", "ready", "last", "freed", "failed", "reading"), 0),
            **dict.fromkeys(("kept", "writing", "keeping"), 0),
        )  # fmt: skip
        if (file := self._device.file) is not None:
            ring, count, put = file.ring
            self._point({"kept": ring, "kept_batches": count})
            self._set(kept_bytes=len(ring), put=put)
        self.stuck[:] = False
        self._columns["limits"][:] = state.limit
        self._batches, self._launches, self._expander = batches, launches, expander

    def run(
        self, arena: Arena, room: bool, unusual: Callable[[int], int], seen: Callable[[float], object]
    ) -> int:  # fmt: skip
        """Take all batches. finish() must follow.

        Args:
            arena: where their lines go.
            room: True if the pool had room.
            unusual: takes a whole batch that compiled code cannot process, and returns the units that it freed.
            seen: takes a reading of the stripes; called with the time.monotonic() of the request.

        Returns:
            Units freed.

        Raises:
            MemoryError: the arena has no room.
            DriverError: from a call.
        """
        freed = needed = 0
        self._set(has_room=room)
        while (status := self._go(arena, needed)) is not Status.DONE:
            needed, batch = 0, self._get("batch")
            if reading := float(self._words["reading"][0]):
                seen(reading)
            if status is Status.MISSING:
                self._launches.fetch_missing(self._calls)
                self._set(last=1)  # entries that are still missing do not exist
            elif status is Status.FULL:
                needed = _LINES_PER_UNIT * int(self._batches[batch].first[-1])
            elif status is Status.UNUSUAL:
                freed += unusual(batch)
                self._set(batch=batch + 1, ready=0, last=0)
        seen(float(self._words["reading"][0]))
        return freed + self._get("freed")

    def finish(self) -> None:
        """Wait until everything is written."""
        native.call("finish", self._about)
        if (file := self._device.file) is not None:
            file.kept_up_to(self._get("put"))

    def _go(self, arena: Arena, lines: int) -> Status:
        into, slot, file = arena.reserve(lines), self._launches.next, self._device.file
        self._point({"lines": into})
        self._set(room=len(into), used=0, unnumbered=0, next=-1 if slot is None else slot)
        if file is not None:
            self._set(put=file.ring[2])
        try:
            status = Status(native.call("batches", self._about))
        finally:  # without memory for a batch, earlier ones are kept
            if file is not None:
                file.kept_up_to(self._get("put"))
            arena.keep(self._get("used"))
            self._expander.unnumbered += self._get("unnumbered")
            self._launches.next = slot if (slot := self._get("next")) >= 0 else None
        if status is Status.FAILED:
            self._calls.check(self._get("failed"), self._get("result"))
        return status

    def _point(self, columns: Mapping[str, np.ndarray]) -> None:
        for name, column in columns.items():
            assert column.flags.c_contiguous
            self._words[name][0] = column.ctypes.data

    def _set(self, **values: float) -> None:
        for name, value in values.items():
            self._words[name][0] = value

    def _get(self, name: str) -> int:
        return int(self._words[name][0])
