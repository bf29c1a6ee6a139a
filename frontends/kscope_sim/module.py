"""A kernel as it was prepared: what a compiled module carries of itself.

What lives here: the module's identity, and the names that its marks were found to carry. What does
not: the kernel's run. A GPU frontend knows the names before the kernel runs; here they are met on the way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from kscope import layout
from kscope.capture import KernelMeta, ModuleMeta, RegionMeta
from kscope.errors import UsageError
from kscope.marks import ValueType
from kscope.recording import AUTO_RECORDS, Recording, log2_records

_OURS = (str(Path(layout.__file__).parent), str(Path(__file__).parent))


class Module:
    """A kernel function together with the Recording that it was prepared for."""

    def __init__(self, name: str, kernel: Callable[..., object], recording: Recording) -> None:
        self.name, self.recording = name, recording
        records = AUTO_RECORDS if recording.records == "auto" else recording.records
        self.log2_records = log2_records(records)
        code = getattr(kernel, "__code__", None)
        text = f"{getattr(kernel, '__module__', '')} {name} {recording.tag()} {self.log2_records}".encode()
        self.id = layout.kernel_hash(text + (code.co_code if code is not None else b""))
        self._regions: dict[str, RegionMeta] = {}

    @property
    def flags(self) -> int:
        """HEADER["place"]'s flags, but for FLAG_LANES, which depends on the lane's strategy."""
        timer = layout.FLAG_GLOBALTIMER if self.recording.clock == "globaltimer" else 0
        return timer | (layout.FLAG_STOP if self.recording.fill == "stop" else 0)

    def note(self, name: str, kind: ValueType | None) -> None:
        """A mark was met. Raises UsageError where a name's values have two types."""
        known = self._regions.get(name)
        if known is None:
            self._regions[name] = RegionMeta(name, kind, _caller())
        elif known.type is None and kind is not None:
            self._regions[name] = RegionMeta(name, kind, known.where)
        elif kind is not None and kind != known.type:
            raise UsageError(
                f"kernel {self.name!r}: {name!r} has values of type {known.type} and {kind}; "
                "give one of them another name, or convert it"
            )

    def meta(self) -> ModuleMeta:
        """The module's metadata, with the names that were met so far."""
        return ModuleMeta(
            frontend="sim",
            kernels=(KernelMeta(self.name, self.id, self.log2_records),),
            regions=tuple(sorted(self._regions.values(), key=lambda region: region.name)),
            clock=self.recording.clock,
            fill=self.recording.fill,
            strategy=self.recording.strategy.spec,
        )


def _caller() -> str | None:
    """file:line of the user's code that placed the mark."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
