"""When passes are made: in a thread while a session records, and once more when it ends.

What lives here: that thread, and a session's begin and end. What does not: a pass (passes.py).
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from kscope.capture import Problem
from kscope.errors import DriverError

from .accounting import Lines
from .device import Device
from .passes import Passes

_BUSY_S, _IDLE_S, _CLOSED_S = 0.0002, 0.002, 0.05
_MUCH = 8 << 20
"""Bytes: after a pass that freed as much, the next one follows at once."""
_SHARE = 8
_PATIENCE_S = 0.25
"""How long a launch waits for room; what fills the pool may itself wait for that launch."""
_THREADS = max(1, min(12, (os.cpu_count() or 2) - 2))


class Drain:
    """One device's drain, made when it is first armed. `recording` is set while the gate is open."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.failed: Problem | None = None
        self.recording = threading.Event()
        self._patient = True
        self._name = f"kscope drain {device.facts.ordinal}"
        self._passes = Passes(device, ThreadPoolExecutor(_THREADS, self._name))
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, epoch: int, pool: int | None) -> None:
        """A session begins: a pool of `pool` bytes (None: the default), and what is found from now on is its own."""
        if not self.device.fits(pool):
            self.finish()
            self.device.open_pool(pool)
            self._passes.adopt()
        with self._lock:
            self._passes.begin(epoch)
        self.failed = None

    def start(self) -> None:
        """Make passes in a thread until finish()."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def wait_for_room(self) -> None:
        """Returns when most of the pool is free, or after a while; once in vain, it no longer waits until there
        was room again."""
        if self._passes.room.is_set():
            self._patient = True
        elif self._patient:
            self._patient = self._passes.room.wait(_PATIENCE_S)

    def stop(self) -> None:
        """No more passes; returns when the last one is done."""
        self._passes.room.set()
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def finish(self) -> None:
        """Take all that is claimed, finished or not, and end the passes. Waits for all work of the device."""
        self.device.driver.synchronize_context()
        self.stop()
        with self._lock:
            self._passes.everything(closed=False)

    def snapshot(self) -> Lines:
        """All that was recorded so far, slabs that are still being written included; (n, 16) uint32."""
        with self._lock:
            self._passes.everything(closed=True)
            rest, kept = self._passes.peek(), self._passes.arena.lines()
        return np.concatenate([kept, rest]) if len(rest) else kept

    def lines(self) -> Lines:
        """What the host has, (n, 16) uint32."""
        return self._passes.arena.lines()

    def lost(self) -> int:
        """Lanes that found no room, as far as the host has looked."""
        return self._passes.lost()

    def _run(self) -> None:
        try:
            self.device.driver.set_context(self.device.context)
            # a capture anywhere in the process forbids this thread's waits, unless it says that it knows
            with self.device.driver.relaxed():
                self._passes_until_stopped()
        except (DriverError, MemoryError) as error:
            self.failed = Problem("drain", f"device {self.device.facts.ordinal}: draining stopped: {error}")

    def _passes_until_stopped(self) -> None:
        wait = 0.0
        while not self._stop.wait(wait):
            with self._lock:
                freed = self._passes.once(_SHARE)
            idle = _IDLE_S if self.recording.is_set() else _CLOSED_S
            wait = 0.0 if freed >= _MUCH else _BUSY_S if freed else idle
