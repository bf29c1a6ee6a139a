"""What the text of one entry function depends on.

What lives here: values. What does not: any text (entry.py, claim.py, record.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import layout
from ..marks import ValueType
from ..recording import Recording


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

    def owner(self, spec: str | None) -> str:
        """The predicate of the lanes that record under this strategy."""
        return "ks_on" if len(self.specs) == 1 else f"ks_on{self.specs.index(spec or self.recording.strategy.spec)}"

    @property
    def owners(self) -> list[str]:
        """Predicates of the strategies, where the kernel has more than one."""
        return [self.owner(spec) for spec in self.specs] if len(self.specs) > 1 else []
