"""Inserts marks into Triton's final IR: after pipelining and warp specialization, before LLVM.

    %kscope0 = tt.elementwise_inline_asm "//kscope enter load - - with" {...} -> i32 loc("attn.py":41:9)

The module is printed, marks are put between its lines, and Triton parses it again, as it does for an IR that a user
overrides.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triton._C.libtriton import ir

from kscope.instrument.selection.auto import Selection
from kscope.marks.grammar import NEVER, Mark

from . import irtext, selected_operations
from .irtext import Place
from .selected_operations import Region, Span


@dataclass(frozen=True)
class Inserted:
    """A module with marks, and their spans; the same module object if there are none."""

    module: Any
    spans: tuple[Span, ...]


def insert(module: Any, selection: Selection) -> Inserted:
    """Mark the selection in the module's kernels. Raises UnsupportedError for IR that cannot be read."""
    text = module.str()
    found: list[Span] = []
    for function in irtext.functions(text):
        matching = selection.of_kernel(function.name)
        if function.public and matching:
            found += selected_operations.line_spans(function.operation, matching) + selected_operations.kind_spans(
                function.operation, matching
            )
    return _with(module, text, found)


def restore(module: Any, regions: Iterable[Region]) -> Inserted:
    """Mark regions of the source that the compiler dropped, around the operations that remain; without those with a
    predicate, which was dropped with them.
    """
    text = module.str()
    regions = [region for region in regions if region.mark.when in (None, NEVER)]
    found: list[Span] = []
    for function in irtext.functions(text):
        for region in regions:
            if function.public:
                found += selected_operations.runs(
                    function.operation, _without_value(region.mark), "source", region.belongs
                )
    return _with(module, text, found)


def regions(text: str) -> dict[str, Region]:
    """The source's regions in a printed module, by name."""
    return selected_operations.regions(function.operation for function in irtext.functions(text))


def _without_value(mark: Mark) -> Mark:
    """The mark without a value that only the dropped operation had; constants stay."""
    known = mark.operand is not None and mark.operand.startswith("0x")
    return mark if known else replace(mark, type=None, operand=None)


def _with(module: Any, text: str, found: Sequence[Span]) -> Inserted:
    if not found:
        return Inserted(module, ())
    lines = text.splitlines()
    before: dict[int, list[str]] = {}
    # outer spans are entered first and left last
    ordered = sorted(enumerate(found), key=lambda one: (one[1].before, -one[1].after, one[0]))
    for number, (_, span) in enumerate(reversed(ordered)):
        leave = replace(span.mark, act="exit", type=None, operand=None, when=None)
        before.setdefault(span.after, []).append(_operation(f"x{number}", leave, span.place))
    for number, (_, span) in enumerate(ordered):
        before.setdefault(span.before, []).append(_operation(f"e{number}", span.mark, span.place))
    out: list[str] = []
    for number, line in enumerate(lines):
        out += before.get(number, ())
        out.append(line)
    return Inserted(parsed("\n".join(out), module.context), tuple(span for _, span in ordered))


def _operation(name: str, mark: Mark, place: Place | None) -> str:
    """One mark as an operation, whose result is unused: Triton cannot lower inline assembly without one."""
    where = "unknown" if place is None else f"{_quoted(place.file)}:{place.line}:{max(place.column, 1)}"
    attributes = '{constraints = "=r", packed_element = 1 : i32, pure = false}'
    return f'%kscope_{name} = tt.elementwise_inline_asm "{mark.comment()}" {attributes} -> i32 loc({where})'


def _quoted(text: str) -> str:
    plain = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text.encode())
    return f'"{"".join(plain)}"'


def parsed(text: str, context: Any) -> Any:
    """Parse a module in the compiler's context."""
    with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
        path = Path(folder, "marked.ttgir")
        path.write_bytes(text.encode())
        module: Any = ir.parse_mlir_module(str(path), context)
    module.context = context
    return module
