"""Puts statements of a Python kernel into a `with`, by kind: loops, barriers, waits, loads and stores. A statement is
of a kind if its text matches the language's pattern for that kind; it loads or stores if it reads or writes an element
of a parameter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from . import auto
from .auto import Lines, Selection
from .catalog import Site
from .pylines import Block, blocks, region

Words = Sequence[tuple[tuple[str, ...], re.Pattern[str]]]
"""Kinds of operation, narrowest first, and the pattern in the text of such a statement."""
_LOOPS = (ast.For, ast.While)
_PLAIN = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)


@dataclass
class Kinds:
    """Marks one function.

    Attributes:
        selection: the selection.
        file: the source's name in regions.
        words: patterns of the kinds.
        item: returns the expression that a `with` enters.
        sites: the marked statements.
    """

    selection: Selection
    file: str
    words: Words
    item: Callable[[Lines], ast.expr]
    sites: list[Site] = field(default_factory=list)

    def mark(self, definition: ast.FunctionDef) -> ast.FunctionDef:
        """Put every statement of a selected kind into a `with`, in place; returns the definition."""
        arguments = definition.args
        named = {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        definition.body = self._block(definition.body, named, ())
        return definition

    def _block(self, block: Block, named: set[str], loops: tuple[str, ...]) -> Block:
        return [self._statement(statement, named, loops) for statement in block]

    def _statement(self, statement: ast.stmt, named: set[str], loops: tuple[str, ...]) -> ast.stmt:
        kind = self.selection.kind(self._kinds(statement, named))
        made = None if kind is None else self._noted(kind, statement, [statement], loops)
        looped = isinstance(statement, _LOOPS)
        inner = (*loops, f"{self.file}:{statement.lineno}") if looped else loops
        if not isinstance(statement, ast.FunctionDef):
            for block in blocks(statement):
                block[:] = self._block(block, named, inner)
        if isinstance(statement, _LOOPS) and "iteration" in self.selection.kinds:
            statement.body = [region(self._noted("iteration", statement, statement.body, inner), statement.body)]
        return statement if made is None else region(made, [statement])

    def _noted(self, kind: str, at: ast.stmt, body: Block, loops: tuple[str, ...]) -> ast.expr:
        name = auto.name(kind, self.file, at.lineno)
        first, last = body[0].lineno, body[-1].end_lineno or body[-1].lineno
        lines = Lines(name, self.file, first, last, "auto")
        self.sites.append(Site(name, kind, lines.where, loops, operations=len(body)))
        return self.item(lines)

    def _kinds(self, statement: ast.stmt, named: set[str]) -> tuple[str, ...]:
        if isinstance(statement, _LOOPS):
            return ("loop",)
        if not isinstance(statement, _PLAIN):
            return ()
        text = ast.unparse(statement)
        found = [kind for kinds, pattern in self.words if pattern.search(text) for kind in kinds]
        return (*found, *_memory(statement, named))


def _memory(statement: ast.stmt, named: set[str]) -> Iterator[str]:
    """Yield store if the statement writes an element of a parameter, load if it reads one."""
    elements = [
        node
        for node in ast.walk(statement)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in named
    ]
    written = [node for node in elements if isinstance(node.ctx, ast.Store)]
    if written:
        yield "store"
    if len(written) < len(elements) or (written and isinstance(statement, ast.AugAssign)):
        yield "load"
