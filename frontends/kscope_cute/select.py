"""Kernels that nobody annotated: CuTe's preprocessor, which reads a function's source, finds regions in it.

CuTe DSL compiles a function from its syntax tree, once, and puts the result into the function. A function in which
something is selected goes through it again, from its own code, and once more when the selection ends. What lives here:
that. What does not: which statements a range of lines means or are of a kind (kscope/selection),
marks (placing.py).
"""

from __future__ import annotations

import ast
import linecache
import re
import threading
from collections.abc import Callable
from pathlib import PurePath
from types import CodeType, FunctionType
from typing import Any

from cutlass.base_dsl import ast_preprocessor
from cutlass.base_dsl import dsl as cute_dsl

from kscope.capture.model import Problem
from kscope.errors import UsageError
from kscope.instrument.code_objects import nested
from kscope.instrument.hooks import Hook
from kscope.instrument.selection import pylines
from kscope.instrument.selection.auto import Selection
from kscope.instrument.selection.catalogue import Site, Sites
from kscope.instrument.selection.pykinds import Kinds

from . import hook_points

_REPLACE, _READ = "_preprocess_and_replace_code", "check_decorator"
_DONE, _ORIGINAL, _OFF = "_preprocessed", "_original_code", "_preprocess_enabled"
"""Attributes that CuTe gives a function: it has been through the preprocessor; its own code (4.8); it never will be."""
_CUTLASS = ("cutlass", "kscope")
_WORDS = tuple(
    (kinds, re.compile(words))
    for kinds, words in (
        (("async_wait", "wait"), r"cp_async_wait|cp_async_mbarrier"),
        (("wait",), r"\b\w*wait\w*\("),
        (("tma",), r"\btma_\w+|cp_async_bulk"),
        (("dot",), r"\bgemm\("),
        (("barrier",), r"\b(sync_threads|sync_warp|barrier\w*|\w*arrive\w*)\("),
        (("store",), r"\.store\("),
        (("load",), r"\bcute\.copy\(|\bautovec_copy\(|\.load\("),
    )
)
"""Kinds of operation by what CuTe's functions are called."""


class Selected:
    """The hooks on CuTe's preprocessor, while something is selected. sites: what was marked."""

    def __init__(self) -> None:
        self.sites = Sites()
        self._selection = Selection()
        self._marked: dict[FunctionType, CodeType] = {}
        self._now = threading.local()
        self._replace = Hook(cute_dsl.BaseDSL, _REPLACE, self._replaced)
        self._read = Hook(ast_preprocessor.DSLPreprocessor, _READ, self._checked)

    def check(self) -> None:
        """Raises UnsupportedError naming the hook point that this CuTe DSL lacks."""
        hook_points.check(cute_dsl.BaseDSL, _REPLACE, "base_dsl.dsl.BaseDSL")
        hook_points.check(ast_preprocessor.DSLPreprocessor, _READ, "base_dsl.ast_preprocessor.DSLPreprocessor")

    def install(self, selection: Selection) -> None:
        """Functions are read with regions around what is selected from now on."""
        if selection != self._selection:
            self._restore(*self._marked)
        if not selection:
            self.remove()
            return
        self._selection = selection
        self._replace.install()
        self._read.install()

    def remove(self) -> None:
        """Inverse of install(): every function is what it was, or is read again when it is called."""
        self._replace.remove()
        self._read.remove()
        self._restore(*self._marked)
        self._selection = Selection()

    def problems(self) -> tuple[Problem, ...]:
        """Functions in which nothing could be marked that is selected by its kind."""
        return self.sites.missed(self._selection)

    def means(self, function: FunctionType) -> bool:
        """Whether something in this function may be selected."""
        if self._selection.kinds and (function.__module__ or "").partition(".")[0] not in _CUTLASS:
            return True
        return bool(self._selection.lines) and bool(pylines.touched(self._selection.lines, function.__code__))

    def _restore(self, *functions: FunctionType) -> None:
        for function in functions:
            _read_again(function, self._marked.pop(function))

    def _replaced(self, original: Callable[..., Any], function: Any) -> Any:
        """CuTe's step before each call of a function: put its preprocessed code in place, if it is not there."""
        if function in self._marked or not self.means(function):
            return original(function)
        lines = pylines.touched(self._selection.lines, function.__code__)
        done = getattr(function, _DONE, False)
        own = _own_code(function) if done else function.__code__
        off = getattr(function, _OFF, True) is False or (done and own == function.__code__)  # 4.4 calls it done
        if off or own is None:
            why = "preprocess=False" if off else "no source at hand that is what was imported"
            if not lines:  # statements of a kind that cannot be marked stay as they are
                code = function.__code__
                place = f"{code.co_filename}:{code.co_firstlineno}"
                if self._selection.of_kernel(function.__name__):
                    self.sites.miss(self._selection, function.__qualname__, place, f"it has {why}")
                return original(function)
            raise UsageError(f"region {lines[0]}: CuTe does not read {function.__qualname__}, which has {why}")
        _read_again(function, own)
        self._marked[function], self._now.asked = own, function
        try:
            return original(function)
        except UsageError:
            self._restore(function)
            raise
        finally:
            self._now.asked = None

    def _checked(self, original: Callable[..., Any], preprocessor: Any, node: Any) -> Any:
        """CuTe's question whether a function that it has just read is one of its own. The tree is still the user's."""
        found = original(preprocessor, node)
        function, self._now.asked = getattr(self._now, "asked", None), None
        if found and function is not None and (self._selection.of_kernel(node.name) or not _is_kernel(node)):
            self._mark(node, function)
        return found

    def _mark(self, node: ast.FunctionDef, function: FunctionType) -> None:
        """Put the regions in. Raises UsageError."""
        lines = pylines.touched(self._selection.lines, function.__code__)
        pylines.wrap(node, lines, pylines.entered)
        self.sites.add(self._selection, (Site(one.name, "lines", one.where) for one in lines))
        if self._selection.kinds:
            kinds = Kinds(self._selection, PurePath(function.__code__.co_filename).name, _WORDS, pylines.entered)
            kinds.mark(node)
            self.sites.add(self._selection, kinds.sites)


def _read_again(function: Any, own: CodeType) -> None:
    """The function as before it went through the preprocessor, which takes it for new."""
    function.__code__ = own
    setattr(function, _DONE, False)
    preprocessor = getattr(getattr(function, "_dsl_object", None), "preprocessor", None)
    getattr(preprocessor, "processed_functions", set()).discard(function)  # 4.4 to 4.6 keep them


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
        found = list(nested(compile(text, code.co_filename, "exec", dont_inherit=True)))
    except SyntaxError:
        return None
    same = [one for one in found if one.co_name == code.co_name and one.co_firstlineno <= code.co_firstlineno]
    own = max(same, key=lambda one: one.co_firstlineno, default=None)
    return own if own is not None and own.co_freevars == code.co_freevars else None
