"""A function of somebody else's, wrapped while recording is enabled.

    Hook(compiler, "compile", around)       compile(x) becomes around(original, x)

Another tool may wrap the same function after us, and call our wrapper for as long as it lives; or put back what it
found before us. So the original is put back only where our wrapper still stands. Elsewhere the wrapper stays and from
then on only calls the original, and install() places a new one on top: never the old one again, which would come to
call itself.

What lives here: that. What does not: which functions, and what is done around them (the frontends).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import getattr_static
from typing import Any

Around = Callable[..., Any]
"""Called as around(original, *args, **kwargs) in the function's place."""
_INHERITED = object()


@dataclass
class _Layer:
    """What stood in the place, as the owner holds it, and what was put there."""

    found: Any
    placed: Any = None
    active: bool = True


class Hook:
    """owner: a class, module or object. A static method, class method or property stays one; of a property reading is
    wrapped."""

    def __init__(self, owner: Any, name: str, around: Around) -> None:
        self._owner, self._name, self._around = owner, name, around
        self._layer: _Layer | None = None

    def install(self) -> None:
        """Idempotent."""
        if self._layer is not None:
            if self._held() is self._layer.placed:
                return
            self._layer.active = False
        self._layer = layer = _Layer(self._held())
        layer.placed = self._wrapped(layer)
        setattr(self._owner, self._name, layer.placed)

    def remove(self) -> None:
        """Inverse of install()."""
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
        look = getattr_static if isinstance(self._owner, type) else getattr  # as it is in a class, bound in an object
        found = look(self._owner, self._name)
        bound = isinstance(found, (staticmethod, classmethod))
        original: Any = found.fget if isinstance(found, property) else found.__func__ if bound else found

        @wraps(original)  # CuTe reads signatures
        def placed(*args: Any, **kwargs: Any) -> Any:
            return self._around(original, *args, **kwargs) if layer.active else original(*args, **kwargs)

        if isinstance(found, property):
            return property(placed, found.fset, found.fdel)
        return type(found)(placed) if bound else placed
