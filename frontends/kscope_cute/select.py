"""Unannotated kernels: adds regions in CuTe's preprocessor, which compiles each function from its syntax tree."""

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
from kscope.instrument.hooks import Hook, Hooks
from kscope.instrument.selection import pylines
from kscope.instrument.selection.auto import Selection
from kscope.instrument.selection.catalog import Site, Sites
from kscope.instrument.selection.pykinds import Kinds
from kscope.language.selected_scopes import scope_expression

from . import hook_points

_REPLACE, _READ = "_preprocess_and_replace_code", "check_decorator"
_DONE, _ORIGINAL, _ENABLED = "_preprocessed", "_original_code", "_preprocess_enabled"
"""Attributes that CuTe sets on a function: it was preprocessed; its original code (4.8); whether it may be."""
_LIBRARIES = ("cutlass", "kscope")
_KINDS = tuple(
    (kinds, re.compile(pattern))
    for kinds, pattern in (
        (("async_wait", "wait"), r"cp_async_wait|cp_async_mbarrier"),
        (("wait",), r"\b\w*wait\w*\("),
        (("tma",), r"\btma_\w+|cp_async_bulk"),
        (("dot",), r"\bgemm\("),
        (("barrier",), r"\b(sync_threads|sync_warp|barrier\w*|\w*arrive\w*)\("),
        (("store",), r"\.store\("),
        (("load",), r"\bcute\.copy\(|\bautovec_copy\(|\.load\("),
    )
)
"""Kinds of operation by the names of CuTe's functions."""


class SelectionHooks:
    """The hooks on CuTe's preprocessor, while something is selected. sites: the marked sites.

    CuTe preprocesses a function once and stores the code in it. A function with selected code is preprocessed again
    from its original code. When the selection ends, the code without marks replaces it in one step: another thread may
    be about to trace the function.
    """

    def __init__(self) -> None:
        self.sites = Sites()
        self._selection = Selection()
        self._marked: dict[FunctionType, CodeType] = {}  # their preprocessed code without marks
        self._changing = threading.RLock()  # of _marked and the selection
        self._thread = threading.local()
        replace = Hook(cute_dsl.BaseDSL, _REPLACE, self._preprocess)
        self._hooks = Hooks(replace, Hook(ast_preprocessor.DSLPreprocessor, _READ, self._check_decorator))

    def check(self) -> None:
        """Raises UnsupportedError naming a missing hook point."""
        hook_points.check(cute_dsl.BaseDSL, _REPLACE, "base_dsl.dsl.BaseDSL")
        hook_points.check(ast_preprocessor.DSLPreprocessor, _READ, "base_dsl.ast_preprocessor.DSLPreprocessor")

    def install(self, selection: Selection) -> None:
        """Mark the selected code of functions that are preprocessed from now on."""
        with self._changing:
            if selection != self._selection:
                self._restore(*self._marked)
            if not selection:
                self.remove()
                return
            self._selection = selection
            self._hooks.install()

    def remove(self) -> None:
        """Inverse of install(): marked functions lose their marks."""
        with self._changing:
            self._hooks.remove()
            self._restore(*self._marked)
            self._selection = Selection()

    def problems(self) -> tuple[Problem, ...]:
        """Functions in which the selected kinds could not be marked."""
        return self.sites.missed(self._selection)

    def touches(self, function: FunctionType) -> bool:
        """True if the selection may match something in this function."""
        if self._selection.kinds and (function.__module__ or "").partition(".")[0] not in _LIBRARIES:
            return True
        return bool(self._selection.lines) and bool(pylines.touched(self._selection.lines, function.__code__))

    def _restore(self, *functions: FunctionType) -> None:
        for function in functions:
            _replace(function, self._marked.pop(function), done=True)

    def _preprocess(self, original: Callable[..., Any], function: Any) -> Any:
        """Around CuTe's step before each call, which installs the preprocessed code if it is missing."""
        with self._changing:
            return self._preprocess_once(original, function)

    def _preprocess_once(self, original: Callable[..., Any], function: Any) -> Any:
        if function in self._marked or not self.touches(function):
            return original(function)
        lines = pylines.touched(self._selection.lines, function.__code__)
        done = getattr(function, _DONE, False)
        code = _original_code(function) if done else function.__code__
        off = getattr(function, _ENABLED, True) is False or (done and code == function.__code__)  # set by 4.4
        if off or code is None:
            why = "preprocess=False" if off else "no source that matches what was imported"
            if not lines:  # kinds that cannot be marked are only reported
                place = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
                if self._selection.of_kernel(function.__name__):
                    self.sites.miss(self._selection, function.__qualname__, place, f"it has {why}")
                return original(function)
            raise UsageError(f"region {lines[0]}: CuTe does not preprocess {function.__qualname__}, which has {why}")
        original(function)  # without marks
        self._marked[function], self._thread.function = function.__code__, function
        _replace(function, code, done=False)
        try:
            return original(function)
        except UsageError:
            self._restore(function)
            raise
        finally:
            self._thread.function = None

    def _check_decorator(self, original: Callable[..., Any], preprocessor: Any, node: Any) -> Any:
        """Around CuTe's check whether a function has its decorator; the syntax tree is still the user's."""
        decorated = original(preprocessor, node)
        function, self._thread.function = getattr(self._thread, "function", None), None
        if decorated and function is not None and (self._selection.of_kernel(node.name) or not _is_kernel(node)):
            self._mark(node, function)
        return decorated

    def _mark(self, node: ast.FunctionDef, function: FunctionType) -> None:
        """Add the regions. Raises UsageError."""
        lines = pylines.touched(self._selection.lines, function.__code__)
        pylines.wrap(node, lines, scope_expression)
        self.sites.add(self._selection, (Site(one.name, "lines", one.where) for one in lines))
        if self._selection.kinds:
            kinds = Kinds(self._selection, PurePath(function.__code__.co_filename).name, _KINDS, scope_expression)
            kinds.mark(node)
            self.sites.add(self._selection, kinds.sites)


def _replace(function: Any, code: CodeType, *, done: bool) -> None:
    """Replace the function's code. done: it is preprocessed; else CuTe preprocesses it at its next call."""
    function.__code__ = code
    setattr(function, _DONE, done)
    preprocessor = getattr(getattr(function, "_dsl_object", None), "preprocessor", None)
    processed: set[Any] = getattr(preprocessor, "processed_functions", set())  # 4.4 to 4.6
    (processed.add if done else processed.discard)(function)


def _is_kernel(node: ast.FunctionDef) -> bool:
    named = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    return any(isinstance(one, ast.Attribute) and one.attr == "kernel" for one in named)


def _original_code(function: FunctionType) -> CodeType | None:
    """The function's code before CuTe replaced it: stored by CuTe, else compiled again from the source."""
    stored = getattr(function, _ORIGINAL, None)
    if isinstance(stored, CodeType):
        return stored
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    try:
        found = list(nested(compile(text, code.co_filename, "exec", dont_inherit=True)))
    except SyntaxError:
        return None
    same = [one for one in found if one.co_name == code.co_name and one.co_firstlineno <= code.co_firstlineno]
    latest = max(same, key=lambda one: one.co_firstlineno, default=None)
    return latest if latest is not None and latest.co_freevars == code.co_freevars else None
