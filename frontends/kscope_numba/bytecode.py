"""The hook where Numba turns a function into bytecode: functions with regions or selected code are rewritten first.

Kernels, device functions, closures and inlined callees all pass through it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import Any

from kscope.capture.model import Problem
from kscope.instrument.code_objects import uses_kscope
from kscope.instrument.hooks import Hook, Hooks
from kscope.instrument.selection.auto import Selection
from kscope.instrument.selection.catalog import Sites
from kscope.language.mistakes import refuse_mistakes
from kscope.marks.grammar import Mark

from . import extensions, helpers, select, source
from .emit import mark_intrinsic
from .evaluator import RuntimeValue
from .hook_points import check, module
from .rewrite import cannot_rewrite, has_with, rewrite

_bytecode: Any = module("core.bytecode")
_descriptor: Any = module("descriptor")
_stack: Any = module("typing.context").CallStack
_identity: Any = _bytecode.FunctionIdentity
_POINT, _FRAMES = "from_function", "finditer"
_UNSELECTED = select.FunctionSelection()


class BytecodeHooks:
    """The hooks that rewrite functions.

    Attributes:
        emit_marks: True if regions become marks; they are dropped otherwise.
        sites: the sites that were marked for a selection.
    """

    def __init__(self) -> None:
        self.emit_marks = False
        self.sites = Sites()
        self._selection = Selection()
        self._is_kernel: Callable[[FunctionType], bool] = lambda function: True
        self._hooks = Hooks(Hook(_identity, _POINT, self._from_function), Hook(_stack, _FRAMES, _frames))
        self._refreshed = False  # True once Numba has loaded the extensions

    def check(self) -> None:
        """Raises UnsupportedError naming a missing hook point."""
        check(_bytecode, "get_function_object")
        check(_identity, _POINT)
        check(_stack, _FRAMES, "findfirst", "match")
        check(_descriptor.cuda_target, "typing_context", "target_context")

    def set_selection(self, selection: Selection, is_kernel: Callable[[FunctionType], bool]) -> None:
        """Set the selection. is_kernel: True if a function is being compiled as a kernel."""
        self._selection, self._is_kernel = selection, is_kernel

    def problems(self) -> tuple[Problem, ...]:
        """Selected functions in which nothing could be marked."""
        return self.sites.missed(self._selection)

    def install(self, emit_marks: bool) -> None:
        """Idempotent; later calls change emit_marks."""
        self.emit_marks = emit_marks
        self._selection = self._selection if emit_marks else Selection()
        extensions.register(lambda: self.emit_marks)
        helpers.register()
        self._hooks.install()
        if not self._refreshed:
            self._refreshed = True
            if getattr(_descriptor.cuda_target.typing_context, "_registries", True):
                _refresh()  # otherwise Numba loads extensions at its first compilation: it may be imported and unusable

    @contextmanager
    def unmarked(self) -> Generator[None]:
        """A context manager: functions that are compiled in it get no marks. Call it under Numba's lock."""
        before = self.emit_marks, self._selection
        self.emit_marks, self._selection = False, Selection()
        try:
            yield
        finally:
            self.emit_marks, self._selection = before

    def remove(self) -> None:
        """Inverse of install()."""
        self.emit_marks = self._refreshed = False
        self._hooks.remove()

    def _from_function(self, original: Callable[..., Any], kind: Any, function: Any) -> Any:
        plain = _bytecode.get_function_object(function)
        if isinstance(plain, FunctionType) and source.REWRITTEN not in vars(plain):
            selection = select.selection_for(plain, self._selection, self._is_kernel)
            if selection or uses_kscope(plain):
                refuse_mistakes(plain)
                function = self.rewritten(plain, selection)
        return original(kind, function)

    def rewritten(self, function: FunctionType, selection: select.FunctionSelection = _UNSELECTED) -> FunctionType:
        """The function that Numba compiles instead. Raises UnsupportedError, UsageError."""
        names: dict[str, Any] = {}
        emit_call = partial(_add_intrinsic, function, names) if self.emit_marks else None

        def change(definition: source.Definition) -> source.Definition:
            wrapped, scopes = select.wrap_regions(definition, function, selection)
            return rewrite(wrapped, function, emit_call, scopes)

        try:
            rebuilt = source.rebuild(function, change, names)
        except source.NoSourceError as error:
            if selection.lines:
                raise select.cannot_mark(selection.lines[0], function, str(error)) from None
            if has_with(function):
                raise cannot_rewrite(function, str(error)) from None
            if selection.kinds:
                self.sites.miss(self._selection, function.__qualname__, source.location(function), str(error))
            return function
        self.sites.add(self._selection, selection.sites)
        if names:
            _refresh()
        return rebuilt


def _frames(original: Any, stack: Any, function: Any) -> Iterator[Any]:
    """Frames that compile a function, innermost first: a recursive call names the original, not the rewritten one."""
    return (frame for frame in stack if source.original(frame.func_id.func) is source.original(function))


def _add_intrinsic(
    function: FunctionType, names: dict[str, Any], mark: Mark, value: Any, line: int, has_predicate: bool
) -> str:
    """Add the intrinsic of a mark to the function's new globals; return its name."""
    has_value = isinstance(value, RuntimeValue)
    name = f"kscope_{mark.act}_{len(names)}"
    constant = None if has_value else value
    names[name] = mark_intrinsic(mark, constant, has_value, source.location(function, line), has_predicate)
    return name


def _refresh() -> None:
    """Make Numba load newly registered extensions."""
    _descriptor.cuda_target.typing_context.refresh()
    _descriptor.cuda_target.target_context.refresh()
