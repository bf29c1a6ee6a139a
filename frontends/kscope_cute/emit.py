"""Marks in CuTe's IR: one volatile inline assembly operation whose text is two comments, the source line and the mark.

llvm.inline_asm has_side_effects "//at 37 a.py\n\t//kscope enter load i32 - with $0", "r,~{memory}" %k : (i32) -> ()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cutlass._mlir import ir
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import Boolean, Float32, Float64, Int32, Int64, Integer, Uint32, Uint64

from kscope.errors import UsageError
from kscope.marks.constants import with_constant
from kscope.marks.grammar import NEVER, Mark
from kscope.marks.names import ValueType
from kscope.marks.refusals import outside_kernel, predicate_refused, value_refused
from kscope.marks.wide_values import is_wide
from kscope.ptx import READINGS

from .source_comments import source_comment

TAG = "kscope_tag"
"""Attribute of a gpu.module with marks: Recording.tag(), so that it is part of CuTe's cache keys."""
_SCALARS: dict[Any, tuple[ValueType, str]] = {
    Int32: ("i32", "r"), Uint32: ("u32", "r"), Float32: ("f32", "f"),
    Int64: ("i64", "l"), Uint64: ("u64", "l"), Float64: ("f64", "d"),
}  # fmt: skip

_UNKNOWN = "?"
_TYPES: dict[str, Any] = {"i32": Int32, "u32": Uint32, "i64": Int64}


def tracing() -> bool:
    """True if CuTe DSL is tracing a function on this thread."""
    try:
        return ir.InsertionPoint.current is not None
    except ValueError:  # raised by MLIR without an insertion point
        return False


def emit_mark(mark: Mark, value: Any, tag: str, when: Any = None) -> Mark | None:
    """Emit a mark at the insertion point of the kernel being traced.

    Args:
        mark: the mark, without its operands.
        value: a constant or a CuTe scalar to record, or None.
        tag: Recording.tag() of the options that the kernel is compiled for.
        when: a CuTe scalar predicate; None is always, False is never.

    Returns:
        The emitted mark; None in the host code of a @cute.jit function, where nothing is recorded.

    Raises:
        UsageError: the value or the predicate cannot be recorded, or the name contains a run-time value.
    """
    module = _gpu_module()
    if module is None:
        return None
    if _UNKNOWN in mark.name:
        raise UsageError(
            f"kscope {mark.noun} {mark.display_name}: the name contains {_UNKNOWN!r}, which CuTe DSL prints for a "
            "value that is known only when the kernel runs; pass it as value="
        )
    operands: list[Any] = []
    constraint = ""
    if (constant := with_constant(mark, value)) is not None:
        if mark.act == "pin":
            raise UsageError(f"region({mark.display_name}).pin({value}): expected a value computed at run time")
        mark = constant
    elif value is not None:
        kind, constraint = _scalar(mark, value)
        mark, operands = replace(mark, type=kind, operand="$0"), [value.ir_value()]
        if mark.act == "pin" and not is_wide(kind):
            mark = replace(mark, type=None)
    if when is False:
        mark = replace(mark, when=NEVER)
    elif when is not None:
        mark = replace(mark, when=f"${len(operands)}")
        operands.append(_predicate(mark, when))
        constraint = f"{constraint},r" if constraint else "r"
    module.attributes[TAG] = ir.StringAttr.get(tag)
    constraints = f"{constraint},~{{memory}}" if constraint else "~{memory}"
    assembly(f"{source_comment()}\n\t{mark.comment()}", constraints, operands)
    return mark


def read(name: str) -> Any:
    """A device helper's scalar. Raises UsageError in the host code of a @cute.jit function."""
    if _gpu_module() is None:
        raise outside_kernel(f"kscope.{name}")
    reading = READINGS[name]
    kind = _TYPES[reading.type]
    constraints = ("=l" if reading.type == "i64" else "=r") + (",~{memory}" if reading.volatile else "")
    return kind(assembly(reading.text("$0"), constraints, result=kind.mlir_type, volatile=reading.volatile))


def assembly(
    text: str, constraints: str = "", operands: Sequence[Any] = (), result: Any = None, volatile: bool = True
) -> Any:
    """Inline assembly at the insertion point. result: the type of its value, None for none. Returns the value."""
    style = llvm.AsmDialect.AD_ATT
    return llvm.inline_asm(
        result, list(operands), text, constraints, has_side_effects=volatile, is_align_stack=False, asm_dialect=style
    )


def _gpu_module() -> Any:
    """The gpu.module around the insertion point; None in host code."""
    owner: Any = ir.InsertionPoint.current.block.owner
    while owner is not None:
        owner = getattr(owner, "operation", owner)
        if owner.name == "gpu.module":
            return owner
        owner = owner.parent
    return None


def _scalar(mark: Mark, value: Any) -> tuple[ValueType, str]:
    """Type and asm constraint of a run-time value. Raises UsageError unless it has 32 or 64 bits."""
    if type(value) not in _SCALARS:
        cast = "cutlass.Float32(x)" if "Float" in type(value).__name__ else "cutlass.Int32(x)"
        raise value_refused(mark, f"a {type(value).__name__}", f"value={cast}")
    return _SCALARS[type(value)]


def _predicate(mark: Mark, when: Any) -> Any:
    """A predicate as an Int32, nonzero if it holds. Raises UsageError unless it is a Boolean or an integer."""
    if not isinstance(when, (Boolean, Integer)):
        raise predicate_refused(mark, f"a {type(when).__name__}")
    return Int32(Boolean(when)).ir_value()
