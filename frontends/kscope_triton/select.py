"""Marks that a selection adds to a kernel between Triton's stages, and marks that the compiler dropped.

source -> ttir -> ttgir -> llir -> ptx
              |         |
              |         marks go in here: what is selected, and what was dropped before; partitions of warps are read
              the regions of the source, and the names of partitions, are read here
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kscope.capture.model import Problem, RoleMeta
from kscope.errors import UnsupportedError
from kscope.instrument.selection.auto import Selection
from kscope.lowering.lowered import SourceInfo
from kscope.marks.grammar import PREFIX
from kscope.marks.names import format_name
from kscope.marks.operations import PIPELINE

from . import inserting, partitions
from .operations import mark_in
from .partitions import Partitions
from .selected_operations import Span
from .version import VERSION

Stage = Callable[[Any, dict[str, Any]], Any]
_NO_MARKS_IN_LOOPS = VERSION < (3, 7)
"""Triton 3.6 for Blackwell: automatic warp specialization fails if its loop contains a mark."""
_SPECIALIZED, _FLATTENED = "tt.warp_specialize", "tt.flatten"
_FLATTEN_REMEDY = (
    "flatten=True merges a loop with the loop inside it: record this region with flatten=False, or mark statements"
    " in the inner loop"
)


class Marking:
    """One kernel between its stages. placed: names that its source marks, filled during tracing."""

    def __init__(self, selection: Selection, placed: set[str], capability: int) -> None:
        self._selection, self._placed, self._capability = selection, placed, capability
        self._source = ""
        self._flattened = False
        self.spans: tuple[Span, ...] = ()
        """Places where selected regions were marked."""
        self.problems: list[Problem] = []
        self._partitions: list[Partitions] = []
        self._roles: tuple[RoleMeta, ...] = ()

    def ttgir(self, stage: Stage) -> Stage:
        """Triton's stage, which may drop marks of the source."""

        def run(module: Any, metadata: dict[str, Any]) -> Any:
            if not self._placed and not self._selection:
                return stage(module, metadata)
            text = module.str()
            with suppress(UnsupportedError):
                self._partitions = partitions.function_names(text)
            self._source = text if _SPECIALIZED in text else ""
            self._flattened = _FLATTENED in text
            try:
                return stage(module, metadata)
            except RuntimeError:
                if not (self._source and _NO_MARKS_IN_LOOPS and self._capability >= 100):
                    raise
                bare = re.sub(rf"^.*{PREFIX}.*$", "", text, flags=re.M)
                return stage(inserting.parsed(bare, module.context), metadata)

        return run

    def llir(self, stage: Stage) -> Stage:
        """Triton's stage, on a module with the missing marks."""

        def run(module: Any, metadata: dict[str, Any]) -> Any:
            if self._source:
                module = self._restored(module)
            if self._selection:
                done = inserting.insert(module, self._selection)
                module, self.spans = done.module, done.spans
            if self._placed or self.spans or PIPELINE in self._selection.kinds:
                self._roles = partitions.roles(module, self._partitions)
            return stage(module, metadata)

        return run

    @property
    def source_info(self) -> SourceInfo:
        """Places of the selected regions, because the line information of inlined code is that of its callee; and
        partitions of warps."""
        places: dict[str, str] = {}
        for span in self.spans:
            if span.place is not None:
                places.setdefault(span.mark.name, f"{span.place.file}:{span.place.line}")
        return SourceInfo(places=places, taken_apart=_FLATTEN_REMEDY if self._flattened else "", roles=self._roles)

    def _restored(self, module: Any) -> Any:
        text = module.str()
        left = {mark.name for mark in map(mark_in, text.splitlines()) if mark is not None}
        if not (dropped := self._placed - left):
            return module
        try:
            known = inserting.regions(self._source)
            done = inserting.restore(module, [known[name] for name in sorted(dropped & known.keys())])
        except UnsupportedError as error:
            self.problems.append(Problem("removed", str(error)))
            return module
        if names := sorted({span.mark.name for span in done.spans}):
            dropped_names = ", ".join(map(format_name, names))
            text = (
                f"the Triton compiler removed every mark of {dropped_names}; kscope restored them around what became"
                " of the same operations, which may be in several warp groups"
            )
            self.problems.append(Problem("moved", text, len(names)))
        return done.module
