"""mbarriers of a simulated block: arrivals, bytes and copies that land later, in phases, as the hardware counts them.

full = warp.barrier("full 0", arrivals=1)       # the first call in a block initializes it
full.expect(4096)                               # one arrival, which also expects bytes
full.copy(4096, cycles=900)                     # lands later
full.wait(parity)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import PurePath

from kscope.errors import UsageError
from kscope.marks import operations
from kscope.marks.grammar import Mark
from kscope.marks.operations import Operation
from kscope.marks.strategies import ANY_LANE

from .block import Block, Strand

_FIRST_ADDRESS = 1024


class Barrier:
    """A barrier, as one warp uses it: Warp.barrier() makes it. With auto="pipeline" its operations are recorded.

    Attributes:
        over: SM cycles at which its phases ended, as far as known: exact, where a recording has bounds.
    """

    def __init__(
        self, block: Block, strand: Strand, key: Hashable, arrivals: int, lanes: Callable[[], int],
        record: Callable[[str, Operation, int], None],
    ) -> None:  # fmt: skip
        """Initialize the barrier, if the block has none of this key.

        Args:
            block: the warp's block.
            strand: the warp.
            key: names the barrier.
            arrivals: number of arrivals in a phase.
            lanes: the number of the warp's active lanes.
            record: records an operation of the warp: fixed fields of its name, its kind and its value.
        """
        self._block, self._strand, self._lanes, self._record = block, strand, lanes, record
        self._key = key
        found = block.barriers.get(key)
        if found is None:
            found = block.barriers[key] = Phases(_FIRST_ADDRESS + 8 * len(block.barriers), arrivals)
            self._phases = found
            self._note("init", f" count={arrivals}")
        elif found.arrivals != arrivals:
            raise UsageError(f"barrier {key!r}: arrivals={arrivals}, but it was initialized with {found.arrivals}")
        self._phases = found

    @property
    def over(self) -> list[int]:
        return self._phases.over()

    def arrive(self, count: int = 1) -> None:
        """Every active lane arrives.

        Args:
            count: arrivals of each lane.
        """
        self._note("arrive", f" count={count}" if count != 1 else "")
        if lanes := self._lanes():
            self._phases.arrived(self._strand.now, lanes * count, 0)

    def expect(self, bytes: int) -> None:
        """One arrival that also expects bytes; one lane makes it.

        Args:
            bytes: bytes of copies that must land before the phase is over.
        """
        if self._lanes() > 1:
            raise UsageError(f"barrier {self._key!r}: {self._lanes()} lanes expect bytes; use warp.where(1)")
        self._note("expect", f" bytes={bytes}")
        if self._lanes():
            self._phases.arrived(self._strand.now, 1, bytes)

    def copy(self, bytes: int, cycles: int) -> None:
        """Issue a copy that completes at this barrier.

        Args:
            bytes: its size.
            cycles: how long it takes.
        """
        self._note("copy", f" bytes={bytes}")
        if self._lanes():
            self._phases.copied(self._strand.now, self._strand.now + cycles, bytes)

    def wait(self, parity: int) -> None:
        """Wait until the last completed phase has this parity; before the first phase, that is 1.

        Args:
            parity: 0 or 1.
        """
        if not self._lanes():
            return
        self._note("wait", "", parity, "enter")
        now = self._strand.now
        text = f"barrier {self._key!r} (parity {parity})"
        self._block.wait_until(self._strand, text, lambda: self._phases.passes(now, parity))
        self._note("wait", "", parity, "exit")

    def _note(self, operation: Operation, fixed: str, parity: int = 0, act: str = "instant") -> None:
        lanes = max(1, self._lanes()) if act == "instant" else 1
        word = self._phases.address | parity << operations.PARITY_SHIFT | lanes - 1 << operations.LANES_SHIFT
        self._record(f"{act}{fixed}", operation, word)


class Phases:
    """A barrier's counts. address: its place in shared memory. arrivals: of a phase."""

    def __init__(self, address: int, arrivals: int) -> None:
        if arrivals < 1:
            raise UsageError(f"arrivals={arrivals}: expected 1 or more")
        self.address, self.arrivals = address, arrivals
        self._arrived: list[tuple[int, int, int]] = []  # cycles, arrivals, bytes expected
        self._copied: list[tuple[int, int, int]] = []  # issued, landed, bytes
        self._over: list[int] | None = None

    def arrived(self, now: int, count: int, expected: int) -> None:
        self._arrived.append((now, count, expected))
        self._over = None

    def copied(self, issued: int, landed: int, size: int) -> None:
        self._copied.append((issued, landed, size))
        self._over = None

    def passes(self, now: int, parity: int) -> int | None:
        """The cycle at which a wait that begins now ends; None if that is not known yet."""
        over = self.over()
        done = sum(cycle <= now for cycle in over)
        if (done - 1) % 2 == parity:
            return now
        return over[done] if done < len(over) else None

    def over(self) -> list[int]:
        if self._over is None:
            self._over = self._counted()
        return self._over

    def _counted(self) -> list[int]:
        over: list[int] = []
        copies, missing, expected, last = sorted(self._copied), self.arrivals, 0, 0
        for now, count, size in sorted(self._arrived):
            missing, expected, last = missing - count, expected + size, max(last, now)
            if missing > 0:
                continue
            while expected > 0 and copies:
                _, landed, size = copies.pop(0)
                expected, last = expected - size, max(last, landed)
            if expected > 0:
                break
            over.append(last)
            missing += self.arrivals
        return over


def mark_of(what: str, operation: Operation, place: str | None) -> Mark:
    """The mark of an operation. what: its act and fixed fields. place: file:line."""
    act, _, fixed = what.partition(" ")
    file, _, line = (place or "").rpartition(":")
    pairs = dict(pair.split("=") for pair in fixed.split())
    name = operations.operation_name(operation, f"{PurePath(file).name}:{line}" if file else "#0", **pairs)
    return Mark(act, name, strategy=ANY_LANE, how="pipeline")  # type: ignore[arg-type]  # acts are written above
