"""The drain thread: passes while a session records, and one at its end."""

from __future__ import annotations

import atexit
import math
import threading
import time
import weakref
from collections.abc import Hashable
from pathlib import Path

import numpy as np

from kscope.capture.capture_data import BegunLaunch
from kscope.capture.expand import Lines
from kscope.capture.model import Problem
from kscope.errors import DriverError
from kscope.instrument.backend import OpenPool

from .arena import Arena
from .device import Device
from .drain_pass import Passes
from .driver import Memory
from .pool_room import PoolReading
from .wake_event import Wake

_BUSY_S, _IDLE_S, _CLOSED_S = 0.0002, 0.002, 0.05
_MUCH = 8 << 20
"""Bytes: a pass that freed at least this much is followed by the next one at once."""
_SHARE = 8
_WATCH_S = 0.012
"""Time for which the stripes are only watched: less than _FRESH_S, so that launches need not read the pool
themselves.
"""
_FRESH_S, _LOOK_S = 0.02, 0.0005
"""Greatest age of the drain's reading of the pool before a launch reads it itself, and interval of a waiting launch's
reads. Threads that launch without pause keep the interpreter from the drain, so a small pool may fill up meanwhile; and
a batch may take longer than this while nearly all of a large pool is free.
"""
_MAX_LAUNCH_WAIT_S = 0.25
"""Longest wait of a launch while nothing is freed; the work that fills the pool may itself wait for that launch."""


class Drain:
    """One device's drain, made when it is first armed."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.failed: Problem | None = None
        self._recording = threading.Event()  # set while the gate is open
        self._patient, self._salvaged = True, False
        self._name = f"kscope drain {device.facts.ordinal}"  # cli/running/script_threads.py recognizes it
        self._passes = Passes(device)
        self._reading = PoolReading(device)
        self._lock = threading.Lock()
        self._stop, self._wake = threading.Event(), Wake()
        self._thread: threading.Thread | None = None
        atexit.register(_watch_no_more, weakref.ref(self))

    def begin(
        self, epoch: int, pool: int | None, folder: Path | None = None, open_pool: OpenPool | None = None
    ) -> None:
        """Begin a session with a pool of `pool` bytes (None: the default). folder, open_pool: as for Backend."""
        if not self.device.fits(pool, open_pool):
            self.finish()
            self.device.open_pool(pool, open_pool)
            self._passes.adopt()
        with self._lock:
            self._passes.begin(epoch, folder)
            self._salvaged = False
        self.failed = None

    def start(self) -> None:
        """Run passes in a thread until finish()."""
        if self._thread is None or not self._thread.is_alive():
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def opened(self) -> None:
        """The gate was opened: passes follow closely."""
        self._recording.set()
        self._wake.set()

    def closed(self) -> None:
        """The gate was closed."""
        self._recording.clear()

    def watch_no_more(self) -> None:
        """Stop watching: make passes only."""
        self._passes.watches = False
        self._wake.set()

    def wait_for_room(self, kernel: Hashable) -> None:
        """Return when the pool has room for a launch of the kernel and all earlier ones, or nothing was freed for a
        while. After a wait in vain, do not wait again until there was room once.
        """
        now, (looked, room) = time.monotonic(), self._passes.seen
        if room and now - looked < _FRESH_S and self._passes.forecast.admits(kernel, now):
            self._patient = True  # nearly all launches
            return
        if self._fits(kernel):
            self._patient = True
        else:
            self._wait(kernel)
        self._passes.forecast.launched(kernel, time.monotonic())

    def _wait(self, kernel: Hashable) -> None:
        if self._patient:
            self._wake.set()
        progress, until = self._progress(), time.monotonic() + _MAX_LAUNCH_WAIT_S
        while self._patient and not self._fits(kernel):
            if self._progress() != progress:
                progress, until = self._progress(), time.monotonic() + _MAX_LAUNCH_WAIT_S
            self._patient = self.failed is None and time.monotonic() < until
            if self._passes.room.is_set():  # outdated
                time.sleep(_LOOK_S)
            else:
                self._passes.room.wait(_MAX_LAUNCH_WAIT_S / 8)

    def _fits(self, kernel: Hashable) -> bool:
        forecast = self._passes.forecast
        if not self._has_room(_FRESH_S):
            return False
        return forecast.fits(kernel) or (self._has_room(_LOOK_S) and forecast.fits(kernel))

    def _progress(self) -> tuple[int, float]:
        """A value that changes when memory is freed, also in the middle of a pass, and when a launch begins."""
        return self._passes.forecast.freed, self._passes.forecast.changed

    def _has_room(self, every: float) -> bool:
        """True if there is room: by the drain's last reading, or, if that is older than `every` seconds, by one of this
        launch, which neither wakes nor delays anyone.
        """
        looked, room = self._passes.seen
        if time.monotonic() - looked < every:
            return room
        return self._reading.has_room(every, self._passes.forecast)

    def stop(self) -> None:
        """Stop passes and return when the last one is done. Launches no longer wait for room."""
        if self._thread is not None:
            self._stop.set()
            self._wake.set()
            self._thread.join()
            self._thread = None
        self._passes.seen = math.inf, True  # after the last pass, which sets it as well
        self._passes.room.set()
        self._passes.forecast.reset()

    def finish(self) -> None:
        """Take everything claimed, finished or not, and stop. Waits for all work of the device."""
        self.device.driver.synchronize_context()
        self.stop()
        with self._lock:
            if not self._salvaged:
                self._passes.everything(closed=False)

    def snapshot(self) -> Lines:
        """Everything recorded so far, including slabs still being written; (n, 16) uint32."""
        with self._lock:
            if self._salvaged:
                return self._passes.arena.lines()
            self._passes.everything(closed=True)
            rest, kept = self._passes.peek(), self._passes.arena.lines()
        return np.concatenate([kept, rest]) if len(rest) else kept

    def salvage(self, memory: Memory) -> None:
        """Take everything that remains of a broken context, after stop(); then nothing more until the next session.
        Raises UnsupportedError, MemoryError.
        """
        with self._lock:
            self._passes.salvage(memory)
            self._salvaged = True
        self.failed = None

    def lines(self) -> Lines:
        """The drained lines, (n, 16) uint32."""
        return self._passes.arena.lines()

    def release(self) -> Lines:
        """The lines of a drain that has stopped. The drain forgets them: their memory is freed with the capture."""
        lines, self._passes.arena = self._passes.arena.lines(), Arena()
        return lines

    def end(self, error: DriverError | MemoryError) -> None:
        """Note why draining stopped."""
        if self.failed is None:
            self.failed = Problem("drain", f"draining stopped: {error}").on_device(self.device.facts.ordinal)

    def lost(self) -> int:
        """Warps that found no room, at the last reading."""
        return self._passes.lost()

    def begun(self) -> tuple[BegunLaunch, ...]:
        """The newest launches of a broken context, if it was salvaged."""
        return self._passes.begun

    def problems(self) -> list[Problem]:
        """Problems of the data drained so far."""
        ordinal = self.device.facts.ordinal
        left_out = [problem.on_device(ordinal) for problem in self._passes.problems()]
        return [*left_out, *([self.failed] if self.failed is not None else [])]

    def _run(self) -> None:
        try:
            self.device.driver.set_context(self.device.context)
            # a graph capture in the process forbids this thread's waits unless it opts out
            with self.device.driver.relaxed():
                self._run_passes()
        except (DriverError, MemoryError) as error:
            self.end(error)

    def _run_passes(self) -> None:
        freed, at_once = _MUCH, False
        while True:
            if freed < _MUCH:
                self._pause(_BUSY_S if freed else _IDLE_S)
            self._wake.clear()
            if self._stop.is_set():
                return
            with self._lock:
                freed = self._passes.once(_SHARE, at_once=at_once)
            at_once = freed >= _MUCH

    def _pause(self, least: float) -> None:
        if not self._recording.is_set():
            self._wake.wait(_CLOSED_S if least == _IDLE_S else least)
        elif not self._passes.watch(_SHARE, self._wake.file, (least, _IDLE_S), _WATCH_S):
            self._wake.wait(least)


def _watch_no_more(drain: weakref.ref[Drain]) -> None:
    """The interpreter exits: compiled code would continue and call the driver, which ends with the process."""
    if (found := drain()) is not None:
        found.watch_no_more()
