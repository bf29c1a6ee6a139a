"""Marks in Triton's IR: one volatile inline assembly operation whose text is a comment.

tt.elementwise_inline_asm "//kscope enter load i32 - with $1" %k : i32 -> i32     (result unused)
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from triton.language import core as tl

from kscope.errors import UnsupportedError, UsageError
from kscope.marks.constants import with_constant
from kscope.marks.grammar import NEVER, Mark
from kscope.marks.names import ValueType
from kscope.marks.refusals import predicate_refused, value_refused
from kscope.ptx import READINGS

from .version import VERSION

_NEEDS_IF = VERSION < (3, 9)
_SCALARS: dict[str, tuple[ValueType, str]] = {
    "int32": ("i32", "r"), "uint32": ("u32", "r"), "fp32": ("f32", "f"),
    "int64": ("i64", "l"), "uint64": ("u64", "l"), "fp64": ("f64", "d"),
}  # fmt: skip

TYPES = {"i32": tl.int32, "u32": tl.uint32, "i64": tl.int64}
"""Result types of the device helpers."""


def for_nvidia(semantic: Any) -> bool:
    """Return True if the traced kernel targets an NVIDIA GPU; other targets have no PTX to lower."""
    return getattr(semantic.builder.options, "backend_name", None) == "cuda"


def place(mark: Mark, semantic: Any, value: Any, when: Any = None) -> Mark:
    """Emit a mark at the builder's insertion point.

    Triton cannot lower inline assembly without a result, so the operation has an unused one; Gluon 3.9 has an operation
    without results. Before 3.9, the software pipeliner for Blackwell cannot predicate inline assembly, but it can
    predicate an `scf.if`. There the mark goes into an `scf.if` whose condition is always true, which LLVM folds.

    Args:
        mark: the mark, without its operands.
        semantic: Triton's semantic object of the kernel being traced.
        value: a constant or a Triton scalar to record; None for none.
        when: a Triton scalar predicate; None means always, False never.

    Returns:
        The mark as it was emitted.

    Raises:
        UsageError: the value or the predicate cannot be recorded.
    """
    builder = semantic.builder
    value = _unwrap(value)
    operands: list[Any] = []
    constraint = ""
    if mark.act == "pin":
        return _pin(mark, builder, value)
    if (constant := with_constant(mark, value)) is not None:
        mark = constant
    elif value is not None:
        kind, constraint = scalar(mark, value)
        address = _is_tensor(value) and value.dtype.is_ptr()
        number = semantic.cast(value, tl.uint64) if address else value
        mark, operands = replace(mark, type=kind, operand="$1"), [number.handle]
    if when is False:
        mark = replace(mark, when=NEVER)
    elif when is not None:
        operands.append(_predicate_i32(mark, semantic, when).handle)
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
    """The scalar that a device helper returns. Raises UnsupportedError if the kernel does not target an NVIDIA GPU."""
    if not for_nvidia(semantic):
        raise UnsupportedError(f"kscope.{name}(): this kernel is compiled for a GPU that is not NVIDIA's")
    reading, builder = READINGS[name], semantic.builder
    kind = TYPES[reading.type]
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
    """Call emit() inside an `scf.if` that is always taken and return its value.

    result: the IR type of that value, None for none. otherwise: the value yielded by the branch never taken.
    """
    always = builder.create_icmpSGE(builder.create_get_program_id(0), builder.get_int32(0))
    branch = builder.create_if_op([] if result is None else [result], always, result is not None)
    after = builder.get_insertion_point()
    builder.set_insertion_point_to_start(branch.get_then_block())
    found = emit()
    if result is not None:
        builder.create_yield_op([found])
        builder.set_insertion_point_to_start(branch.get_else_block())
        builder.create_yield_op([otherwise])
    builder.restore_insertion_point(after)
    return None if result is None else branch.get_result(0)


def _arch(builder: Any) -> int:
    found = re.search(r"\d+", builder.options.arch or "")
    return int(found[0]) if found else 0


def _is_tensor(value: Any) -> bool:
    return isinstance(value, tl.tensor)


def _unwrap(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def scalar(mark: Mark, value: Any) -> tuple[ValueType, str]:
    """Type and asm constraint of a run-time value. Raises UsageError unless it is a scalar of 32 or 64 bits; a pointer
    counts as its address.
    """
    if not _is_tensor(value):
        raise value_refused(mark, f"a {type(value).__name__}", "one number")
    if value.type.is_block():
        raise value_refused(mark, f"a tensor of {value.type}", "one element, or a reduction such as tl.max(x)")
    if value.dtype.is_ptr():
        return _SCALARS["uint64"]
    if value.dtype.name not in _SCALARS:
        cast = "value=x.to(tl.float32)" if value.dtype.is_floating() else "value=x.to(tl.int32)"
        raise value_refused(mark, f"a scalar of {value.dtype}", cast)
    return _SCALARS[value.dtype.name]


def predicate(mark: Mark, when: Any) -> Any:
    """Return a run-time predicate. Raises UsageError unless it is a scalar bool or integer."""
    if not _is_tensor(when) or when.type.is_block() or not when.dtype.is_int():
        raise predicate_refused(mark, f"a tensor of {when.type}" if _is_tensor(when) else f"a {type(when).__name__}")
    return when


def _predicate_i32(mark: Mark, semantic: Any, when: Any) -> Any:
    """A predicate as an int32, nonzero if true."""
    when = predicate(mark, when)
    if when.dtype.primitive_bitwidth not in (1, 32):
        when = semantic.not_equal(when, semantic.to_tensor(0))
    return when if when.dtype.primitive_bitwidth == 32 else semantic.cast(when, tl.int32)


def _pin(mark: Mark, builder: Any, value: Any) -> Mark:
    """One asm per 32 bits of the value that a thread holds."""
    if not _is_tensor(value) or value.dtype.is_ptr() or value.dtype.primitive_bitwidth not in (8, 16, 32):
        given = value.dtype if _is_tensor(value) else type(value).__name__
        raise UsageError(
            f"region({mark.display_name}).pin({given}): expected a tensor or scalar of 8, 16 or 32-bit elements"
        )
    width = value.dtype.primitive_bitwidth
    word = tl.dtype(f"int{width}")
    result = value.type.with_element_ty(word) if value.type.is_block() else word
    mark = replace(mark, operand="$1")
    constraints = "=r,f" if value.dtype.name == "fp32" else "=r,r"
    builder.create_inline_asm(mark.comment(), constraints, [value.handle], [result.to_ir(builder)], False, 32 // width)
    return mark
