"""`with kscope.region("load"):` as calls: the same function, whose bytecode Numba can read.

    with region("a", value=k):              kscope_0(k)          # enter a
        for i in range(n):                  for i in range(n):
            if x[i] < 0:                        if x[i] < 0:
                return f(i)                         kscope_result = f(i)
            work(i)                                 kscope_1()   # exit a
                                                    return kscope_result
                                                work(i)
                                            kscope_1()

A `with` gets no block of its own in Python, and none here. Exceptions leave a kernel in Numba's own code, which
closes what they leave open (closing.py). Where nothing is placed (plain), the marks are left out with their values, and
what stays is the function without annotations. What lives here: statements. What does not: what a mark's call
does (placing.py), which function (source.py).
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

from .source import Definition, where
from .words import RunTime, Words, collected

Place = Callable[[Mark, Any, int, bool], str]
"""Mark, value (None, a number known now, or a RunTime), line, whether a predicate follows -> the name of the global to
call."""
_ENDS = (ast.Return, ast.Break, ast.Continue, ast.Raise)
_LOOP, _FINALLY = "loop", "finally"


def lower(
    definition: Definition, function: FunctionType, place: Place | None, named: Mapping[str, scope] | None = None
) -> Definition:
    """The definition with calls in the place of marks; without them where `place` is None. named: scopes that names in
    the definition stand for, beside those that the function knows.

    Raises UsageError and UnsupportedError that name the file and line.
    """
    lowering = _Lowering(function, place, named or {})
    definition.body = lowering.body(definition.body)
    ast.fix_missing_locations(definition)
    return definition


class _Lowering(ast.NodeTransformer):
    """open: what is open around the statement that is visited, outermost first: scopes, loops, and try blocks
    that have a finally."""

    def __init__(self, function: FunctionType, place: Place | None, named: Mapping[str, scope]) -> None:
        self._function, self._place = function, place
        self._words = Words(function, self.visit)
        self._words.named.update(named)
        self._open: list[Any] = []
        self._results = 0

    # statements

    def body(self, statements: Iterable[ast.stmt]) -> list[ast.stmt]:
        """A block's statements, lowered; never none."""
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
        entered = self._words.scope(item.context_expr)
        if entered is None:
            expected = "expected kscope.region(name), or a scope that is known when the kernel is compiled"
            text = f"with {ast.unparse(item.context_expr)}: {expected}; Numba compiles no other `with`"
            raise self._words.error(item.context_expr, text)
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
            raise self._words.error(target, f"`as {ast.unparse(target)}`: a region has one name")
        others = [
            code for code in (self._words.named.get(target.id),) if code is not None and code.name != entered.name
        ]
        if others:
            raise self._words.error(target, f"`as {target.id}` names another region in this function: use another name")
        self._words.named[target.id] = entered

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
        kept = ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], node.value), node)
        last = ast.copy_location(ast.Return(ast.Name(name, ast.Load())), node)
        return [kept, *exits, last]

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Call) and (act := self._words.act(node.value)) is not None:
            return self._marks(act, node.lineno)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        with self._inside(node):
            node.body = self.body(node.body)
        return node

    # expressions

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        with self._inside(node):
            node.body = self.visit(node.body)
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        act = self._words.act(node)
        if act is None:
            return self.generic_visit(node)
        calls = [statement.value for statement in self._marks(act, node.lineno) if isinstance(statement, ast.Expr)]
        return ast.copy_location(calls[0] if calls else ast.Constant(None), node)

    def visit_Yield(self, node: ast.Yield) -> Any:
        if any(isinstance(found, scope) for found in self._open):
            raise self._words.error(node, "yield inside of a region: a region begins and ends in one call")
        return self.generic_visit(node)

    @contextmanager
    def _inside(self, node: ast.FunctionDef | ast.Lambda) -> Generator[None, None, None]:
        """A function within the function: its own variables, and nothing open."""
        before = self._words.locals, self._open
        arguments = node.args
        names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        stored = [
            found.id for found in ast.walk(node) if isinstance(found, ast.Name) and isinstance(found.ctx, ast.Store)
        ]
        self._words.locals, self._open = {*before[0], *(name.arg for name in names if name), *stored}, []
        yield
        self._words.locals, self._open = before

    # marks

    def _leaving(self, node: ast.stmt, opened: list[Any]) -> list[ast.stmt]:
        """The exits of the scopes that a jump leaves."""
        scopes = [found for found in opened if isinstance(found, scope)]
        if scopes and _FINALLY in opened:
            raise self._words.error(node, "a jump out of a region, through a finally: end the region before")
        return self._exits(scopes, node.lineno)

    def _exits(self, scopes: list[scope], line: int) -> list[ast.stmt]:
        out = []
        for left in reversed(scopes):
            out += self._marks(partial(left.__exit__, None, None, None), line)
        return out

    def _marks(self, act: Callable[[], Any], line: int) -> list[ast.stmt]:
        """The calls that one of kscope's words becomes."""
        try:
            marks = collected(act)
        except (KscopeError, TypeError) as error:
            kind = type(error) if isinstance(error, KscopeError) else UsageError
            raise kind(f"{where(self._function, line)}: {error}") from None
        if self._place is None:
            return []
        out = []
        for mark, value, when in marks:
            name = self._place(mark, value, line, isinstance(when, RunTime))
            late = [given.expression for given in (value, when) if isinstance(given, RunTime)]
            call = ast.Call(ast.Name(name, ast.Load()), late, [])
            out.append(_at(ast.Expr(call), line))
        return out


def refuse(function: FunctionType, reason: str) -> UnsupportedError:
    """The error for a function with a `with` whose source cannot be lowered."""
    return UnsupportedError(
        f"{function.__qualname__} ({where(function)}) has regions, and {reason}; Numba cannot compile `with`, and "
        'kscope rewrites it in the source. Declare LOAD = kscope.scope("load") outside of the kernel and call '
        "LOAD.enter() and LOAD.exit() in it, which needs no source"
    )


def has_with(function: FunctionType) -> bool:
    """Whether there is a `with` in the function's bytecode."""
    opens = ("SETUP_WITH", "BEFORE_WITH", "LOAD_SPECIAL")
    return any(one.opname in opens for code in nested(function.__code__) for one in dis.get_instructions(code))


def _at(statement: ast.stmt, line: int) -> ast.stmt:
    """The statement on that line of the user's file; what stands in it keeps its own place."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.expr, ast.stmt)) and not hasattr(node, "lineno"):
            node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = line, line, 0, 0
    return statement
