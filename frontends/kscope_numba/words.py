"""kscope's words in a function's syntax tree: which expressions are scopes and calls of kscope's, and their arguments.

The words are not imitated: kscope's own classes and functions are called, with what is known of the arguments now, and
place their marks with the frontend, which collects them. What lives here: that. What does not: statements
(lowering.py).
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import numpy as np

from kscope.errors import UsageError
from kscope.language.regions import scope
from kscope.marks.grammar import NEVER, Mark

from .meaning import CALLS, environment
from .source import where

_METHODS = ("enter", "exit", "pin")
_CHAIN = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.UnaryOp, ast.expr_context, ast.unaryop)
_CONSTANTS = ("name", "strategy", "track")
"""Arguments that must be known when the kernel is compiled."""
_collecting = threading.local()


@dataclass(frozen=True)
class RunTime:
    """A value that only the running kernel knows."""

    expression: ast.expr


def collect(mark: Mark, value: Any, when: Any = None) -> bool:
    """A mark that kscope's own words place on this thread; False where no function is lowered."""
    marks: list[tuple[Mark, Any, Any]] | None = getattr(_collecting, "marks", None)
    if marks is None:
        return False
    marks.append((mark if when is not False else replace(mark, when=NEVER), value, None if when is False else when))
    return True


def collected(act: Callable[[], Any]) -> list[tuple[Mark, Any, Any]]:
    """The marks that one of kscope's words places, each with its value and its predicate (None: without)."""
    marks: list[tuple[Mark, Any, Any]] = []
    _collecting.marks = marks
    try:
        act()
    finally:
        _collecting.marks = None
    return marks


class Words:
    """Reads expressions of a function. locals: names that only the running kernel knows. named: those of scopes
    (`with ... as name`). visit: lowers an expression that is a value."""

    def __init__(self, function: FunctionType, visit: Callable[[ast.expr], ast.expr]) -> None:
        self._function, self._visit = function, visit
        self._environment = environment(function)
        self.locals = {*function.__code__.co_varnames, *function.__code__.co_cellvars}
        self.named: dict[str, scope] = {}

    def act(self, call: ast.Call) -> Callable[[], Any] | None:
        """What a call of instant, counter, or of a scope's method does when kscope runs it; None for other calls."""
        method: Any = None
        if isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS:
            owner = self.scope(call.func.value)
            method = None if owner is None else getattr(owner, call.func.attr)
        function = self._thing(call.func) if method is None else method
        if isinstance(getattr(function, "__self__", None), scope):
            return lambda: function(*self._values(call), **self._keywords(call, ()))
        if any(function is known for known in CALLS):
            return lambda: function(*self._named_first(call), **self._keywords(call, _CONSTANTS))
        return None

    def scope(self, expression: ast.expr) -> scope | None:
        """The scope that an expression stands for; None where it is something else."""
        if not isinstance(expression, ast.Call):
            thing = self._thing(expression)
            if isinstance(thing, type) and issubclass(thing, scope):
                raise self.error(expression, 'a region needs a name: with kscope.region("load"):')
            return thing if isinstance(thing, scope) else None
        made = self._thing(expression.func)
        try:
            if isinstance(made, scope):
                return made(*self._values(expression), **self._keywords(expression, ()))
            if isinstance(made, type) and issubclass(made, scope):
                found: scope = made(*self._named_first(expression), **self._keywords(expression, _CONSTANTS))
                return found
        except TypeError as error:
            raise self.error(expression, str(error)) from None
        except UsageError as error:
            raise (
                error
                if str(error).startswith(self._function.__code__.co_filename)
                else self.error(expression, str(error))
            ) from None
        return None

    # arguments

    def _named_first(self, call: ast.Call) -> list[Any]:
        return [self._known(one) if not i else self._value(one) for i, one in enumerate(self._plain(call))]

    def _values(self, call: ast.Call) -> list[Any]:
        return [self._value(one) for one in self._plain(call)]

    def _plain(self, call: ast.Call) -> list[ast.expr]:
        for one in call.args:
            if isinstance(one, ast.Starred):
                raise self.error(one, f"{ast.unparse(call)}: write the arguments out")
        return call.args

    def _keywords(self, call: ast.Call, known: tuple[str, ...]) -> dict[str, Any]:
        found = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise self.error(keyword.value, f"{ast.unparse(call)}: write the arguments out")
            read = self._known if keyword.arg in known else self._value
            found[keyword.arg] = read(keyword.value)
        return found

    def _known(self, expression: ast.expr) -> Any:
        """What is known when the kernel is compiled. Raises UsageError for what is not."""
        late = sorted(name for name in _names(expression) if self._is_late(name))
        if late:
            raise self.error(
                expression,
                f"{ast.unparse(expression)} is not known when the kernel is compiled ({late[0]} is a variable of the "
                "kernel): a region's name and strategy are constants; pass what changes at run time as value=",
            )
        try:
            return self._evaluate(expression)
        except Exception as error:
            raise self.error(expression, f"{ast.unparse(expression)}: {type(error).__name__}: {error}") from error

    def _value(self, expression: ast.expr) -> Any:
        """A number known now, else the expression."""
        known = self._thing(expression)
        if isinstance(known, (bool, int, float, np.number, np.bool_)) or (known is None and _is_none(expression)):
            return known
        return RunTime(self._visit(expression))

    def _thing(self, expression: ast.expr) -> Any:
        """What a name, or an attribute of one, stands for; None where only the running kernel knows."""
        simple = all(isinstance(node, _CHAIN) for node in ast.walk(expression))
        if not simple or any(map(self._is_late, _names(expression))):
            return None
        try:
            return self._evaluate(expression)
        except (AttributeError, LookupError, TypeError):
            return None

    def _evaluate(self, expression: ast.expr) -> Any:
        code = compile(ast.Expression(expression), self._function.__code__.co_filename, "eval", dont_inherit=True)
        return eval(code, {**self._environment, **self.named})

    def _is_late(self, name: str) -> bool:
        return name not in self.named and (name in self.locals or name not in self._environment)

    def error(self, node: ast.expr | ast.stmt, text: str) -> UsageError:
        """An error that names the line of a node."""
        return UsageError(f"{where(self._function, node.lineno)}: {text}")


def _names(expression: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def _is_none(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Constant) and expression.value is None
