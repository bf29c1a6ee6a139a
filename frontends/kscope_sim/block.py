"""Schedules the warps of a block, one at a time, in the order of their clocks. Each warp is a host thread, so a kernel
is a plain function, and only one runs at a time, so results are deterministic.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kscope.errors import UsageError

_POLL_S, _ATTEMPTS = 0.05, 100
"""Seconds per attempt to unwind a warp, and attempts before its thread is abandoned."""


class Killed(BaseException):
    """Unwinds a warp whose block has failed; never leaves this package."""


class Trapped(BaseException):
    """Unwinds a warp that trapped; never leaves this package."""


@dataclass(eq=False)
class Strand:
    """A scheduled warp. `now`: cycles of its SM; `ready`: returns when it may resume, None if blocked."""

    body: Callable[[], None]
    now: int
    ready: Callable[[], int | None] | None = None
    waits: str = ""
    done: bool = False
    killed: bool = False
    error: BaseException | None = None
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None


class Block:
    """The warps of one block. The runnable warp with the earliest clock runs next.

    Args:
        hangs: warps that wait for each other hang, as on a GPU, until the process ends; else that is an error.
    """

    def __init__(self, hangs: bool = False) -> None:
        self._hangs = hangs
        self.strands: list[Strand] = []
        self.shared: dict[Hashable, object] = {}
        self.barriers: dict[Hashable, Any] = {}  # barriers.Phases
        self._arrivals: dict[Hashable, list[int]] = {}
        self._syncs: list[dict[Strand, int]] = []
        self._back = threading.Semaphore(0)
        self._running: Strand | None = None

    def run(self) -> None:
        """Run all warps to completion. Raises a warp's exception, or UsageError on a deadlock."""
        try:
            while any(not strand.done for strand in self.strands):
                strand = self._earliest()
                self._resume(strand)
                if strand.error is not None:
                    raise strand.error
        finally:
            self._kill()

    def _earliest(self) -> Strand:
        able: list[tuple[int, int, Strand]] = []
        for number, strand in enumerate(self.strands):
            if not strand.done:
                ready = strand.now if strand.ready is None else strand.ready()
                if ready is not None:
                    able.append((max(ready, strand.now), number, strand))
        while not able and self._hangs:
            time.sleep(_POLL_S)
        if not able:
            waits = [f"warp {i} waits for {s.waits}" for i, s in enumerate(self.strands) if not s.done]
            raise UsageError(f"deadlock: every remaining warp of the block waits: {'; '.join(waits)}")
        now, _, strand = min(able)
        strand.now, strand.ready = now, None
        return strand

    def _resume(self, strand: Strand) -> None:
        if strand.thread is None:
            strand.thread = threading.Thread(target=self._thread, args=(strand,), daemon=True)
            strand.thread.start()
        self._running = strand
        strand.go.release()
        while not self._back.acquire(timeout=_POLL_S):  # wakes up for signals that arrived in another thread
            pass
        self._running = None
        if strand.done:
            strand.thread.join()

    def _thread(self, strand: Strand) -> None:
        with suppress(Killed):  # raised asynchronously by _kill()
            strand.go.acquire()
            try:
                if not strand.killed:
                    strand.body()
            except Killed:
                strand.killed = True
            except BaseException as error:  # re-raised by the launch
                strand.error = error
            finally:
                strand.done = True
                self._back.release()

    def _kill(self) -> None:
        """Unwind the remaining warps one at a time. After Ctrl-C the first one is still running."""
        for strand in sorted(self.strands, key=lambda strand: strand is not self._running):
            if strand.thread is not None and not strand.done:
                strand.killed = True
                strand.go.release()
                if strand.thread.ident is None:  # Ctrl-C before it began: if it does, it ends at once
                    continue
                strand.thread.join(_POLL_S)
                for _ in range(_ATTEMPTS):  # the kernel may be in a loop without kscope calls, or in C code
                    if not strand.thread.is_alive():
                        break
                    _raise_in(strand.thread, Killed)
                    strand.thread.join(_POLL_S)

    # called by the running warp

    def _wait(self, strand: Strand, waits: str, ready: Callable[[], int | None]) -> None:
        strand.ready, strand.waits = ready, waits
        self._back.release()
        strand.go.acquire()
        if strand.killed:
            raise Killed

    def arrive(self, strand: Strand, event: Hashable) -> None:
        """Count one arrival at `event`, now."""
        self._arrivals.setdefault(event, []).append(strand.now)

    def wait(self, strand: Strand, event: Hashable, arrivals: int) -> None:
        """Block until `event` has that many arrivals."""

        def ready() -> int | None:
            times: Sequence[int] = sorted(self._arrivals.get(event, ()))
            return times[arrivals - 1] if len(times) >= arrivals else None

        self._wait(strand, f"{event!r} ({arrivals})", ready)

    def wait_until(self, strand: Strand, waits: str, ready: Callable[[], int | None]) -> None:
        """Block until `ready` returns a cycle. waits: the awaited event, in words."""
        self._wait(strand, waits, ready)

    def sync(self, strand: Strand, number: int) -> None:
        """Block-wide barrier `number`; warps that have exited count as arrived."""
        while len(self._syncs) <= number:
            self._syncs.append({})
        met = self._syncs[number]
        met[strand] = strand.now

        def ready() -> int | None:
            return max(met.values()) if all(s.done or s in met for s in self.strands) else None

        self._wait(strand, f"sync number {number}", ready)


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raise an exception in a thread, at its next bytecode instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error))
