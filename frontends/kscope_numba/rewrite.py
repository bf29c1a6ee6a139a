"""Rewrites `with kscope.region("load"):` as calls, so that Numba can read the function's bytecode.

with region("a", value=k):              kscope_0(k)          # enter a
    for i in range(n):                  for i in range(n):
        if x[i] < 0:                        if x[i] < 0:
            return f(i)                         kscope_result = f(i)
        work(i)                                 kscope_1()   # exit a
                                                return kscope_result
                                            work(i)
                                        kscope_1()
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import Any

from kscope.errors import KscopeError, UnsupportedError, UsageError
from kscope.instrument.code_objects import nested
from kscope.language.regions import scope
from kscope.marks.grammar import Mark

from .evaluator import Evaluator, RuntimeValue, collected
from .source import Definition, location

EmitCall = Callable[[Mark, Any, int, bool], str]
"""Called with a mark, its value (None, a constant or a RuntimeValue), the line, and True if a predicate follows.
Returns the name of the global to call.
"""
_ENDS = (ast.Return, ast.Break, ast.Continue, ast.Raise)
_LOOP, _FINALLY = "loop", "finally"


def rewrite(
    definition: Definition,
    function: FunctionType,
    emit_call: EmitCall | None,
    scopes: Mapping[str, scope] | None = None,
) -> Definition:
    """The definition with a call for each mark. Exceptions need none: ir_repair.py closes the regions that they leave.

    Args:
        definition: the function's definition; changed in place.
        function: the function that it defines.
        emit_call: adds the global that a mark calls; None drops all marks and their values.
        scopes: scopes by name, in addition to those that the function can see.

    Raises:
        UsageError: a region is used wrongly; the message has the file and line.
        UnsupportedError: Numba cannot compile it.
    """
    rewriter = _Rewriter(function, emit_call, scopes or {})
    definition.body = rewriter.body(definition.body)
    ast.fix_missing_locations(definition)
    return definition


class _Rewriter(ast.NodeTransformer):
    def __init__(self, function: FunctionType, emit_call: EmitCall | None, scopes: Mapping[str, scope]) -> None:
        self._function, self._emit_call = function, emit_call
        self._evaluator = Evaluator(function, self.visit)
        self._evaluator.scopes.update(scopes)
        self._open: list[Any] = []  # around the visited statement, outermost first: scopes, loops, try with finally
        self._results = 0

    # statements

    def body(self, statements: Iterable[ast.stmt]) -> list[ast.stmt]:
        """A block's statements, rewritten; at least one."""
        out: list[ast.stmt] = []
        for statement in statements:
            found = self.visit(statement)
            out += found if isinstance(found, list) else [found] if found is not None else []
        return out or [ast.Pass()]

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, field, self.body(block))
        for field, child in ast.iter_fields(node):
            if isinstance(child, ast.AST):
                setattr(node, field, self.visit(child))
            elif isinstance(child, list) and field not in ("body", "orelse", "finalbody"):
                child[:] = [self.visit(one) if isinstance(one, ast.AST) else one for one in child]
        return node

    def visit_With(self, node: ast.With) -> Any:
        return self._items(node, node.items)

    def _items(self, node: ast.With, items: list[ast.withitem]) -> list[ast.stmt]:
        if not items:
            return self.body(node.body)
        item, rest = items[0], items[1:]
        entered = self._evaluator.scope(item.context_expr)
        if entered is None:
            expected = "expected kscope.region(name), or a scope known at compile time"
            text = f"with {ast.unparse(item.context_expr)}: {expected}; Numba compiles no other `with`"
            raise self._evaluator.error(item.context_expr, text)
        self._bind(item.optional_vars, entered)
        line = item.context_expr.lineno
        out = self._marks(entered.__enter__, line)
        self._open.append(entered)
        out += self._items(node, rest)
        self._open.pop()
        if not isinstance(out[-1], _ENDS):
            out += self._exits([entered], node.end_lineno or line)
        return out

    def _bind(self, target: ast.expr | None, entered: scope) -> None:
        if target is None:
            return
        if not isinstance(target, ast.Name):
            raise self._evaluator.error(target, f"`as {ast.unparse(target)}`: expected one name")
        bound = self._evaluator.scopes.get(target.id)
        if bound is not None and bound.name != entered.name:
            raise self._evaluator.error(
                target, f"`as {target.id}` names another region in this function: use another name"
            )
        self._evaluator.scopes[target.id] = entered

    def visit_For(self, node: ast.For) -> Any:
        node.iter, node.target = self.visit(node.iter), self.visit(node.target)
        return self._looped(node)

    def visit_While(self, node: ast.While) -> Any:
        node.test = self.visit(node.test)
        return self._looped(node)

    def _looped(self, node: Any) -> Any:
        self._open.append(_LOOP)
        node.body = self.body(node.body)
        self._open.pop()
        node.orelse = self.body(node.orelse) if node.orelse else []
        return node

    def visit_Try(self, node: ast.Try) -> Any:
        self._open.append(_FINALLY if node.finalbody else None)
        node.body, node.orelse = self.body(node.body), self.body(node.orelse) if node.orelse else []
        for handler in node.handlers:
            handler.body = self.body(handler.body)
        self._open.pop()
        node.finalbody = self.body(node.finalbody) if node.finalbody else []
        return node

    def visit_Break(self, node: ast.Break) -> Any:
        loop = max((i for i, found in enumerate(self._open) if found is _LOOP), default=0)
        return [*self._leaving(node, self._open[loop:]), node]

    def visit_Continue(self, node: ast.Continue) -> Any:
        return self.visit_Break(node)  # type: ignore[arg-type]  # leaves the same scopes

    def visit_Return(self, node: ast.Return) -> Any:
        if node.value is not None:
            node.value = self.visit(node.value)
        exits = self._leaving(node, self._open)
        if not exits or node.value is None or isinstance(node.value, (ast.Constant, ast.Name)):
            return [*exits, node]
        self._results += 1
        name = f"kscope_result_{self._results}"
        assign = ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], node.value), node)
        last = ast.copy_location(ast.Return(ast.Name(name, ast.Load())), node)
        return [assign, *exits, last]

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Call) and (call := self._evaluator.bound_call(node.value)) is not None:
            return self._marks(call, node.lineno)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        with self._nested(node):
            node.body = self.body(node.body)
        return node

    # expressions

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        with self._nested(node):
            node.body = self.visit(node.body)
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        call = self._evaluator.bound_call(node)
        if call is None:
            return self.generic_visit(node)
        calls = [statement.value for statement in self._marks(call, node.lineno) if isinstance(statement, ast.Expr)]
        return ast.copy_location(calls[0] if calls else ast.Constant(None), node)

    def visit_Yield(self, node: ast.Yield) -> Any:
        if any(isinstance(found, scope) for found in self._open):
            raise self._evaluator.error(node, "yield in a region: a region must begin and end in one call")
        return self.generic_visit(node)

    @contextmanager
    def _nested(self, node: ast.FunctionDef | ast.Lambda) -> Generator[None, None, None]:
        """A nested function: it has its own variables, and no region is open."""
        before = self._evaluator.locals, self._open
        arguments = node.args
        names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        stored = [
            found.id for found in ast.walk(node) if isinstance(found, ast.Name) and isinstance(found.ctx, ast.Store)
        ]
        self._evaluator.locals, self._open = {*before[0], *(name.arg for name in names if name), *stored}, []
        yield
        self._evaluator.locals, self._open = before

    # marks

    def _leaving(self, node: ast.stmt, opened: list[Any]) -> list[ast.stmt]:
        """The exits of the scopes that a jump leaves."""
        scopes = [found for found in opened if isinstance(found, scope)]
        if scopes and _FINALLY in opened:
            raise self._evaluator.error(node, "a jump out of a region through a finally: end the region before it")
        return self._exits(scopes, node.lineno)

    def _exits(self, scopes: list[scope], line: int) -> list[ast.stmt]:
        out = []
        for left in reversed(scopes):
            out += self._marks(partial(left.__exit__, None, None, None), line)
        return out

    def _marks(self, call: Callable[[], Any], line: int) -> list[ast.stmt]:
        """The statements that replace a call of kscope."""
        try:
            marks = collected(call)
        except (KscopeError, TypeError) as error:
            kind = type(error) if isinstance(error, KscopeError) else UsageError
            raise kind(f"{location(self._function, line)}: {error}") from None
        if self._emit_call is None:
            return []
        out = []
        for mark, value, when in marks:
            name = self._emit_call(mark, value, line, isinstance(when, RuntimeValue))
            arguments = [one.expression for one in (value, when) if isinstance(one, RuntimeValue)]
            out.append(_at(ast.Expr(ast.Call(ast.Name(name, ast.Load()), arguments, [])), line))
        return out


def cannot_rewrite(function: FunctionType, reason: str) -> UnsupportedError:
    """The error for a function with a `with` whose source cannot be rewritten."""
    return UnsupportedError(
        f"{function.__qualname__} ({location(function)}) has regions, and {reason}; Numba cannot compile `with`, so "
        'kscope rewrites the source. Declare LOAD = kscope.scope("load") outside the kernel and call LOAD.enter() and '
        "LOAD.exit() in it, which needs no source"
    )


def has_with(function: FunctionType) -> bool:
    """True if the function's bytecode has a `with`."""
    opens = ("SETUP_WITH", "BEFORE_WITH", "LOAD_SPECIAL")
    return any(one.opname in opens for code in nested(function.__code__) for one in dis.get_instructions(code))


def _at(statement: ast.stmt, line: int) -> ast.stmt:
    """Place a statement on a line of the user's file; parts that have a location keep it."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.expr, ast.stmt)) and not hasattr(node, "lineno"):
            node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = line, line, 0, 0
    return statement
