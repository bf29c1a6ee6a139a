"""The four recording strategies. The *spec* is a strategy's text, in Python, options, marks, cache keys and captures.

Lane0Warp0()            lane0-warp0   one thread per block
Elected()               elected       lane 0 of every warp (default)
Elected(any_lane=True)  elected-any   in every warp the first active lane
TargetWarp(0, 4)        warps:0,4     lane 0 of the named warps
AllThreads()            all           every thread
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import UsageError

ANY_LANE = "elected-any"
"""The spec of Elected(any_lane=True)."""
MAX_WARPS = 32
"""Warps per block: 1024 threads / 32."""


@dataclass(frozen=True)
class Strategy:
    """Base class of the four strategies."""

    @property
    def spec(self) -> str:
        """The strategy as text, such as "warps:0,4"."""
        raise AssertionError("a Strategy is one of Lane0Warp0, Elected, TargetWarp, AllThreads")

    def records(self, warp: int, lane: int) -> bool:
        """True if a lane owns a slab from kernel entry on.

        Args:
            warp: the warp's index in its block (linear thread index / 32).
            lane: the lane's index in its warp.
        """
        raise AssertionError("a Strategy is one of Lane0Warp0, Elected, TargetWarp, AllThreads")


@dataclass(frozen=True)
class Lane0Warp0(Strategy):
    """Record one thread per block, linear thread index 0. The cheapest strategy."""

    @property
    def spec(self) -> str:
        return "lane0-warp0"

    def records(self, warp: int, lane: int) -> bool:
        return warp == 0 and lane == 0


@dataclass(frozen=True)
class Elected(Strategy):
    """Record lane 0 of every warp. Code that lane 0 does not reach is not recorded, unless `any_lane` is set.

    Args:
        any_lane: the first active lane records each region, from enter to exit, so divergent code is recorded too.
            A lane other than 0 claims its own slab at its first record. The trace merges a warp's lanes.

    Raises:
        UsageError: `any_lane` is not a bool.
    """

    any_lane: bool = False

    def __post_init__(self) -> None:
        any_lane = getattr(self.any_lane, "value", self.any_lane)  # inside a jit function: constexpr
        if not isinstance(any_lane, bool):
            raise UsageError(f"Elected(any_lane={any_lane!r}): expected True or False")
        object.__setattr__(self, "any_lane", any_lane)

    @property
    def spec(self) -> str:
        return ANY_LANE if self.any_lane else "elected"

    def records(self, warp: int, lane: int) -> bool:
        return lane == 0


@dataclass(frozen=True)
class AllThreads(Strategy):
    """Record every thread, each in its own slab."""

    @property
    def spec(self) -> str:
        return "all"

    def records(self, warp: int, lane: int) -> bool:
        return True


@dataclass(frozen=True, init=False)
class TargetWarp(Strategy):
    """Record lane 0 of the named warps.

    Args:
        *warps: warp indices (linear thread index / 32), 0 to 31, as in ``TargetWarp(0, 4)``.

    Raises:
        UsageError: no warp is given, or one is not an integer from 0 to 31.
    """

    warps: tuple[int, ...]

    def __init__(self, *warps: int) -> None:
        warps = tuple(getattr(warp, "value", warp) for warp in warps)  # inside a jit function: constexpr
        for warp in warps:
            if not isinstance(warp, int) or isinstance(warp, bool) or not 0 <= warp < MAX_WARPS:
                raise UsageError(f"TargetWarp({warp!r}): expected an integer from 0 to {MAX_WARPS - 1}")
        if not warps:
            raise UsageError("TargetWarp(): name at least one warp, as in TargetWarp(0) or TargetWarp(0, 4)")
        object.__setattr__(self, "warps", tuple(sorted(set(warps))))

    @property
    def mask(self) -> int:
        """Bit w is set if warp w records."""
        return sum(1 << warp for warp in self.warps)

    @property
    def spec(self) -> str:
        return "warps:" + ",".join(map(str, self.warps))

    def records(self, warp: int, lane: int) -> bool:
        return lane == 0 and warp in self.warps


_PLAIN = {strategy.spec: strategy for strategy in (Lane0Warp0(), Elected(), Elected(any_lane=True), AllThreads())}


EXPECTED = "'lane0-warp0', 'elected', 'elected-any', 'all', or 'warps:0,4' with numbers of warps"
"""The spellings, for errors."""


def parse_strategy(spec: str) -> Strategy:
    """Parse a spec.

    Args:
        spec: lane0-warp0, elected, elected-any, all, or warps:N,M.

    Raises:
        UsageError: the spec is invalid.
    """
    if spec in _PLAIN:
        return _PLAIN[spec]
    head, _, rest = spec.partition(":")
    if head == "warps" and rest and all(part.isdecimal() for part in rest.split(",")):
        return TargetWarp(*(int(part) for part in rest.split(",")))
    raise UsageError(f"strategy={spec!r}: expected {EXPECTED}")


def records_some_warps(spec: str) -> bool:
    """True if only some warps of a block record with a strategy, which a file may have invented.

    Args:
        spec: its text.
    """
    return spec == Lane0Warp0().spec or spec.partition(":")[0] == "warps"


def strategy_of(value: Any) -> Strategy:
    """Convert a user's argument to a strategy.

    Args:
        value: a Strategy or its spec; inside a jit function also a constant with a `value`.

    Raises:
        UsageError: it is neither.
    """
    value = getattr(value, "value", value)
    if isinstance(value, str):
        return parse_strategy(value)
    if not isinstance(value, Strategy):
        raise UsageError(f"strategy={value!r}: expected {EXPECTED}, or kscope.Elected() and the like")
    return value
