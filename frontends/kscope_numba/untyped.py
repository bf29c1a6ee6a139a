"""Functions without source: LOAD.enter(), LOAD.exit(), instant() and counter() as Numba extensions.

Without source there is nothing to rewrite, so Numba types and lowers these calls itself. The extensions are
registered once, stay registered, and affect only functions that use kscope.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kscope.errors import UsageError
from kscope.language.regions import counter, instant, scope
from kscope.marks.constants import with_constant

from .emit import typed
from .hook_points import module
from .words import collected

_types: Any = module("types")
_extending: Any = module("extending")
_templates: Any = module("typing.templates")
_models: Any = module("datamodel.models")
_METHODS = ("enter", "exit")
_made = False


class ScopeType(_types.Dummy):
    """The Numba type of one scope declared outside the kernel."""

    def __init__(self, declared: scope) -> None:
        self.declared = declared
        super().__init__(name=f"kscope.scope({declared.name!r}, {id(declared)})")


def register(active: Callable[[], bool]) -> None:
    """Register the extensions, once. active: returns whether marks are placed now."""
    global _made
    if _made:
        return
    _made = True
    _extending.register_model(ScopeType)(_models.OpaqueModel)
    _extending.typeof_impl.register(scope)(lambda declared, context: ScopeType(declared))
    for function in (instant, counter):
        _function(function, active)
    methods = {name: _method(name, active) for name in _METHODS}

    class Methods(_templates.AttributeTemplate):
        key = ScopeType

        def generic_resolve(self, kind: ScopeType, name: str) -> Any:
            return _types.BoundFunction(methods[name], kind) if name in methods else None

    _extending.infer_getattr(Methods)


def _function(function: Any, active: Callable[[], bool]) -> None:
    """instant() or counter(), whose name must be a literal."""

    def act(arguments: tuple[Any, ...]) -> tuple[Callable[[], Any], Any]:
        name = getattr(arguments[0], "literal_value", None)
        if not isinstance(name, str):
            raise UsageError(
                f"kscope.{function.__name__}(): the name must be a string literal where there is no source"
            )
        value = arguments[1] if len(arguments) > 1 else None
        return lambda: function(name, value), value

    template = _template(function, act, inspect.signature(lambda name, value=None: None), active)
    _templates.infer_global(function, _types.Function(template))


def _method(name: str, active: Callable[[], bool]) -> Any:
    """A scope's enter() or exit()."""

    def act(arguments: tuple[Any, ...]) -> tuple[Callable[[], Any], Any]:
        declared: Any = arguments[0].declared
        return (lambda: getattr(declared, name)(*arguments[1:])), arguments[1] if len(arguments) > 1 else None

    shape = inspect.signature((lambda value=None: None) if name == "enter" else lambda: None)
    return _template(f"kscope.{name}", act, shape, active)


def _template(key: Any, act: Any, shape: inspect.Signature, active: Callable[[], bool]) -> Any:
    """Numba's template for one call: its signature and its lowering."""

    def emitted(arguments: tuple[Any, ...]) -> Any:
        does, given = act(arguments)
        value = None if given is None or given == _types.none or isinstance(given, _types.Omitted) else given
        ((mark, known, _),) = collected(does)
        return typed(mark if value is not None or known is None else with_constant(mark, known) or mark, value)

    class Word(_templates.AbstractTemplate):
        prefer_literal = True

        def generic(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            given = shape.bind(*arguments, **keywords).arguments
            receiver = getattr(self, "this", None)  # the scope of a method
            emitted((*(() if receiver is None else (receiver,)), *given.values()))
            as_given = inspect.Signature(
                [shape.parameters[name].replace(default=inspect.Parameter.empty) for name in given]
            )
            return _templates.signature(_types.void, *given.values()).replace(pysig=as_given, recvr=receiver)

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if active():
            emitted(signature.args)[1](context, builder, signature, arguments)
        return context.get_dummy_value()

    Word.key = key
    _extending.lower_builtin(key, _types.VarArg(_types.Any))(lower)
    return Word
