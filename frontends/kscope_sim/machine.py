"""The simulated GPU's clocks: one cycle counter per SM, one globaltimer for all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from random import Random

from kscope.capture.wire import MAX_SMS
from kscope.errors import UsageError

POWER_ON_NS = 1_700_000_000_000_000_000
"""%globaltimer and the host's clock at simulated time zero: UNIX time, as on a real machine."""
GHZ, TICK_NS = 1.98, 32
"""Defaults."""
READ_CYCLES = 7
"""Cycles that reading either clock takes (one CS2R on an H200)."""
INTERPRETED_GHZ = 1 / 64
"""The cycle counter's rate for kernels that Python runs on the host's clock: a mark takes microseconds and a warp
seconds, so 64 ns resolve marks, and 32 bits cover 4.6 minutes.
"""


@dataclass(frozen=True)
class Machine:
    """A simulated GPU.

    Attributes:
        sms: number of SMs.
        seed: fixes the counters' offsets and each warp's random numbers.
        ghz: SM clock, one number or one per SM.
        tick_ns: step of %globaltimer.
        resident: blocks that an SM runs at a time.
        offsets: each SM's clock64 at time zero; random by default, because they differ on hardware.

    Raises:
        UsageError: a number is out of range.
    """

    sms: int = 4
    seed: int = 0
    ghz: float | tuple[float, ...] = GHZ
    tick_ns: int = TICK_NS
    resident: int = 1
    offsets: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.sms <= MAX_SMS:
            raise UsageError(f"sms={self.sms!r}: expected 1 to {MAX_SMS} SMs")
        if self.resident < 1 or self.tick_ns < 1:
            raise UsageError(f"resident={self.resident!r}, tick_ns={self.tick_ns!r}: expected 1 or more")
        for name in ("ghz", "offsets"):
            given = getattr(self, name)
            if isinstance(given, tuple) and len(given) != self.sms:
                raise UsageError(f"{name} has {len(given)} numbers: expected one per SM, {self.sms}")

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """Cycles per nanosecond, per SM."""
        return self.ghz if isinstance(self.ghz, tuple) else (self.ghz,) * self.sms

    @cached_property
    def zeros(self) -> tuple[int, ...]:
        """clock64 at time zero, per SM; in the first 2^33 cycles, so that low words wrap in some."""
        draw = Random(self.seed)
        return self.offsets or tuple(draw.randrange(1 << 33) for _ in range(self.sms))

    def cycles(self, sm: int, ns: float) -> int:
        """Cycles that an SM has counted since time zero.

        Args:
            sm: the SM's number.
            ns: simulated time.
        """
        return round(ns * self.rates[sm])

    def ns(self, sm: int, cycles: int) -> float:
        """Inverse of cycles().

        Args:
            sm: the SM's number.
            cycles: counted since time zero.
        """
        return cycles / self.rates[sm]

    def clock64(self, sm: int, cycles: int) -> int:
        """%clock64 of an SM.

        Args:
            sm: the SM's number.
            cycles: counted since time zero.
        """
        return self.zeros[sm] + cycles & 0xFFFFFFFFFFFFFFFF

    def globaltimer(self, ns: float) -> int:
        """%globaltimer at a simulated time.

        Args:
            ns: simulated time.
        """
        return POWER_ON_NS + int(ns) // self.tick_ns * self.tick_ns
