"""Lines of kernels that nobody annotated: CuTe's preprocessor, which reads a function's source, finds regions there.

CuTe DSL compiles a function from its syntax tree, once, and puts the result into the function. A function whose lines
are selected goes through it again, from its own code, and once more when the selection ends. What lives here: that.
What does not: which statements a range of lines means (kscope/pylines.py), marks (placing.py).
"""

from __future__ import annotations

import ast
import linecache
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from cutlass.base_dsl import ast_preprocessor
from cutlass.base_dsl import dsl as cute_dsl

from kscope import pylines
from kscope.auto import Lines, Selection
from kscope.errors import UsageError

from .hooks import Hook

_DONE, _ORIGINAL, _OFF = "_preprocessed", "_original_code", "_preprocess_enabled"
"""Attributes that CuTe gives a function: it has been through the preprocessor; its own code (4.8); it never will be."""


class Selected:
    """The hooks on CuTe's preprocessor, while lines are selected."""

    def __init__(self) -> None:
        self._selection = Selection()
        self._marked: dict[FunctionType, tuple[CodeType, tuple[Lines, ...]]] = {}
        self._now = threading.local()
        self._replace = Hook(cute_dsl.BaseDSL, "_preprocess_and_replace_code", self._replaced)
        self._read = Hook(ast_preprocessor.DSLPreprocessor, "check_decorator", self._checked)

    def check(self) -> None:
        """Raises UnsupportedError naming the hook point that this CuTe DSL lacks."""
        self._replace.check("base_dsl.dsl.BaseDSL")
        self._read.check("base_dsl.ast_preprocessor.DSLPreprocessor")

    def install(self, selection: Selection) -> None:
        """Functions are read with regions around these lines from now on."""
        if not selection.lines:
            self.remove()
            return
        self._restore(tuple(function for function in self._marked if selection != self._selection))
        self._selection = selection
        self._replace.install()
        self._read.install()

    def remove(self) -> None:
        """Inverse of install(): every function is what it was, or is read again when it is called."""
        self._replace.remove()
        self._read.remove()
        self._restore(tuple(self._marked))
        self._selection = Selection()

    def means(self, function: FunctionType) -> bool:
        """Whether lines of this function are selected."""
        return bool(self._selection.lines) and bool(pylines.touched(self._selection.lines, function.__code__))

    def _restore(self, functions: tuple[FunctionType, ...]) -> None:
        for function in functions:
            own, _ = self._marked.pop(function)
            function.__code__ = own
            setattr(function, _DONE, False)

    def _replaced(self, original: Callable[..., Any], function: Any) -> Any:
        """CuTe's step before each call of a function: put its preprocessed code in place, if it is not there."""
        lines = tuple(pylines.touched(self._selection.lines, function.__code__))
        if not lines or function in self._marked:
            return original(function)
        if getattr(function, _OFF, True) is False:
            raise UsageError(
                f"region {lines[0]}: {function.__qualname__} has preprocess=False: CuTe reads no source of it"
            )
        own = _own_code(function) if getattr(function, _DONE, False) else function.__code__
        if own is None:
            raise UsageError(
                f"region {lines[0]}: the source of {function.__qualname__} is not at hand, or not what was imported"
            )
        function.__code__ = own
        setattr(function, _DONE, False)
        self._marked[function] = own, lines
        self._now.lines = lines
        try:
            return original(function)
        except UsageError:
            self._restore((function,))
            raise
        finally:
            self._now.lines = ()

    def _checked(self, original: Callable[..., Any], preprocessor: Any, node: Any) -> Any:
        """CuTe's question whether a function that it has just read is one of its own. The tree is still the user's."""
        found = original(preprocessor, node)
        lines, self._now.lines = getattr(self._now, "lines", ()), ()
        if found and lines and (self._selection.of_kernel(node.name) or not _is_kernel(node)):
            pylines.wrap(node, lines, pylines.entered)
        return found


def _is_kernel(node: ast.FunctionDef) -> bool:
    named = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    return any(isinstance(one, ast.Attribute) and one.attr == "kernel" for one in named)


def _own_code(function: FunctionType) -> CodeType | None:
    """The function's code before CuTe replaced it: kept by CuTe, else compiled again."""
    kept = getattr(function, _ORIGINAL, None)
    if isinstance(kept, CodeType):
        return kept
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    try:
        found = list(_codes(compile(text, code.co_filename, "exec", dont_inherit=True)))
    except SyntaxError:
        return None
    same = [one for one in found if one.co_name == code.co_name and one.co_firstlineno <= code.co_firstlineno]
    own = max(same, key=lambda one: one.co_firstlineno, default=None)
    return own if own is not None and own.co_freevars == code.co_freevars else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)
