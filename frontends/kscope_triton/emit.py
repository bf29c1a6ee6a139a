"""Marks in Triton's IR: one volatile inline assembly operation that is a comment.

    tt.elementwise_inline_asm "//kscope enter load i32 - with $1" %k : i32 -> i32     (result unused)

What lives here: the operation's three shapes, which values may stand in it, and the device helpers, which are such
an operation with a result. What does not: what becomes of the comment in the PTX (kscope/lowering).

The result is a dummy: Triton cannot lower an asm without one. Gluon 3.9 has an operation without.
Before 3.9 the software pipeliner for Blackwell cannot predicate inline asm, but it can an `scf.if`; the
condition is always true, and LLVM knows.
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from typing import Any

import triton
from triton.language import core as tl

from kscope.errors import UnsupportedError, UsageError
from kscope.marks.grammar import NEVER, Mark, ValueType
from kscope.ptx import READINGS

_NEEDS_IF = tuple(int(part) for part in triton.__version__.split(".")[:2]) < (3, 9)
_SCALARS: dict[str, tuple[ValueType, str]] = {"int32": ("i32", "r"), "uint32": ("u32", "r"), "fp32": ("f32", "f")}


KINDS = {"i32": tl.int32, "u32": tl.uint32, "i64": tl.int64}
"""What a device helper gives."""


def for_nvidia(semantic: Any) -> bool:
    """Whether the kernel that is traced is compiled for an NVIDIA GPU; others have no PTX to lower."""
    return getattr(semantic.builder.options, "backend_name", None) == "cuda"


def place(mark: Mark, semantic: Any, value: Any, when: Any = None) -> Mark:
    """Emit the mark at the builder's position; returns it as it was spelled. Raises UsageError."""
    builder = semantic.builder
    value = _unwrap(value)
    operands: list[Any] = []
    constraint = ""
    if mark.act == "pin":
        return _pin(mark, builder, value)
    if isinstance(value, (bool, int, float)):
        mark = immediate(mark, value)
    elif value is not None:
        kind, constraint = scalar(mark, value)
        mark, operands = replace(mark, type=kind, operand="$1"), [value.handle]
    if when is False:
        mark = replace(mark, when=NEVER)
    elif when is not None:
        operands.append(_predicate(mark, semantic, when).handle)
        constraint = f"{constraint},r" if constraint else "r"
        mark = replace(mark, when=f"${len(operands)}")
    if hasattr(builder, "create_threadwise_inline_asm"):
        text = mark.comment().replace("$1", "$0").replace("$2", "$1")
        builder.create_threadwise_inline_asm(text, constraint, operands, [], False)
    elif _needs_if(builder):
        _inside_if(builder, lambda: _asm(builder, mark, constraint, operands))
    else:
        _asm(builder, mark, constraint, operands)
    return mark


def read(name: str, semantic: Any) -> Any:
    """A device helper's value, a scalar. Raises UnsupportedError where the kernel is not for an NVIDIA GPU."""
    if not for_nvidia(semantic):
        raise UnsupportedError(f"kscope.{name}(): this kernel is compiled for a GPU that is not NVIDIA's")
    reading, builder = READINGS[name], semantic.builder
    kind = KINDS[reading.type]
    word = kind.to_ir(builder)

    def emit() -> Any:
        text, constraint = reading.text("$0"), "=l" if reading.type == "i64" else "=r"
        return builder.create_inline_asm(text, constraint, [], [word], not reading.volatile, 1).get_result(0)

    if not reading.volatile or not _needs_if(builder):
        return tl.tensor(emit(), kind)
    none = builder.get_int64(0) if reading.type == "i64" else builder.get_int32(0)
    return tl.tensor(_inside_if(builder, emit, word, none), kind)


def _needs_if(builder: Any) -> bool:
    return _NEEDS_IF and _arch(builder) >= 100 and not type(builder).__name__.startswith("Gluon")


def _asm(builder: Any, mark: Mark, constraint: str, operands: list[Any]) -> None:
    constraints = f"=r,{constraint}" if constraint else "=r"
    builder.create_inline_asm(mark.comment(), constraints, operands, [builder.get_int32_ty()], False, 1)


def _inside_if(builder: Any, emit: Any, result: Any = None, otherwise: Any = None) -> Any:
    """What emit() gives, of the type `result` where that is not None; `otherwise` is never used."""
    always = builder.create_icmpSGE(builder.create_get_program_id(0), builder.get_int32(0))
    chosen = builder.create_if_op([] if result is None else [result], always, result is not None)
    after = builder.get_insertion_point()
    builder.set_insertion_point_to_start(chosen.get_then_block())
    found = emit()
    if result is not None:
        builder.create_yield_op([found])
        builder.set_insertion_point_to_start(chosen.get_else_block())
        builder.create_yield_op([otherwise])
    builder.restore_insertion_point(after)
    return None if result is None else chosen.get_result(0)


def _arch(builder: Any) -> int:
    found = re.search(r"\d+", builder.options.arch or "")
    return int(found[0]) if found else 0


def _is_tensor(value: Any) -> bool:
    return isinstance(value, tl.tensor)


def _unwrap(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def immediate(mark: Mark, value: bool | int | float) -> Mark:
    """A value known at compile time: its type is the narrowest that holds it, its spelling the bits."""
    if isinstance(value, bool):
        raise UsageError(_refusal(mark, f"the bool {value}", f"value={int(value)}"))
    if isinstance(value, float):
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        return replace(mark, type="f32", operand=f"0x{bits:08X}")
    if not -(1 << 31) <= value < 1 << 32:
        raise UsageError(_refusal(mark, f"{value}, which needs more than 32 bits", "value & 0xFFFFFFFF"))
    kind: ValueType = "i32" if value < 1 << 31 else "u32"
    return replace(mark, type=kind, operand=f"0x{value & 0xFFFFFFFF:08X}")


def scalar(mark: Mark, value: Any) -> tuple[ValueType, str]:
    """Type and asm constraint of a run-time value."""
    if not _is_tensor(value):
        raise UsageError(_refusal(mark, f"a {type(value).__name__}", "one number"))
    if value.type.is_block():
        raise UsageError(_refusal(mark, f"a tensor of {value.type}", "one element, or a reduction such as tl.max(x)"))
    if value.dtype.name not in _SCALARS:
        cure = "value=x.to(tl.float32)" if value.dtype.is_floating() else "value=x.to(tl.int32)"
        raise UsageError(_refusal(mark, f"a scalar of {value.dtype}", cure))
    return _SCALARS[value.dtype.name]


def checked(mark: Mark, when: Any) -> Any:
    """A predicate of the running kernel's. Raises UsageError for what is no bool and no integer."""
    if not _is_tensor(when) or when.type.is_block() or not when.dtype.is_int():
        given = f"a tensor of {when.type}" if _is_tensor(when) else f"a {type(when).__name__}"
        raise UsageError(
            f"when= of kscope {mark.act} {mark.said} is {given}: expected one bool or integer, such as k % 8 == 0"
        )
    return when


def _predicate(mark: Mark, semantic: Any, when: Any) -> Any:
    """A predicate as an int32 that is not 0 where it holds."""
    when = checked(mark, when)
    if when.dtype.primitive_bitwidth not in (1, 32):
        when = semantic.not_equal(when, semantic.to_tensor(0))
    return when if when.dtype.primitive_bitwidth == 32 else semantic.cast(when, tl.int32)


def _refusal(mark: Mark, given: str, cure: str) -> str:
    return (
        f"value= of kscope {mark.act} {mark.said} is {given}: a record holds 32 bits, "
        f"an int32, uint32 or float32 scalar; pass {cure}"
    )


def _pin(mark: Mark, builder: Any, value: Any) -> Mark:
    """One asm per 32 bits that a thread holds of the value."""
    if not _is_tensor(value) or value.dtype.is_ptr() or value.dtype.primitive_bitwidth not in (8, 16, 32):
        given = value.dtype if _is_tensor(value) else type(value).__name__
        raise UsageError(f"region({mark.said}).pin({given}): expected a tensor or scalar of 8, 16 or 32-bit elements")
    width = value.dtype.primitive_bitwidth
    word = tl.dtype(f"int{width}")
    result = value.type.with_element_ty(word) if value.type.is_block() else word
    mark = replace(mark, operand="$1")
    constraints = "=r,f" if value.dtype.name == "fp32" else "=r,r"
    builder.create_inline_asm(mark.comment(), constraints, [value.handle], [result.to_ir(builder)], False, 32 // width)
    return mark
