"""Evaluates kscope expressions in a function's syntax tree: finds scopes and kscope calls, and calls kscope's own
classes and functions with the arguments known at compile time.
"""

from __future__ import annotations

import ast
import builtins
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import numpy as np

from kscope.errors import UsageError
from kscope.instrument.code_objects import closure
from kscope.language.regions import MARKS_BY_CALL, scope
from kscope.marks.grammar import NEVER, Mark

from .source import location

_METHODS = ("enter", "exit", "pin")
_CHAIN = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.UnaryOp, ast.expr_context, ast.unaryop)
_CONSTANTS = ("name", "strategy", "track", "open")
"""Arguments that must be known at compile time."""
_AMOUNTS = ("bytes", "flops")
"""Arguments that are constants if they are computed from constants."""
_collecting = threading.local()


@dataclass(frozen=True)
class RuntimeValue:
    """A value known only when the kernel runs."""

    expression: ast.expr


def collect(mark: Mark, value: Any, when: Any = None) -> bool:
    """Collect a mark emitted on this thread; False outside collected()."""
    marks: list[tuple[Mark, Any, Any]] | None = getattr(_collecting, "marks", None)
    if marks is None:
        return False
    marks.append((mark if when is not False else replace(mark, when=NEVER), value, None if when is False else when))
    return True


def collected(call: Callable[[], Any]) -> list[tuple[Mark, Any, Any]]:
    """The marks that a call of kscope emits, each with its value and predicate, or None."""
    marks: list[tuple[Mark, Any, Any]] = []
    _collecting.marks = marks
    try:
        call()
    finally:
        _collecting.marks = None
    return marks


class Evaluator:
    """Evaluates expressions of one function.

    Attributes:
        locals: names that have values only at run time.
        scopes: the scopes named by `with ... as name`.
    """

    def __init__(self, function: FunctionType, visit: Callable[[ast.expr], ast.expr]) -> None:
        """visit: rewrites an expression that is a run-time value."""
        self._function, self._visit = function, visit
        self._globals = {**vars(builtins), **function.__globals__, **closure(function)}
        self.locals = {*function.__code__.co_varnames, *function.__code__.co_cellvars}
        self.scopes: dict[str, scope] = {}

    def bound_call(self, node: ast.Call) -> Callable[[], Any] | None:
        """A function that runs a call of instant() and the like, or of a scope's method; None for other calls."""
        method: Any = None
        if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
            owner = self.scope(node.func.value)
            method = None if owner is None else getattr(owner, node.func.attr)
        function = self._resolve(node.func) if method is None else method
        if isinstance(getattr(function, "__self__", None), scope):
            return lambda: function(*self._values(node), **self._keywords(node, ()))
        if any(function is known for known in MARKS_BY_CALL):
            return lambda: function(*self._name_and_values(node), **self._keywords(node, _CONSTANTS))
        return None

    def scope(self, expression: ast.expr) -> scope | None:
        """The scope that an expression evaluates to; None if it is not one."""
        if not isinstance(expression, ast.Call):
            value = self._resolve(expression)
            return value if isinstance(value, scope) else None
        callee = self._resolve(expression.func)
        try:
            if isinstance(callee, scope):
                return callee(*self._values(expression), **self._keywords(expression, ()))
            if isinstance(callee, type) and issubclass(callee, scope):
                found: scope = callee(*self._name_and_values(expression), **self._keywords(expression, _CONSTANTS))
                return found
        except TypeError as error:
            raise self.error(expression, str(error)) from None
        except UsageError as error:
            raise (error if error.where else self.error(expression, str(error))) from None
        return None

    # arguments

    def _name_and_values(self, call: ast.Call) -> list[Any]:
        return [self._constant(one) if not i else self._value(one) for i, one in enumerate(self._positional(call))]

    def _values(self, call: ast.Call) -> list[Any]:
        return [self._value(one) for one in self._positional(call)]

    def _positional(self, call: ast.Call) -> list[ast.expr]:
        for one in call.args:
            if isinstance(one, ast.Starred):
                raise self.error(one, f"{ast.unparse(call)}: write the arguments out")
        return call.args

    def _keywords(self, call: ast.Call, constants: tuple[str, ...]) -> dict[str, Any]:
        found = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise self.error(keyword.value, f"{ast.unparse(call)}: write the arguments out")
            known = keyword.arg in constants or (keyword.arg in _AMOUNTS and self._computed(keyword.value))
            found[keyword.arg] = (self._constant if known else self._value)(keyword.value)
        return found

    def _constant(self, expression: ast.expr) -> Any:
        """The value of a compile-time expression. Raises UsageError for any other."""
        runtime = sorted(name for name in _names(expression) if self._is_runtime(name))
        if runtime:
            raise self.error(
                expression,
                f"{ast.unparse(expression)} is not known at compile time ({runtime[0]} is a variable of the "
                "kernel): a region's name and strategy are constants; pass what changes at run time as value=",
            )
        try:
            return self._evaluate(expression)
        except Exception as error:
            raise self.error(expression, f"{ast.unparse(expression)}: {type(error).__name__}: {error}") from error

    def _computed(self, expression: ast.expr) -> bool:
        """True if an expression is arithmetic of constants."""
        simple = all(isinstance(node, (*_CHAIN, ast.BinOp, ast.operator)) for node in ast.walk(expression))
        return simple and not any(map(self._is_runtime, _names(expression)))

    def _value(self, expression: ast.expr) -> Any:
        """A compile-time number or None, else a RuntimeValue."""
        constant = self._resolve(expression)
        if isinstance(constant, (bool, int, float, np.number, np.bool_)) or (
            isinstance(expression, ast.Constant) and expression.value is None
        ):
            return constant
        return RuntimeValue(self._visit(expression))

    def _resolve(self, expression: ast.expr) -> Any:
        """The compile-time value of a name or attribute; None if it has none."""
        simple = all(isinstance(node, _CHAIN) for node in ast.walk(expression))
        if not simple or any(map(self._is_runtime, _names(expression))):
            return None
        try:
            return self._evaluate(expression)
        except (AttributeError, LookupError, TypeError):
            return None

    def _evaluate(self, expression: ast.expr) -> Any:
        code = compile(ast.Expression(expression), self._function.__code__.co_filename, "eval", dont_inherit=True)
        return eval(code, {**self._globals, **self.scopes})

    def _is_runtime(self, name: str) -> bool:
        return name not in self.scopes and (name in self.locals or name not in self._globals)

    def error(self, node: ast.expr | ast.stmt, text: str) -> UsageError:
        """An error with the location of a node."""
        where = location(self._function, node.lineno)
        error = UsageError(f"{where}: {text}")
        error.where = where
        return error


def _names(expression: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
