"""Who records: the four strategies, as values with a spelling.

What lives here: which lanes of which warps own a slab. What does not: the instructions that test it
(ptx/). The *spec* is the strategy in one word, as it stands in marks, cache keys, captures and on
the command line.

    Lane0Warp0()      block          one thread per block
    Elected()         warp           lane 0 of every warp (default)
    Elected(any_lane=True)
                      warp:any       in every warp the first lane that gets there
    TargetWarp(0, 4)  warps:0+4      lane 0 of the named warps
    AllThreads()      lanes          every thread
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError

ANY_LANE = "warp:any"
"""The spec of Elected(any_lane=True)."""
MAX_WARPS = 32
"""Warps in a block: 1024 threads of 32 lanes."""


@dataclass(frozen=True)
class Strategy:
    """Base of the four; not to be instantiated."""

    @property
    def spec(self) -> str:
        raise AssertionError("a Strategy is one of Lane0Warp0, Elected, TargetWarp, AllThreads")

    def records(self, warp: int, lane: int) -> bool:
        """Whether this lane of this warp (linear thread id / 32) owns a slab."""
        raise AssertionError("a Strategy is one of Lane0Warp0, Elected, TargetWarp, AllThreads")


@dataclass(frozen=True)
class Lane0Warp0(Strategy):
    """One thread per block: linear thread id 0. The cheapest."""

    @property
    def spec(self) -> str:
        return "block"

    def records(self, warp: int, lane: int) -> bool:
        return warp == 0 and lane == 0


@dataclass(frozen=True)
class Elected(Strategy):
    """Lane 0 of every warp. Code that lane 0 does not reach is not recorded.

    any_lane: of the lanes that enter a region together the first one records it, to its end; code that only some lanes
    of a warp reach is recorded too. A lane other than 0 that records owns a slab as well, and claims it when it
    first stores a record. A trace has the records of a warp's lanes as those of one.
    """

    any_lane: bool = False

    def __post_init__(self) -> None:
        any_lane = getattr(self.any_lane, "value", self.any_lane)  # inside a jit function: constexpr
        if not isinstance(any_lane, bool):
            raise UsageError(f"Elected(any_lane={any_lane!r}): expected True or False")
        object.__setattr__(self, "any_lane", any_lane)

    @property
    def spec(self) -> str:
        return ANY_LANE if self.any_lane else "warp"

    def records(self, warp: int, lane: int) -> bool:
        """Whether this lane owns a slab from the kernel's entry on."""
        return lane == 0


@dataclass(frozen=True)
class AllThreads(Strategy):
    """Every thread, each with a slab of its own."""

    @property
    def spec(self) -> str:
        return "lanes"

    def records(self, warp: int, lane: int) -> bool:
        return True


@dataclass(frozen=True, init=False)
class TargetWarp(Strategy):
    """Lane 0 of the named warps: ``TargetWarp(0, 4)``. Raises UsageError for a warp outside 0..31."""

    warps: tuple[int, ...]

    def __init__(self, *warps: int) -> None:
        warps = tuple(getattr(warp, "value", warp) for warp in warps)  # inside a jit function: constexpr
        for warp in warps:
            if not isinstance(warp, int) or isinstance(warp, bool) or not 0 <= warp < MAX_WARPS:
                raise UsageError(f"TargetWarp({warp!r}): a warp of a block is an integer from 0 to {MAX_WARPS - 1}")
        if not warps:
            raise UsageError("TargetWarp(): name at least one warp, as in TargetWarp(0) or TargetWarp(0, 4)")
        object.__setattr__(self, "warps", tuple(sorted(set(warps))))

    @property
    def mask(self) -> int:
        """Bit w set: warp w records."""
        return sum(1 << warp for warp in self.warps)

    @property
    def spec(self) -> str:
        return "warps:" + "+".join(map(str, self.warps))

    def records(self, warp: int, lane: int) -> bool:
        return lane == 0 and warp in self.warps


_PLAIN = {strategy.spec: strategy for strategy in (Lane0Warp0(), Elected(), Elected(any_lane=True), AllThreads())}


def parse_strategy(spec: str) -> Strategy:
    """The strategy of a spec; raises UsageError that lists the known ones."""
    if spec in _PLAIN:
        return _PLAIN[spec]
    head, _, rest = spec.partition(":")
    if head == "warps" and rest and all(part.isdecimal() for part in rest.split("+")):
        return TargetWarp(*(int(part) for part in rest.split("+")))
    raise UsageError(f"strategy {spec!r}: expected block, warp, warp:any, lanes, or warps:N+M such as warps:0+4")
