"""Marks in Numba's LLVM IR: one volatile inline assembly call whose text is a comment.

call void asm sideeffect "//kscope enter load i32 - with $0", "r,~{memory}"(i32 %k)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

from kscope.errors import UsageError
from kscope.marks.constants import with_constant
from kscope.marks.grammar import Mark
from kscope.marks.names import ValueType
from kscope.marks.refusals import predicate_refused, value_refused

from .hook_points import module

ir: Any = import_module("llvmlite.ir")
_types: Any = module("types")
_extending: Any = module("extending")
_typing: Any = module("typing")
_I32 = ir.IntType(32)
_CONSTRAINTS = {ir.FloatType(): "f", ir.DoubleType(): "d", ir.IntType(64): "l"}
_LOCATIONS = "kscope_locations"
"""Attribute of an llvmlite module: region name -> file:line of its first mark."""


@lru_cache(None, typed=True)
def mark_intrinsic(mark: Mark, constant: Any, has_value: bool, where: str, has_predicate: bool = False) -> Any:
    """The intrinsic that a rewritten kernel calls for a mark.

    Args:
        mark: the mark, without its operands.
        constant: the constant to record, or None.
        has_value: the call passes a run-time value.
        where: file:line of the mark, for errors.
        has_predicate: the call passes a run-time predicate as its last argument.

    Raises:
        UsageError: the constant cannot be recorded.
    """
    if constant is not None and mark.act != "pin":
        try:
            mark = with_constant(mark, constant) or mark
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None

    def kscope_mark(context: Any) -> Any:
        return signature_and_emitter(mark, None, where)

    def kscope_value(context: Any, value: Any) -> Any:
        return signature_and_emitter(mark, value, where)

    def kscope_predicate(context: Any, when: Any) -> Any:
        return signature_and_emitter(mark, None, where, when)

    def kscope_value_predicate(context: Any, value: Any, when: Any) -> Any:
        return signature_and_emitter(mark, value, where, when)

    if has_predicate:
        return _extending.intrinsic(kscope_value_predicate if has_value else kscope_predicate)
    return _extending.intrinsic(kscope_value if has_value else kscope_mark)


def signature_and_emitter(mark: Mark, value: Any, where: str = "", when: Any = None) -> Any:
    """Numba's signature of a mark's call, and the function that lowers it.

    Args:
        mark: the mark, without its run-time operands.
        value: Numba's type of the value, or None.
        where: file:line of the mark, for errors.
        when: Numba's type of the predicate, or None.

    Raises:
        UsageError: a value or predicate of this type cannot be recorded.
    """
    try:
        emit = _emitter(mark, value)
        emit = emit if when is None else _with_predicate(emit, mark, _types.unliteral(when))
    except UsageError as error:
        raise UsageError(f"{where}: {error}" if where else str(error)) from None
    arguments = [kind for kind in (value, when) if kind is not None]
    return _typing.signature(_types.void, *arguments), _with_location(emit, mark, where)


def _emitter(mark: Mark, value: Any) -> Callable[..., None]:
    if value is None:
        return lambda context, builder, signature, arguments, predicate=None: _emit(builder, mark, None, predicate)
    kind = _types.unliteral(value)
    if mark.act == "pin":
        return _pin_emitter(mark, kind)
    return _value_emitter(replace(mark, type=_value_type(mark, kind)), kind)


def _value_type(mark: Mark, kind: Any) -> ValueType:
    """The recorded type of a run-time value of Numba type `kind`. Raises UsageError unless it is a number."""
    if isinstance(kind, _types.Boolean) or kind == _types.boolean:
        raise value_refused(mark, "a bool", "value=np.int32(flag)")
    if isinstance(kind, _types.Integer):
        return ("i64" if kind.signed else "u64") if kind.bitwidth > 32 else "i32" if kind.signed else "u32"
    if kind in (_types.float32, _types.float64):
        return "f32" if kind == _types.float32 else "f64"
    raise value_refused(mark, f"a {kind}", "one number, as np.int32(x) or np.float32(x)")


def _with_predicate(emit: Callable[..., None], mark: Mark, kind: Any) -> Callable[..., None]:
    """The emitter with the predicate as an additional last argument."""
    if not isinstance(kind, (_types.Boolean, _types.Integer)):
        raise predicate_refused(mark, f"a {kind}")

    def predicated(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        flag = context.cast(builder, arguments[-1], signature.args[-1], _types.boolean)
        emit(context, builder, signature.replace(args=signature.args[:-1]), arguments[:-1], builder.zext(flag, _I32))

    return predicated


def mark_locations(modules: Iterable[Any]) -> dict[str, str]:
    """Region name -> file:line of its first mark, in these llvmlite modules."""
    return {name: where for one in modules for name, where in vars(one).get(_LOCATIONS, {}).items()}


def _with_location(emit: Callable[..., None], mark: Mark, where: str) -> Callable[..., None]:
    """The emitter that also stores the mark's location in the module: PTX without line information lacks it."""

    def located(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        emit(context, builder, signature, arguments)
        if where:
            vars(builder.module).setdefault(_LOCATIONS, {}).setdefault(mark.name, where)

    return located


def _value_emitter(mark: Mark, kind: Any) -> Callable[..., None]:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any, predicate: Any = None) -> None:
        value = context.cast(builder, arguments[-1], signature.args[-1], kind)
        _emit(builder, mark, _widened(builder, value, mark.type), predicate)

    return emit


def _pin_emitter(mark: Mark, kind: Any) -> Callable[..., None]:
    """Emits one mark per 32 bits of the value."""
    if not isinstance(kind, (_types.Integer, _types.Float)) or kind.bitwidth not in (8, 16, 32, 64):
        raise UsageError(f"region({mark.display_name}).pin() of a {kind}: expected a number of 8 to 64 bits")

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        value = context.cast(builder, arguments[-1], signature.args[-1], kind)
        bits = ir.IntType(kind.bitwidth)
        if value.type != bits:
            value = builder.bitcast(value, bits)
        if kind.bitwidth < 64:
            _emit(builder, mark, value if value.type == _I32 else builder.zext(value, _I32))
            return
        for half in (value, builder.lshr(value, bits(32))):
            _emit(builder, mark, builder.trunc(half, _I32))

    return emit


def _widened(builder: Any, value: Any, kind: Any) -> Any:
    """The value, with at least 32 bits."""
    if kind in ("f32", "f64") or value.type.width >= 32:
        return value
    return (builder.sext if kind == "i32" else builder.zext)(value, _I32)


def _emit(builder: Any, mark: Mark, value: Any = None, predicate: Any = None) -> None:
    operands = []
    if value is not None:
        mark, operands = replace(mark, operand="$0"), [value]
    if predicate is not None:
        mark, operands = replace(mark, when=f"${len(operands)}"), [*operands, predicate]
    builder.call(assembly(mark, [operand.type for operand in operands]), operands)


def assembly(mark: Mark, kinds: Sequence[Any] = ()) -> Any:
    """The mark as LLVM inline assembly. Its quoted name contains no character that is special in LLVM."""
    shape = ir.FunctionType(ir.VoidType(), list(kinds))
    constraints = [_CONSTRAINTS.get(kind, "r") for kind in kinds]
    return ir.InlineAsm(shape, mark.comment(), ",".join([*constraints, "~{memory}"]), side_effect=True)
