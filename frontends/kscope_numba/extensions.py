"""Numba extensions for functions without source: LOAD.enter(), LOAD.exit(), instant(), counter(), role() and so on.
Without source there is nothing to rewrite, so Numba types and lowers these calls itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kscope.errors import UsageError
from kscope.language.regions import MARKS_BY_CALL, begin, end, role, scope
from kscope.marks.constants import with_constant

from .emit import signature_and_emitter
from .evaluator import collected
from .hook_points import module

_types: Any = module("types")
_extending: Any = module("extending")
_templates: Any = module("typing.templates")
_models: Any = module("datamodel.models")
_METHODS = ("enter", "exit")
_registered = False


class ScopeType(_types.Dummy):
    """Numba's type of a scope declared outside the kernel."""

    def __init__(self, declared: scope) -> None:
        self.declared = declared
        super().__init__(name=f"kscope.scope({declared.name!r}, {id(declared)})")


def register(emits_marks: Callable[[], bool]) -> None:
    """Register the extensions, once. emits_marks: returns False while marks are dropped."""
    global _registered
    if _registered:
        return
    _registered = True
    _extending.register_model(ScopeType)(_models.OpaqueModel)
    _extending.typeof_impl.register(scope)(lambda declared, context: ScopeType(declared))
    for function in MARKS_BY_CALL:
        _register_function(function, emits_marks)
    methods = {name: _method(name, emits_marks) for name in _METHODS}

    class Methods(_templates.AttributeTemplate):
        key = ScopeType

        def generic_resolve(self, kind: ScopeType, name: str) -> Any:
            return _types.BoundFunction(methods[name], kind) if name in methods else None

    _extending.infer_getattr(Methods)


def _register_function(function: Any, emits_marks: Callable[[], bool]) -> None:
    """Register instant(), counter() and the like; the name must be a literal."""

    def bind(arguments: tuple[Any, ...]) -> tuple[Callable[[], Any], Any]:
        name = getattr(arguments[0], "literal_value", None)
        if not isinstance(name, str):
            raise UsageError(
                f"kscope.{function.__name__}(): the name must be a string literal in a function without source"
            )
        value = arguments[1] if len(arguments) > 1 else None
        return lambda: function(name, *arguments[1:]), value

    shape = inspect.signature((lambda name: None) if function is role else lambda name, value=None: None)
    if function in (begin, end):
        shape = inspect.signature(lambda name, key=None: None)
    template = _template(function, bind, shape, emits_marks)
    _templates.infer_global(function, _types.Function(template))


def _method(name: str, emits_marks: Callable[[], bool]) -> Any:
    """A scope's enter() or exit()."""

    def bind(arguments: tuple[Any, ...]) -> tuple[Callable[[], Any], Any]:
        declared: Any = arguments[0].declared
        return (lambda: getattr(declared, name)(*arguments[1:])), arguments[1] if len(arguments) > 1 else None

    shape = inspect.signature((lambda value=None: None) if name == "enter" else lambda: None)
    return _template(f"kscope.{name}", bind, shape, emits_marks)


def _template(key: Any, bind: Any, shape: inspect.Signature, emits_marks: Callable[[], bool]) -> Any:
    """Numba's template for one call: its signature and its lowering."""

    def emitter(arguments: tuple[Any, ...]) -> Any:
        call, kind = bind(arguments)
        value = None if kind is None or kind == _types.none or isinstance(kind, _types.Omitted) else kind
        ((mark, constant, _),) = collected(call)
        if value is None and constant is not None:
            mark = with_constant(mark, constant) or mark
        return signature_and_emitter(mark, value)

    class MarkTemplate(_templates.AbstractTemplate):
        prefer_literal = True

        def generic(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            bound = shape.bind(*arguments, **keywords).arguments
            receiver = getattr(self, "this", None)  # the scope of a method
            emitter((*(() if receiver is None else (receiver,)), *bound.values()))
            parameters = [shape.parameters[name].replace(default=inspect.Parameter.empty) for name in bound]
            return _templates.signature(_types.void, *bound.values()).replace(
                pysig=inspect.Signature(parameters), recvr=receiver
            )

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if emits_marks():
            emitter(signature.args)[1](context, builder, signature, arguments)
        return context.get_dummy_value()

    MarkTemplate.key = key
    _extending.lower_builtin(key, _types.VarArg(_types.Any))(lower)
    return MarkTemplate
