"""A wrapper around another library's function, while recording is enabled.

Hook(compiler, "compile", around)       compile(x) becomes around(original, x)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import getattr_static
from typing import Any

Around = Callable[..., Any]
"""Called as around(original, *args, **kwargs) instead of the function."""
_INHERITED = object()


@dataclass
class _Layer:
    """The previous value, as its owner holds it, and the wrapper."""

    found: Any
    placed: Any = None
    active: bool = True


class Hook:
    """Wraps the attribute `name` of a class, module or object.

    Static methods, class methods and properties keep their kind; for a property, reading is wrapped. Another tool may
    wrap the same function afterwards and keep calling this wrapper, or restore what it found before. So remove()
    restores the original only if this wrapper is still in place. Otherwise the wrapper stays and only calls the
    original, and install() adds a new one on top: the old one could end up calling itself.
    """

    def __init__(self, owner: Any, name: str, around: Around) -> None:
        self._owner, self._name, self._around = owner, name, around
        self._layer: _Layer | None = None

    def wraps(self, owner: Any, name: str) -> bool:
        """True if it wraps this attribute."""
        return self._owner is owner and self._name == name

    def install(self) -> None:
        """Put the wrapper in place; idempotent."""
        if self._layer is not None:
            if self._held() is self._layer.placed:
                return
            self._layer.active = False
        self._layer = layer = _Layer(self._held())
        layer.placed = self._wrapped(layer)
        setattr(self._owner, self._name, layer.placed)

    def remove(self) -> None:
        """Restore the original, if the wrapper is still in place."""
        layer, self._layer = self._layer, None
        if layer is None:
            return
        layer.active = False
        if self._held() is not layer.placed:
            return
        if layer.found is _INHERITED:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, layer.found)

    def _held(self) -> Any:
        return vars(self._owner).get(self._name, _INHERITED)

    def _wrapped(self, layer: _Layer) -> Any:
        look = getattr_static if isinstance(self._owner, type) else getattr  # unbound in a class, bound in an object
        found = look(self._owner, self._name)
        bound = isinstance(found, (staticmethod, classmethod))
        original: Any = found.fget if isinstance(found, property) else found.__func__ if bound else found

        @wraps(original)  # CuTe reads signatures
        def placed(*args: Any, **kwargs: Any) -> Any:
            return self._around(original, *args, **kwargs) if layer.active else original(*args, **kwargs)

        if isinstance(found, property):
            return property(placed, found.fset, found.fdel)
        return type(found)(placed) if bound else placed


class Hooks:
    """Hooks that are installed and removed together."""

    def __init__(self, *hooks: Hook) -> None:
        self._hooks = hooks
        self._added: list[Hook] = []

    def add(self, owner: Any, name: str, around: Around) -> None:
        """Install a hook until remove(), unless the owner lacks the attribute; idempotent."""
        if hasattr(owner, name):
            if not any(hook.wraps(owner, name) for hook in self._added):
                self._added.append(Hook(owner, name, around))
            self.install()

    def install(self) -> None:
        """Put every wrapper in place; idempotent."""
        for hook in (*self._hooks, *self._added):
            hook.install()

    def remove(self) -> None:
        """Restore every original whose wrapper is still in place."""
        for hook in (*self._hooks, *self._added):
            hook.remove()
        self._added.clear()
