"""Mistakes in a kernel's marks that its syntax tree shows, before anything is traced or run: a region that is created
and never entered would record nothing, and other mistakes would be reported without place and remedy.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from types import FunctionType, ModuleType
from typing import Any

from ..errors import UsageError
from ..instrument.code_objects import closure, is_kscope, reachable, uses_kscope
from ..util.python_source import definition
from .regions import counter, instant, scope


def refuse_mistakes(
    kernel: Any, inner: Callable[[Any], Any] = lambda thing: thing, *, with_calls_only: bool = False
) -> None:
    """Check a kernel and the functions that it names. Frontends call it when a kernel is compiled.

    Functions whose source is not available are not checked.

    Args:
        kernel: a Python function or the DSL's object around one.
        inner: returns the Python function in a DSL's object; anything else for objects not to be followed.
        with_calls_only: True if the language's `with` takes only calls.

    Raises:
        UsageError: a region or scope is a statement by itself, or is assigned to a variable and never entered; a
            region without a name, or with a value that is not named; a `with` on something else of kscope.
    """
    for function in reachable(kernel, inner):
        if uses_kscope(function) and (source := definition(function)) is not None:
            fault = next(_Reader(function, source, with_calls_only).faults(), None)
            if fault is not None:
                line, text = fault
                raise UsageError(f"{function.__code__.co_filename}:{line}: {text}")


class _Reader:
    """Reads one function to find which of its expressions are scopes."""

    def __init__(self, function: FunctionType, source: ast.FunctionDef, with_calls_only: bool) -> None:
        self._source, self._with_calls_only = source, with_calls_only
        self._globals: Mapping[str, Any] = {**vars(builtins), **function.__globals__, **closure(function)}
        assigned = [node for node in ast.walk(source) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        arguments = [node.arg for node in ast.walk(source) if isinstance(node, ast.arg)]
        self._locals = {*arguments, *(node.id for node in assigned)}
        self._kept: dict[str, Any] = {}  # variable -> the assignment of a scope that the function creates
        self._kept = {target.id: node for node, target in self._assignments() if self._creates(node.value)}

    def faults(self) -> Iterator[tuple[int, str]]:
        """Line and description of each mistake, in the order of the source."""
        statements = (node for node in ast.walk(self._source) if isinstance(node, ast.stmt))
        for node in sorted(statements, key=lambda one: one.lineno):
            if isinstance(node, ast.Expr):
                yield from self._dropped(node)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                yield from self._never_entered(node)
            elif isinstance(node, ast.With):
                for item in node.items:
                    yield from self._entered_wrongly(item.context_expr)

    def _dropped(self, node: ast.Expr) -> Iterator[tuple[int, str]]:
        value = node.value
        named = isinstance(value, ast.Name) and value.id in self._kept
        if named or self._creates(value) or isinstance(self._resolved(value), scope):
            written = ast.unparse(value)
            uncalled = "" if isinstance(value, ast.Call) else f" (in Triton `with {written}():`)"
            text = (
                f"{written} is a statement by itself and records nothing: expected `with {written}:`{uncalled} around "
                "the indented code to measure; in Python a region begins when it is entered"
            )
            yield node.lineno, text

    def _never_entered(self, node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[int, str]]:
        names = [name for name, kept in self._kept.items() if kept is node]
        if names and not any(map(self._is_used, names)):
            yield (
                node.lineno,
                f"{ast.unparse(node)} creates a region that is never entered, and records nothing: expected "
                f"`with {ast.unparse(node.value or node)}:` around the indented code to measure, or {names[0]}.enter() "
                f"and {names[0]}.exit() around it",
            )

    def _entered_wrongly(self, entered: ast.expr) -> Iterator[tuple[int, str]]:
        written, call = ast.unparse(entered), entered if isinstance(entered, ast.Call) else None
        callee = call.func if call else entered
        found = self._resolved(callee)
        if isinstance(found, type) and issubclass(found, scope):
            given = call.args if call else []
            named = {keyword.arg for keyword in call.keywords} if call else set()
            if not given and not named & {"name", None}:
                example = f'`with {ast.unparse(callee)}("load"):`'
                yield entered.lineno, f"with {written}: a region needs a name, as in {example}"
            elif len(given) > 1:
                value = ast.unparse(given[1])
                yield entered.lineno, f"with {written}: a region takes its value by name: value={value}"
        elif (missing := self._missing(callee)) is not None:
            name, near = missing
            instead = f"; did you mean {near[0]}?" if near else ""
            yield entered.lineno, f"with {written}: kscope has no {name}{instead}"
        elif any(found is point for point in (instant, counter)):
            remedy = "write it as a statement, or `with kscope.region(...):`"
            yield entered.lineno, f"with {written}: it records a point in time, not a span; {remedy}"
        elif isinstance(found, scope) and not call and self._with_calls_only:
            yield entered.lineno, f"with {written}: the `with` of this language takes only calls; `with {written}():`"

    def _missing(self, named: ast.expr) -> tuple[str, list[str]] | None:
        """The name, if kscope has no such attribute, and similar names that it has; None for any other expression."""
        owner = self._resolved(named.value) if isinstance(named, ast.Attribute) else None
        if not isinstance(named, ast.Attribute) or not isinstance(owner, ModuleType) or not is_kscope(owner):
            return None
        return None if hasattr(owner, named.attr) else (named.attr, get_close_matches(named.attr, dir(owner)))

    def _assignments(self) -> Iterator[tuple[Any, ast.Name]]:
        """The assignments of one value to one variable."""
        for node in ast.walk(self._source):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and len(targets) == 1 and isinstance(targets[0], ast.Name):
                yield node, targets[0]

    def _is_used(self, name: str) -> bool:
        """True if a variable is read for more than statements that drop it."""
        dropped = {id(one.value) for one in ast.walk(self._source) if isinstance(one, ast.Expr)}
        dropped |= {id(one.func) for one in ast.walk(self._source) if isinstance(one, ast.Call) and id(one) in dropped}
        reads = (one for one in ast.walk(self._source) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))
        return any(one.id == name and id(one) not in dropped for one in reads)

    def _creates(self, expression: ast.expr | None) -> bool:
        """True if an expression is `kscope.region(...)`, or a scope that is called."""
        if not isinstance(expression, ast.Call):
            return False
        if isinstance(expression.func, ast.Name) and expression.func.id in self._kept:
            return True
        callee = self._resolved(expression.func)
        return isinstance(callee, scope) or (isinstance(callee, type) and issubclass(callee, scope))

    def _resolved(self, expression: ast.expr) -> Any:
        """The object behind a global name or `a.b.c`, found without running anything; None if it has none."""
        if isinstance(expression, ast.Name):
            return None if expression.id in self._locals else self._globals.get(expression.id)
        if isinstance(expression, ast.Attribute):
            owner = self._resolved(expression.value)
            if is_kscope(owner) and isinstance(owner, ModuleType):  # it loads its names when they are first used
                return getattr(owner, expression.attr, None)
            return getattr(owner, "__dict__", {}).get(expression.attr)
        return None
