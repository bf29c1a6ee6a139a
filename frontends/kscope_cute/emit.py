"""Marks in CuTe's IR: one volatile inline assembly operation that is two comments.

    llvm.inline_asm has_side_effects "//at 37 a.py\n\t//kscope enter load i32 - with $0", "r,~{memory}" %k : (i32) -> ()

What lives here: the operation, which values may stand in it, the word by which caches tell recordings apart, and the
device helpers, which are such an operation with a result. What does not: what becomes of the comments in the PTX
(kscope/lowering).
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

from cutlass._mlir import ir
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import Boolean, Float32, Int32, Int64, Integer, Uint32

from kscope.errors import UsageError
from kscope.marks.grammar import NEVER, Mark, ValueType
from kscope.ptx import READINGS

from . import places

TAG = "kscope_tag"
"""Attribute of a gpu.module with marks: the recording's tag. CuTe's caches are keyed by the traced IR."""
_SCALARS: dict[Any, tuple[ValueType, str]] = {Int32: ("i32", "r"), Uint32: ("u32", "r"), Float32: ("f32", "f")}

_KINDS: dict[str, Any] = {"i32": Int32, "u32": Uint32, "i64": Int64}


def tracing() -> bool:
    """Whether CuTe DSL traces a function in this thread now."""
    try:
        return ir.InsertionPoint.current is not None
    except ValueError:  # MLIR's word for: there is none
        return False


def place(mark: Mark, value: Any, tag: str, when: Any = None) -> Mark | None:
    """Emit the mark where the kernel is traced now; None on the host's side of a @cute.jit function, where nothing
    runs that could be recorded. Raises UsageError for a value that is no 32-bit scalar."""
    module = _gpu_module()
    if module is None:
        return None
    operands: list[Any] = []
    constraint = ""
    if isinstance(value, (bool, int, float)):
        mark = immediate(mark, value)
    elif value is not None:
        kind, constraint = scalar(mark, value)
        mark, operands = replace(mark, type=kind, operand="$0"), [value.ir_value()]
        if mark.act == "pin":
            mark = replace(mark, type=None)
    if when is False:
        mark = replace(mark, when=NEVER)
    elif when is not None:
        mark = replace(mark, when=f"${len(operands)}")
        operands.append(_predicate(mark, when))
        constraint = f"{constraint},r" if constraint else "r"
    module.attributes[TAG] = ir.StringAttr.get(tag)
    llvm.inline_asm(
        None,
        operands,
        f"{places.comment()}\n\t{mark.comment()}",
        f"{constraint},~{{memory}}" if constraint else "~{memory}",
        has_side_effects=True,
        is_align_stack=False,
        asm_dialect=llvm.AsmDialect.AD_ATT,
    )
    return mark


def read(name: str) -> Any:
    """A device helper's value. Raises UsageError on the host's side of a @cute.jit function."""
    if _gpu_module() is None:
        raise UsageError(f"kscope.{name}() is a word of kernels: this is the host's side of a @cute.jit function")
    reading = READINGS[name]
    kind = _KINDS[reading.type]
    result = llvm.inline_asm(
        kind.mlir_type,
        [],
        reading.text("$0"),
        ("=l" if reading.type == "i64" else "=r") + (",~{memory}" if reading.volatile else ""),
        has_side_effects=reading.volatile,
        is_align_stack=False,
        asm_dialect=llvm.AsmDialect.AD_ATT,
    )
    return kind(result)


def _gpu_module() -> Any:
    """The gpu.module around the insertion point, or None on the host's side."""
    owner: Any = ir.InsertionPoint.current.block.owner
    while owner is not None:
        owner = getattr(owner, "operation", owner)
        if owner.name == "gpu.module":
            return owner
        owner = owner.parent
    return None


def immediate(mark: Mark, value: bool | int | float) -> Mark:
    """A value known when the kernel is traced: its type is the narrowest that holds it, its spelling the bits."""
    if isinstance(value, bool):
        raise UsageError(_refusal(mark, f"the bool {value}", f"value={int(value)}"))
    if mark.act == "pin":
        raise UsageError(f"region({mark.said}).pin({value}): expected a value that is computed at run time")
    if isinstance(value, float):
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        return replace(mark, type="f32", operand=f"0x{bits:08X}")
    if not -(1 << 31) <= value < 1 << 32:
        raise UsageError(_refusal(mark, f"{value}, which needs more than 32 bits", "value & 0xFFFFFFFF"))
    kind: ValueType = "i32" if value < 1 << 31 else "u32"
    return replace(mark, type=kind, operand=f"0x{value & 0xFFFFFFFF:08X}")


def scalar(mark: Mark, value: Any) -> tuple[ValueType, str]:
    """Type and asm constraint of a run-time value."""
    if type(value) not in _SCALARS:
        wider = "cutlass.Float32(x)" if "Float" in type(value).__name__ else "cutlass.Int32(x)"
        raise UsageError(_refusal(mark, f"a {type(value).__name__}", f"value={wider}"))
    return _SCALARS[type(value)]


def _predicate(mark: Mark, when: Any) -> Any:
    """A predicate as a 32-bit word that is not 0 where it holds. Raises UsageError."""
    if not isinstance(when, (Boolean, Integer)):
        raise UsageError(
            f"when= of kscope {mark.act} {mark.said} is a {type(when).__name__}: expected a Boolean or an integer, "
            "such as k % 8 == 0"
        )
    return Int32(Boolean(when)).ir_value()


def _refusal(mark: Mark, given: str, cure: str) -> str:
    return (
        f"value= of kscope {mark.act} {mark.said} is {given}: a record holds 32 bits, "
        f"an Int32, Uint32 or Float32; pass {cure}"
    )
