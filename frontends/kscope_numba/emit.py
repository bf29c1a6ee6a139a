"""Marks in Numba's LLVM IR: one volatile inline assembly call whose text is a comment.

    call void asm sideeffect "//kscope enter load i32 - with $0", "r,~{memory}"(i32 %k)

A kernel places a mark by calling an intrinsic from this file. Values that Numba types at run time are narrowed to 32
bits: 8 to 32-bit integers and float32 as they are, int64 and uint64 (Numba's plain integers) to the nearest 32-bit
number, float64 (Numba's plain float) rounded to float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

from kscope.errors import UsageError
from kscope.marks.constants import with_constant
from kscope.marks.grammar import Mark, ValueType
from kscope.marks.refusals import predicate_refused, value_refused

from .hook_points import module

ir: Any = import_module("llvmlite.ir")
_types: Any = module("types")
_extending: Any = module("extending")
_typing: Any = module("typing")
_WORD = ir.IntType(32)
_PLACES = "kscope_places"
"""Attribute of an llvmlite module: name -> file:line of its first mark."""


@lru_cache(None, typed=True)
def call(mark: Mark, known: Any, late: bool, where: str, asked: bool = False) -> Any:
    """The intrinsic that a kernel calls to place a mark.

    Args:
        mark: the mark, without its operands.
        known: the constant to record, None for none.
        late: the call passes a value known only at run time.
        where: file:line of the mark, for errors.
        asked: the call passes, last, a predicate known only at run time.

    Raises:
        UsageError: the constant cannot be recorded.
    """
    if known is not None and mark.act != "pin":
        try:
            mark = with_constant(mark, known) or mark
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None

    def kscope_mark(context: Any) -> Any:
        return typed(mark, None, where)

    def kscope_value(context: Any, value: Any) -> Any:
        return typed(mark, value, where)

    def kscope_asked(context: Any, when: Any) -> Any:
        return typed(mark, None, where, when)

    def kscope_both(context: Any, value: Any, when: Any) -> Any:
        return typed(mark, value, where, when)

    made = {(False, False): kscope_mark, (True, False): kscope_value, (False, True): kscope_asked}
    return _extending.intrinsic(made.get((late, asked), kscope_both))


def typed(mark: Mark, value: Any, where: str = "", when: Any = None) -> Any:
    """Numba's signature of a mark's call, and the function that emits it.

    Args:
        mark: the mark, without its run-time operands.
        value: Numba's type of the value, None for none.
        where: file:line of the mark, for errors.
        when: Numba's type of the predicate, None for none.

    Raises:
        UsageError: a value or predicate of this type cannot be recorded.
    """
    try:
        emit = _emitting(mark, value)
        emit = emit if when is None else _asking(emit, mark, _types.unliteral(when))
    except UsageError as error:
        raise UsageError(f"{where}: {error}" if where else str(error)) from None
    given = [kind for kind in (value, when) if kind is not None]
    return _typing.signature(_types.void, *given), _noted(emit, mark, where)


def _emitting(mark: Mark, value: Any) -> Callable[..., None]:
    if value is None:
        return lambda context, builder, signature, arguments, held=None: _emit(builder, mark, None, held)
    plain = _types.unliteral(value)
    return _pin(mark, plain) if mark.act == "pin" else _recorded(replace(mark, type=scalar(mark, plain)), plain)


def scalar(mark: Mark, kind: Any) -> ValueType:
    """The value type of a run-time value that Numba types as `kind`. Raises UsageError unless it is a number."""
    if isinstance(kind, _types.Boolean) or kind == _types.boolean:
        raise value_refused(mark, "a bool", "value=np.int32(flag)")
    if isinstance(kind, _types.Integer):
        return "i32" if kind.signed else "u32"
    if kind in (_types.float32, _types.float64):
        return "f32"
    raise value_refused(mark, f"a {kind}", "one number, as np.int32(x) or np.float32(x)")


def _asking(emit: Callable[..., None], mark: Mark, kind: Any) -> Callable[..., None]:
    """The emitter with the predicate as one more argument, the last."""
    if not isinstance(kind, (_types.Boolean, _types.Integer)):
        raise predicate_refused(mark, f"a {kind}")

    def asking(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        held = context.cast(builder, arguments[-1], signature.args[-1], _types.boolean)
        emit(context, builder, signature.replace(args=signature.args[:-1]), arguments[:-1], builder.zext(held, _WORD))

    return asking


def places(modules: Iterable[Any]) -> dict[str, str]:
    """Name -> file:line of its first mark, over these llvmlite modules."""
    return {name: where for one in modules for name, where in vars(one).get(_PLACES, {}).items()}


def _noted(emit: Callable[..., None], mark: Mark, where: str) -> Callable[..., None]:
    """The emitter, which also notes the mark's place in the module: text without line information lacks it."""

    def noted(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        emit(context, builder, signature, arguments)
        if where:
            vars(builder.module).setdefault(_PLACES, {}).setdefault(mark.name, where)

    return noted


def _recorded(mark: Mark, kind: Any) -> Callable[..., None]:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any, held: Any = None) -> None:
        value = context.cast(builder, arguments[-1], signature.args[-1], kind)
        _emit(builder, mark, _narrow(builder, value, mark.type), held)

    return emit


def _pin(mark: Mark, kind: Any) -> Callable[..., None]:
    """Emits one mark per 32 bits of the value."""
    if not isinstance(kind, (_types.Integer, _types.Float)) or kind.bitwidth not in (8, 16, 32, 64):
        raise UsageError(f"region({mark.display_name}).pin() of a {kind}: expected a number of 8 to 64 bits")

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        value = context.cast(builder, arguments[-1], signature.args[-1], kind)
        bits = ir.IntType(kind.bitwidth)
        if value.type != bits:
            value = builder.bitcast(value, bits)
        if kind.bitwidth < 64:
            _emit(builder, mark, value if value.type == _WORD else builder.zext(value, _WORD))
            return
        for half in (value, builder.lshr(value, bits(32))):
            _emit(builder, mark, builder.trunc(half, _WORD))

    return emit


def _narrow(builder: Any, value: Any, kind: Any) -> Any:
    """The number in 32 bits: as it is, widened, or the nearest one that fits."""
    if kind == "f32":
        return value if isinstance(value.type, ir.FloatType) else builder.fptrunc(value, ir.FloatType())
    width = value.type.width
    if width < 32:
        return (builder.sext if kind == "i32" else builder.zext)(value, _WORD)
    if width == 32:
        return value
    low = builder.trunc(value, _WORD)
    if kind == "u32":
        return builder.select(builder.icmp_unsigned("<=", value, value.type((1 << 32) - 1)), low, _WORD(-1))
    limit = builder.xor(builder.trunc(builder.ashr(value, value.type(63)), _WORD), _WORD((1 << 31) - 1))
    return builder.select(builder.icmp_signed("==", builder.sext(low, value.type), value), low, limit)


def _emit(builder: Any, mark: Mark, value: Any = None, held: Any = None) -> None:
    operands = []
    if value is not None:
        mark, operands = replace(mark, operand="$0"), [value]
    if held is not None:
        mark, operands = replace(mark, when=f"${len(operands)}"), [*operands, held]
    builder.call(assembly(mark, [operand.type for operand in operands]), operands)


def assembly(mark: Mark, kinds: Sequence[Any] = ()) -> Any:
    """The mark as LLVM inline assembly. Its quoted name has no character that is special there."""
    shape = ir.FunctionType(ir.VoidType(), list(kinds))
    constraints = ["f" if isinstance(kind, ir.FloatType) else "r" for kind in kinds]
    return ir.InlineAsm(shape, mark.comment(), ",".join([*constraints, "~{memory}"]), side_effect=True)
