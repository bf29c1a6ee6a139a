"""Marks in Numba's LLVM IR: one volatile inline assembly call that is a comment.

    call void asm sideeffect "//kscope enter load i32 - with $0", "r,~{memory}"(i32 %k)

What lives here: the functions that kernels call for it, which Numba types and lowers by its own rules for
extensions. What does not: where calls stand (lowering.py), what becomes of the comment (pipeline.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

from kscope.errors import UsageError
from kscope.marks import Mark

from .points import module
from .values import immediate, scalar

ir: Any = import_module("llvmlite.ir")
_types: Any = module("types")
_extending: Any = module("extending")
_typing: Any = module("typing")
_WORD = ir.IntType(32)
_PLACES = "kscope_places"
"""Attribute of a module of llvmlite's: names and where they were placed."""


@lru_cache(None, typed=True)
def call(mark: Mark, known: Any, late: bool, where: str) -> Any:
    """What a kernel calls to place a mark: without an argument, or with the value that only the kernel knows (`late`).
    `known`: the value that is known now. `where`: file:line, for errors. Raises UsageError."""
    if known is not None and mark.act != "pin":
        try:
            mark = immediate(mark, known)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None

    def kscope_mark(context: Any) -> Any:
        return typed(mark, None, where)

    def kscope_value(context: Any, value: Any) -> Any:
        return typed(mark, value, where)

    return _extending.intrinsic(kscope_value if late else kscope_mark)


def typed(mark: Mark, value: Any, where: str = "") -> Any:
    """Numba's signature of a mark's call with a value of that type (None: without), and what emits it.
    Raises UsageError."""
    if value is None:
        return _typing.signature(_types.void), _noted(lambda context, builder, *_: _emit(builder, mark), mark, where)
    plain = _types.unliteral(value)
    try:
        emit = _pin(mark, plain) if mark.act == "pin" else _recorded(replace(mark, type=scalar(mark, plain)), plain)
    except UsageError as error:
        raise UsageError(f"{where}: {error}" if where else str(error)) from None
    return _typing.signature(_types.void, value), _noted(emit, mark, where)


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
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        value = context.cast(builder, arguments[-1], signature.args[-1], kind)
        _emit(builder, mark, _narrow(builder, value, mark.type))

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
    compare = builder.icmp_signed if kind == "i32" else builder.icmp_unsigned
    low, high = (-(1 << 31), (1 << 31) - 1) if kind == "i32" else (0, (1 << 32) - 1)
    value = builder.select(compare(">", value, value.type(high)), value.type(high), value)
    value = builder.select(compare("<", value, value.type(low)), value.type(low), value)
    return builder.trunc(value, _WORD)


def _emit(builder: Any, mark: Mark, value: Any = None) -> None:
    if value is None:
        builder.call(assembly(mark), [])
        return
    constraint = "f" if isinstance(value.type, ir.FloatType) else "r"
    builder.call(assembly(replace(mark, operand="$0"), value.type, constraint), [value])


def assembly(mark: Mark, kind: Any = None, constraint: str = "") -> Any:
    """The mark as LLVM's inline assembly. Its quoted name has no character that means something there."""
    shape = ir.FunctionType(ir.VoidType(), [] if kind is None else [kind])
    clobbers = f"{constraint},~{{memory}}" if constraint else "~{memory}"
    return ir.InlineAsm(shape, mark.comment(), clobbers, side_effect=True)
