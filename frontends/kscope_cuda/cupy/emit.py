"""cupyx.jit: `with kscope.region("load"):` in kernels that CuPy translates from Python to CUDA C++."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from kscope.instrument.hooks import Hook
from kscope.language.mistakes import refuse_mistakes
from kscope.language.regions import MARKS_BY_CALL, scope
from kscope.marks.constants import with_constant
from kscope.marks.grammar import NEVER, Mark
from kscope.marks.names import ValueType
from kscope.marks.refusals import predicate_refused, value_refused
from kscope.marks.wide_values import is_wide

from . import helpers, hook_points
from .hook_points import expressions, translator, types

_MACRO = "KSCOPE_JIT"
_STATEMENT, _STATEMENTS, _EXPRESSION = "_transpile_stmt", "_transpile_stmts", "_transpile_expr"
_WRAPPER, _FUNCTION = "transpile_function_wrapper", "_transpile_func_obj"
_TYPES: dict[str, tuple[ValueType, str, str]] = {
    **dict.fromkeys(("int8", "int16", "int32"), ("i32", "int", "r")),
    **dict.fromkeys(("uint8", "uint16", "uint32"), ("u32", "unsigned int", "r")),
    "float32": ("f32", "float", "f"),
    **dict.fromkeys(("int64", "longlong"), ("i64", "long long", "l")),
    **dict.fromkeys(("uint64", "ulonglong"), ("u64", "unsigned long long", "l")),
    "float64": ("f64", "double", "d"),
}
_CAST = "cupy.int32(x) or cupy.float32(x)"
_LOOP = None
"""Marks the start of a loop on the stack of open scopes."""


def prelude(source: str, recorded: bool) -> str:
    """The macro definition that precedes a source with marks; empty for other sources."""
    if f"{_MACRO}(" not in source:
        return ""
    body = ' asm volatile(text :: __VA_ARGS__ : "memory")' if recorded else ""
    return f"#define {_MACRO}(text, ...){body}\n"


class JitHooks:
    """The hooks on CuPy's translator of functions and of statements."""

    def __init__(self) -> None:
        self._hooks = Hook(translator, _FUNCTION, self._function), Hook(translator, _STATEMENT, self._translated)
        self._open: WeakKeyDictionary[Any, list[scope | None]] = WeakKeyDictionary()
        self._thread = threading.local()

    def check(self) -> None:
        """Raise UnsupportedError naming the hook point that this CuPy lacks."""
        hook_points.check(translator, _STATEMENT, _STATEMENTS, _EXPRESSION, _WRAPPER, _FUNCTION)
        helpers.check()

    def install(self) -> None:
        """Install the hooks; idempotent."""
        for hook in self._hooks:
            hook.install()
        helpers.install()

    def remove(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        helpers.remove()

    def emit(self, mark: Mark, value: Any, when: Any = None) -> bool:
        """Write a mark into the statement that this thread translates; False outside a translation.

        A mark becomes a macro call, so the C++ text does not depend on whether recording is on: prelude() decides
        whether the mark is a comment in the PTX or nothing. A `with` gets no braces, because a variable first assigned
        inside it stays visible after it, as in Python. So the exits that a return, break or continue would skip are
        written before that statement.
        """
        lines = getattr(self._thread, "lines", None)
        if lines is None:
            return False
        operands: list[str] = []
        if isinstance(value, expressions.Data):
            kind, cast, constraint = _scalar(mark, value)
            mark = replace(mark, type=kind if mark.act != "pin" or is_wide(kind) else None, operand="%0")
            operands.append(f'"{constraint}"(({cast})({value.code}))')
        elif value is not None:
            constant = with_constant(mark, value)
            if constant is None:
                raise value_refused(mark, repr(value), _CAST)
            mark = constant
        if when is False:
            mark = replace(mark, when=NEVER)
        elif when is not None:
            mark = replace(mark, when=f"%{len(operands)}")
            operands.append(f'"r"((int)({_predicate(mark, when)}))')
        lines.append(f"{_MACRO}({', '.join([chr(34) + mark.comment() + chr(34), *operands])});")
        return True

    # statements

    def _function(self, original: Callable[..., Any], function: Any, *rest: Any) -> Any:
        """Around the translation of each function, kernels and those that they call."""
        refuse_mistakes(function)
        return original(function, *rest)

    def _translated(self, original: Callable[..., Any], statement: ast.stmt, *rest: Any) -> Any:
        located = hook_points.fetch(translator, _WRAPPER)(lambda *args: self._statement(original, *args))
        return located(statement, *rest)

    def _statement(self, original: Callable[..., Any], statement: ast.stmt, is_toplevel: bool, env: Any) -> Any:
        opened = self._open.setdefault(env, [])
        if isinstance(statement, ast.With):
            scopes = [self._scope(item.context_expr, env) for item in statement.items]
            entered = [found for found in scopes if found is not None]
            if len(entered) == len(scopes):
                return self._with(statement, entered, is_toplevel, env, opened)
        elif isinstance(statement, (ast.For, ast.While)):
            opened.append(_LOOP)
            try:
                return original(statement, is_toplevel, env)
            finally:
                opened.pop()
        elif isinstance(statement, (ast.Break, ast.Continue)):
            inner = opened[len(opened) - opened[::-1].index(_LOOP) :] if _LOOP in opened else opened
            return [*self._exits(inner), *original(statement, is_toplevel, env)]
        elif isinstance(statement, ast.Return) and any(opened):
            return self._return(original(statement, is_toplevel, env), opened)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            function = _constant(statement.value.func, env)
            if function in MARKS_BY_CALL or isinstance(getattr(function, "__self__", None), scope):
                return self._lines(lambda: self._called(statement.value, function, env))
        return original(statement, is_toplevel, env)

    def _with(
        self, statement: ast.With, scopes: list[scope], is_toplevel: bool, env: Any, opened: list[scope | None]
    ) -> list[Any]:
        code: list[Any] = []
        for item, entered in zip(statement.items, scopes, strict=True):
            code += self._lines(entered.__enter__)
            opened.append(entered)
            if isinstance(item.optional_vars, ast.Name):
                env.consts[item.optional_vars.id] = expressions.Constant(entered)
        try:
            code += hook_points.fetch(translator, _STATEMENTS)(statement.body, is_toplevel, env)
        finally:
            del opened[len(opened) - len(scopes) :]
        return code + self._exits(scopes)

    def _return(self, code: list[Any], opened: list[scope | None]) -> list[Any]:
        *before, last = code
        exits = self._exits(opened)
        value = str(last).removeprefix("return").strip(" ;")
        if not value:
            return [*before, *exits, last]
        return [*before, "{", f"auto ks_result = {value};", *exits, "return ks_result;", "}"]

    def _exits(self, opened: list[Any]) -> list[str]:
        left = [found for found in reversed(opened) if found is not _LOOP]
        return [line for found in left for line in self._lines(partial(found.__exit__, None, None, None))]

    def _lines(self, act: Callable[[], Any]) -> list[str]:
        """The C++ lines that a kscope call writes."""
        lines: list[str] = []
        self._thread.lines = lines
        try:
            act()
        finally:
            self._thread.lines = None
        return lines

    # expressions

    def _scope(self, expression: ast.expr, env: Any) -> scope | None:
        """The scope that a `with` enters; None for another context manager."""
        call = isinstance(expression, ast.Call)
        found = _constant(expression.func if isinstance(expression, ast.Call) else expression, env)
        if call and (isinstance(found, scope) or (isinstance(found, type) and issubclass(found, scope))):
            made = self._called(expression, found, env)
            return made if isinstance(made, scope) else None
        return found if isinstance(found, scope) and not call else None

    def _called(self, call: Any, function: Any, env: Any) -> Any:
        """Call kscope's function: constants are passed as Python objects, run-time values as CuPy expressions."""
        translate = hook_points.fetch(translator, _EXPRESSION)
        arguments = [_plain(translate(argument, env)) for argument in call.args]
        named = {keyword.arg: _plain(translate(keyword.value, env)) for keyword in call.keywords}
        return function(*arguments, **named)


def _plain(expression: Any) -> Any:
    return expression.obj if isinstance(expression, expressions.Constant) else expression


def _constant(expression: ast.expr, env: Any) -> Any:
    """The Python object behind a name or `a.b.c`; None if it is known only at run time."""
    if isinstance(expression, ast.Name):
        found = env[expression.id]
        return found.obj if isinstance(found, expressions.Constant) else None
    if isinstance(expression, ast.Attribute):
        return getattr(_constant(expression.value, env), expression.attr, None)
    return None


def _predicate(mark: Mark, when: Any) -> str:
    """A predicate as a C++ expression. Raises UsageError unless it is a bool or an integer."""
    kind = getattr(when, "ctype", None)
    dtype = kind.dtype if kind is not None and isinstance(kind, types.Scalar) else None
    if dtype is None or dtype.kind not in "bui":
        raise predicate_refused(mark, f"a {dtype or kind}" if kind is not None else repr(when))
    return f"({when.code}) != 0"


def _scalar(mark: Mark, value: Any) -> tuple[ValueType, str, str]:
    """Value type, C++ type and asm constraint of a run-time value. Raises UsageError for other types."""
    dtype = value.ctype.dtype if isinstance(value.ctype, types.Scalar) else None
    found = None if dtype is None else _TYPES.get(dtype.name)
    if found is None:
        raise value_refused(mark, f"a {dtype or value.ctype}", _CAST)
    return found
