"""Marks in Numba's LLVM IR: one volatile inline assembly call that is a comment.

    call void asm sideeffect "//kscope enter load i32 - with $0", "r,~{memory}"(i32 %k)

What lives here: the functions that kernels call for it, which Numba types and lowers by its own rules for
extensions. What does not: where calls stand (lowering.py), what becomes of the comment (pipeline.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

from kscope.errors import UsageError
from kscope.marks.grammar import Mark

from .hook_points import module
from .values import immediate, scalar

ir: Any = import_module("llvmlite.ir")
_types: Any = module("types")
_extending: Any = module("extending")
_typing: Any = module("typing")
_WORD = ir.IntType(32)
_PLACES = "kscope_places"
"""Attribute of a module of llvmlite's: names and where they were placed."""


@lru_cache(None, typed=True)
def call(mark: Mark, known: Any, late: bool, where: str, asked: bool = False) -> Any:
    """What a kernel calls to place a mark: without an argument, or with the value that only the kernel knows (`late`),
    and then the predicate that only the kernel knows (`asked`). `known`: the value that is known now. `where`:
    file:line, for errors. Raises UsageError."""
    if known is not None and mark.act != "pin":
        try:
            mark = immediate(mark, known)
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
    """Numba's signature of a mark's call with a value and a predicate of these types (None: without), and what emits
    it. Raises UsageError."""
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


def _asking(emit: Callable[..., None], mark: Mark, kind: Any) -> Callable[..., None]:
    """The same with one more argument, behind the others: the predicate."""
    if not isinstance(kind, (_types.Boolean, _types.Integer)):
        raise UsageError(f"when= of kscope {mark.act} {mark.said} is a {kind}: expected a bool or an integer")

    def asking(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        held = context.cast(builder, arguments[-1], signature.args[-1], _types.boolean)
        emit(context, builder, signature.replace(args=signature.args[:-1]), arguments[:-1], builder.zext(held, _WORD))

    return asking


def places(modules: Iterable[Any]) -> dict[str, str]:
    """file:line where each name was first placed in these modules of llvmlite's."""
    return {name: where for one in modules for name, where in vars(one).get(_PLACES, {}).items()}


def _noted(emit: Callable[..., None], mark: Mark, where: str) -> Callable[..., None]:
    """The same, and the module knows where: a text without line information does not."""

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
    """One mark per 32 bits."""
    if not isinstance(kind, (_types.Integer, _types.Float)) or kind.bitwidth not in (8, 16, 32, 64):
        raise UsageError(f"region({mark.said}).pin() of a {kind}: expected a number of 8 to 64 bits")

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
    """32 bits of a number: as it is, widened, or the nearest one."""
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
    """The mark as LLVM's inline assembly. Its quoted name has no character that means something there."""
    shape = ir.FunctionType(ir.VoidType(), list(kinds))
    constraints = ["f" if isinstance(kind, ir.FloatType) else "r" for kind in kinds]
    return ir.InlineAsm(shape, mark.comment(), ",".join([*constraints, "~{memory}"]), side_effect=True)
