"""The options of a session as one table, used by profile(), enable(), the command line, metadata and docs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Literal, SupportsIndex

from ..capture.blocks import BlockSelection
from ..capture.wire import MAX_SMS, SEGMENT_BYTES
from ..errors import UsageError
from ..marks.strategies import Strategy, strategy_of
from .recording import SURVIVE, Clock, Fill, Placement, Recording, Survive
from .selection.auto import Lines, Selection
from .subset import Subset

PERIOD = 1 << 10
"""Cycles between two samples by default."""
LEAST_PERIOD, MOST_PERIOD = 1 << 5, 1 << 31
"""Limits of the hardware."""
MOST_POOL = (MAX_SMS + 2) * SEGMENT_BYTES
"""Bytes: a ring of the largest size for each SM, a shared one, and room to move them."""


def _option(help: str, metavar: str = "", *, compiled: bool = False) -> Any:
    """A field of Options. metavar: the flag's, empty if the flag takes no value. compiled: kernels depend on it."""
    return field(default=None, metadata={"help": help, "metavar": metavar, "compiled": compiled})


@dataclass(frozen=True)
class Options:
    """Arguments of profile() or enable(); None for options that were not given."""

    strategy: Strategy | str | None = _option(
        "which threads record: elected (lane 0 of each warp), elected-any, lane0-warp0, all, warps:0,4", "STRATEGY",
        compiled=True,
    )  # fmt: skip
    records: int | Literal["auto"] | None = _option(
        "records per warp and launch; auto: what the kernel needs", "N", compiled=True
    )
    fill: Fill | None = _option("ring keeps the newest records, stop the oldest", "FILL", compiled=True)
    clock: Clock | None = _option("cycles, or globaltimer", "CLOCK", compiled=True)
    placement: Placement | None = _option(
        "fence keeps instructions in the marks' order; schedule (experimental) records the kernel's own code",
        "PLACEMENT", compiled=True,
    )  # fmt: skip
    survive: Survive | None = _option(
        f"keep records of a program that hangs or dies, see kscope watch: {', '.join(SURVIVE)}", "WHERE", compiled=True
    )
    block: BlockSelection | None = _option(
        "blocks that record, by linear number: 40, 0:100 (the first 100), 0:1000:10", "BLOCKS"
    )
    warp: SupportsIndex | Iterable[SupportsIndex] | None = _option("warps of a block that record: 0,4-7", "LIST")
    sm: SupportsIndex | Iterable[SupportsIndex] | None = _option("SMs that record: 0,4-7", "LIST")
    pool: int | None = _option(
        "GPU memory for records per device: 512MiB (default: 1/32 of the free memory, at most 1GiB)", "SIZE"
    )
    kernel: str | Sequence[str] | None = _option(
        "kernels to keep, by name ('attn_*') or hash; the others are removed at the end", "GLOB", compiled=True
    )
    auto: str | Sequence[str] | bool | None = _option("mark operations of these kinds", "LIST", compiled=True)
    mark: str | Sequence[str] | Mapping[str, str] | None = _option(
        "mark these lines of source as a region", "NAME=FILE:FIRST-LAST", compiled=True
    )
    stalls: bool | None = _option("also sample where warps wait and why; kscope stalls shows it")
    period: int | None = _option("cycles between two samples of an SM sub-partition, a power of two: 2^10", "CYCLES")
    launch_stacks: bool | None = _option("record the Python line of every launch")

    @staticmethod
    def of(arguments: Mapping[str, Any]) -> Options:
        """The options among a function's arguments."""
        return Options(**{option.name: arguments[option.name] for option in OPTIONS if option.name in arguments})

    def recording(self, base: Recording, kernels: tuple[str, ...] = ()) -> Recording:
        """The compile-time options given, over those of `base`.

        Args:
            base: values of options that were not given.
            kernels: patterns of kernel names, which limit auto= and mark=.

        Raises:
            UsageError: an option has an invalid value.
        """
        given = {one.name: getattr(self, one.name, None) for one in fields(Recording)}
        given["strategy"] = None if self.strategy is None else strategy_of(self.strategy)
        given["selection"] = Selection.of(self.auto, self.mark, kernels)
        return replace(base, **{name: value for name, value in given.items() if value is not None})

    def subset(self) -> Subset:
        """The blocks, warps and SMs that record. Raises UsageError."""
        return Subset.of(self.block, self.warp, self.sm)

    def sampling_period(self) -> int | None:
        """Cycles between two samples of stalls; None without. Raises UsageError."""
        if self.period is not None and not self.stalls:
            raise UsageError(f"period={self.period!r}: expected stalls=True beside it")
        return None if not self.stalls else PERIOD if self.period is None else checked_period(self.period)

    def pool_bytes(self) -> int | None:
        """Bytes of GPU memory to record into, per device; None for the default. Raises UsageError."""
        pool = self.pool
        if pool is not None and (not isinstance(pool, int) or isinstance(pool, bool) or pool <= 0):
            raise UsageError(f"pool={pool!r}: expected a number of bytes, such as 512 << 20")
        if pool is not None and pool > MOST_POOL:
            raise UsageError(f"pool={pool!r}: expected at most {MOST_POOL} bytes, the largest pool that a GPU can use")
        return pool


OPTIONS: tuple[Field[Any], ...] = fields(Options)
"""The table: each field has a name, a type and the metadata "help", "metavar" and "compiled"."""
COMPILED: tuple[str, ...] = tuple(option.name for option in OPTIONS if option.metadata["compiled"])
"""Names of the options for which kernels are compiled."""


def fits(period: int) -> bool:
    """True if the hardware can take a sample every `period` cycles."""
    return LEAST_PERIOD <= period <= MOST_PERIOD and not period & (period - 1)


def checked_period(period: object) -> int:
    """Check the number of cycles between hardware samples. Raises UsageError."""
    if not isinstance(period, int) or isinstance(period, bool) or not fits(period):
        raise UsageError(f"period={period!r}: expected a power of two from {LEAST_PERIOD} to 2^31 cycles, such as 1024")
    return period


def in_effect(recording: Recording, subset: Subset, **session: object) -> dict[str, Any]:
    """The values of all options in a session, ready for JSON; without those that are off.

    Args:
        recording: the options for which kernels are compiled.
        subset: the blocks, warps and SMs that record.
        session: the remaining options by name.
    """
    values: dict[str, Any] = {**vars(subset), **vars(recording), **session}
    values |= {"auto": recording.selection.kinds, "mark": recording.selection.lines}
    found = {option.name: _json(values[option.name]) for option in OPTIONS}
    return {name: value for name, value in found.items() if value not in (None, [])}


def _json(value: Any) -> Any:
    if isinstance(value, Strategy):
        return value.spec
    if isinstance(value, range):
        return [value.start, value.stop, value.step]
    if isinstance(value, tuple):
        return [str(one) if isinstance(one, Lines) else one for one in value]
    return value
