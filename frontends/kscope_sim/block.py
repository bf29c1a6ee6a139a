"""A block's warps, run one at a time in the order of their clocks, and what they wait for.

Each warp is a thread of the host, so that a kernel is a plain function; only one of them runs at any
moment, so that the result is always the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from kscope.errors import UsageError


class Killed(BaseException):
    """Unwinds a warp whose block has failed; never leaves this package."""


class Trapped(BaseException):
    """Unwinds a warp that trapped; never leaves this package."""


@dataclass(eq=False)
class Strand:
    """One warp as the scheduler sees it. `now` = cycles of its SM; `ready` = when it may go on, None = not yet."""

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
    """The warps of one block. Deterministic: of the warps that can go on, the earliest does."""

    def __init__(self) -> None:
        self.strands: list[Strand] = []
        self.shared: dict[Hashable, object] = {}
        self._arrivals: dict[Hashable, list[int]] = {}
        self._syncs: list[dict[Strand, int]] = []
        self._back = threading.Semaphore(0)

    def run(self) -> None:
        """Run all warps to their end. Raises what a warp raised, UsageError where all that are left wait forever."""
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
        if not able:
            waits = [f"warp {i} waits for {s.waits}" for i, s in enumerate(self.strands) if not s.done]
            raise UsageError(f"the block hangs: {'; '.join(waits)}")
        now, _, strand = min(able)
        strand.now, strand.ready = now, None
        return strand

    def _resume(self, strand: Strand) -> None:
        if strand.thread is None:
            strand.thread = threading.Thread(target=self._thread, args=(strand,), daemon=True)
            strand.thread.start()
        strand.go.release()
        self._back.acquire()
        if strand.done:
            strand.thread.join()

    def _thread(self, strand: Strand) -> None:
        strand.go.acquire()
        try:
            if not strand.killed:
                strand.body()
        except Killed:
            strand.killed = True
        except BaseException as error:  # carried over to the launch, which raises it
            strand.error = error
        finally:
            strand.done = True
            self._back.release()

    def _kill(self) -> None:
        for strand in self.strands:
            if strand.thread is not None and not strand.done:
                strand.killed = True
                self._resume(strand)

    # what the running warp may ask for

    def _wait(self, strand: Strand, waits: str, ready: Callable[[], int | None]) -> None:
        strand.ready, strand.waits = ready, waits
        self._back.release()
        strand.go.acquire()
        if strand.killed:
            raise Killed

    def arrive(self, strand: Strand, event: Hashable) -> None:
        """Say that `event` has happened once more, now."""
        self._arrivals.setdefault(event, []).append(strand.now)

    def wait(self, strand: Strand, event: Hashable, arrivals: int) -> None:
        """Go on when `event` has happened that many times."""

        def ready() -> int | None:
            times: Sequence[int] = sorted(self._arrivals.get(event, ()))
            return times[arrivals - 1] if len(times) >= arrivals else None

        self._wait(strand, f"{event!r} ({arrivals})", ready)

    def sync(self, strand: Strand, turn: int) -> None:
        """The block's barrier, met for the turn-th time; warps that have left count as arrived."""
        while len(self._syncs) <= turn:
            self._syncs.append({})
        met = self._syncs[turn]
        met[strand] = strand.now

        def ready() -> int | None:
            return max(met.values()) if all(s.done or s in met for s in self.strands) else None

        self._wait(strand, f"sync number {turn}", ready)
