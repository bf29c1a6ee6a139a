"""Parameters of the text of one kernel."""

from __future__ import annotations

from dataclasses import dataclass

from ..capture import layout, wire
from ..instrument.recording import Recording
from ..marks.names import ValueType
from ..marks.strategies import ANY_LANE
from ..marks.wide_values import is_wide


@dataclass(frozen=True)
class Slot:
    """A region's registers: one per name and depth of its recursion.

    Attributes:
        index: number of the registers.
        name: the region's name.
        type: type of its value; None without one.
        conditional: one of its marks has a predicate.
    """

    index: int
    name: str
    type: ValueType | None
    conditional: bool = False

    @property
    def wide(self) -> bool:
        """True if its value has 64 bits."""
        return is_wide(self.type)

    @property
    def kind(self) -> layout.Kind:
        return layout.Kind.SPAN if self.type is None else layout.Kind.SPAN_VALUE


@dataclass(frozen=True)
class Kernel:
    """Parameters of the text of one kernel.

    Attributes:
        recording: the options.
        specs: the strategies that its marks use, sorted; the claim is for their union.
        log2_records: log2 of its slabs' capacity.
        id: (low, high) words of LAUNCH["kernel"], as PTX operands.
        arch: the compute capability, such as 90.
        pins: it needs ks_never, a predicate that never holds.
        flat: its blocks certainly have one dimension.
        size_offset: offset in the control block of the word with its slabs' size, as a PTX operand; None: it is
            2^log2_records in every launch.
        anchored: some marks are in loops, so long warps have anchors among their records (anchor.py).
    """

    recording: Recording
    specs: tuple[str, ...]
    log2_records: int
    id: tuple[str, str]
    arch: int
    pins: bool = False
    flat: bool = False
    size_offset: str | None = None
    anchored: bool = False

    @property
    def sized(self) -> bool:
        """True if each warp reads the size of its slab, into ks_last and ks_units."""
        return self.size_offset is not None

    @property
    def last(self) -> str:
        """The operand of the last place in a slab's ring, whose bits are all 1."""
        return "ks_last" if self.sized else str((1 << self.log2_records) - 1)

    @property
    def units(self) -> str:
        """The operand of a slab's units."""
        return "ks_units" if self.sized else str(wire.slab_units(self.log2_records))

    @property
    def late(self) -> bool:
        """True if lanes may claim after the entry, because some mark is recorded by the first lane to get there."""
        return ANY_LANE in self.specs

    def elects(self, spec: str | None) -> bool:
        """True if the first lane to get there records marks of this strategy."""
        return (spec or self.recording.strategy.spec) == ANY_LANE

    def owner(self, spec: str | None) -> str:
        """The predicate of the lanes that record under this strategy; with an elected lane, those with a slab."""
        if len(self.specs) == 1 or self.elects(spec):
            return "ks_on"
        return f"ks_on{self.specs.index(spec or self.recording.strategy.spec)}"

    @property
    def lane_0(self) -> str:
        """The predicate of lanes that have a slab from the entry, in a kernel that is late: mostly lane 0."""
        return "ks_own"

    @property
    def owners(self) -> list[str]:
        """Predicates of the lanes that claim at the entry, by strategy; empty if the kernel has one strategy."""
        return [f"ks_on{number}" for number in range(len(self.specs))] if len(self.specs) > 1 else []
