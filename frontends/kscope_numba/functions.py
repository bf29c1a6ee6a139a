"""Where Numba turns a function into bytecode: functions with kscope's words, or selected lines, are rewritten.

Every kernel, device function, closure and inlined callee passes there. What lives here: that hook, in both of its
states: marks placed, or left out (plain). What does not: rewriting (lowering.py, source.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType
from typing import Any

from kscope.capture.model import Problem
from kscope.instrument.code_objects import uses_kscope
from kscope.instrument.hooks import Hook
from kscope.instrument.selection.auto import Selection
from kscope.instrument.selection.catalogue import Sites
from kscope.marks.grammar import Mark

from . import emit as placing
from . import helpers, source, untyped
from . import select as selected
from .hook_points import check, module
from .lowering import Place, has_with, lower, refuse
from .words import RunTime

_bytecode: Any = module("core.bytecode")
_descriptor: Any = module("descriptor")
_stack: Any = module("typing.context").CallStack
_identity: Any = _bytecode.FunctionIdentity
_POINT, _FRAMES = "from_function", "finditer"
_NOTHING = selected.Asked()


class Functions:
    """The hook. placing: whether marks are placed; otherwise they are left out. sites: what was marked that nobody
    annotated."""

    def __init__(self) -> None:
        self.placing = False
        self.sites = Sites()
        self._selection = Selection()
        self._is_kernel: Callable[[FunctionType], bool] = lambda function: True
        self._hooks = Hook(_identity, _POINT, self._from_function), Hook(_stack, _FRAMES, _frames)
        self._known = False  # to Numba, that there are extensions

    def check(self) -> None:
        """Raises UnsupportedError naming the hook point that this numba-cuda lacks."""
        check(_bytecode, "get_function_object")
        check(_identity, _POINT)
        check(_stack, _FRAMES, "findfirst", "match")
        check(_descriptor.cuda_target, "typing_context", "target_context")

    def select(self, selection: Selection, is_kernel: Callable[[FunctionType], bool]) -> None:
        """What is marked from now on. is_kernel: whether the function that is compiled now is a kernel."""
        self._selection, self._is_kernel = selection, is_kernel

    def problems(self) -> tuple[Problem, ...]:
        """Functions in which nothing could be marked that is selected."""
        return self.sites.missed(self._selection)

    def install(self, placing: bool) -> None:
        """Idempotent; later calls change whether marks are placed."""
        self.placing = placing
        self._selection = self._selection if placing else Selection()
        untyped.register(lambda: self.placing)
        helpers.register()
        for hook in self._hooks:
            hook.install()
        if not self._known:
            self._known = True
            if getattr(_descriptor.cuda_target.typing_context, "_registries", True):
                _refresh()  # else it looks around when it first compiles: it may be imported and unusable

    def remove(self) -> None:
        """Inverse of install()."""
        self.placing = self._known = False
        for hook in self._hooks:
            hook.remove()

    def _from_function(self, original: Callable[..., Any], kind: Any, function: Any) -> Any:
        found = _bytecode.get_function_object(function)
        if isinstance(found, FunctionType) and source.LOWERED not in vars(found):
            asked = selected.asked(found, self._selection, self._is_kernel)
            if asked or uses_kscope(found):
                function = self.rewritten(found, asked)
        return original(kind, function)

    def rewritten(self, function: FunctionType, asked: selected.Asked = _NOTHING) -> FunctionType:
        """The function that Numba compiles in this one's place, with the regions that are asked for as well.
        Raises UnsupportedError, UsageError."""
        names: dict[str, Any] = {}
        place = partial(_place, function, names) if self.placing else None
        try:
            made = source.rebuilt(function, lambda found: _lowered(found, function, asked, place), names)
        except source.NoSourceError as error:
            if asked.lines:
                raise selected.refused(asked.lines[0], function, str(error)) from None
            if has_with(function):
                raise refuse(function, str(error)) from None
            if asked.kinds:
                self.sites.miss(self._selection, function.__qualname__, source.where(function), str(error))
            return function
        self.sites.add(self._selection, asked.sites)
        if names:
            _refresh()
        return made


def _frames(original: Any, stack: Any, function: Any) -> Iterator[Any]:
    """Where a function is being compiled, innermost first: a function that calls itself names the user's, and Numba
    compiles the one that was made of it."""
    return (frame for frame in stack if source.users(frame.func_id.func) is source.users(function))


def _lowered(
    definition: source.Definition, function: FunctionType, asked: selected.Asked, place: Place | None
) -> source.Definition:
    wrapped, named = selected.wrapped(definition, function, asked)
    return lower(wrapped, function, place, named)


def _place(function: FunctionType, names: dict[str, Any], mark: Mark, value: Any, line: int, asked: bool) -> str:
    """Adds what is called for a mark to the names that the function will know; its name."""
    late = isinstance(value, RunTime)
    name = f"kscope_{mark.act}_{len(names)}"
    names[name] = placing.call(mark, None if late else value, late, source.where(function, line), asked)
    return name


def _refresh() -> None:
    """Numba takes notice of extensions when it is told to."""
    _descriptor.cuda_target.typing_context.refresh()
    _descriptor.cuda_target.target_context.refresh()
