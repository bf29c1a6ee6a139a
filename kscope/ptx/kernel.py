"""What the text of one entry function depends on.

What lives here: values. What does not: any text (entry.py, claim.py, record.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..capture import layout
from ..instrument.recording import Recording
from ..marks.grammar import ValueType
from ..marks.strategies import ANY_LANE


@dataclass(frozen=True)
class Slot:
    """One start register: a region's name at one depth of its own recursion. asked: some mark of it has a predicate."""

    index: int
    name: str
    type: ValueType | None
    asked: bool = False

    @property
    def kind(self) -> layout.Kind:
        return layout.Kind.SPAN if self.type is None else layout.Kind.SPAN_VALUE


@dataclass(frozen=True)
class Kernel:
    """What the text of one entry function depends on.

    specs: the strategies that its marks use, sorted; the claim is for their union.
    id: (low, high) words of HEADER["kernel"], as PTX operands.
    """

    recording: Recording
    specs: tuple[str, ...]
    log2_records: int
    id: tuple[str, str]
    arch: int
    pins: bool = False

    @property
    def mask(self) -> int:
        return (1 << self.log2_records) - 1

    @property
    def late(self) -> bool:
        """Whether lanes may claim after the entry: some mark is recorded by the first lane that gets there."""
        return ANY_LANE in self.specs

    def elects(self, spec: str | None) -> bool:
        """Whether a mark of this strategy is recorded by the first lane that gets there."""
        return (spec or self.recording.strategy.spec) == ANY_LANE

    def owner(self, spec: str | None) -> str:
        """The predicate of the lanes that record under this strategy: for one that elects those with a slab."""
        if len(self.specs) == 1 or self.elects(spec):
            return "ks_on"
        return f"ks_on{self.specs.index(spec or self.recording.strategy.spec)}"

    @property
    def owners(self) -> list[str]:
        """Predicates of the lanes that claim at the entry, by strategy, where the kernel has more than one."""
        return [f"ks_on{number}" for number in range(len(self.specs))] if len(self.specs) > 1 else []
