"""A method of CuTe DSL's, wrapped while recording is enabled.

What lives here: putting a wrapper in place and taking it back, whoever else wraps the same method in between. What
does not: what the wrappers do (pipeline.py, loading.py, ffi.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import cutlass

from kscope.errors import UnsupportedError
from kscope.wording import installs

Around = Callable[..., Any]
"""Called as around(original, *args, **kwargs) in the method's place."""


class Hook:
    """owner: a class. A wrapper that another tool has wrapped stays where it is after remove(), and does nothing."""

    def __init__(self, owner: Any, name: str, around: Around) -> None:
        self._owner, self._name, self._around = owner, name, around
        self._placed: Callable[..., Any] | None = None
        self._original: Any = None  # as it stands in the class: a static method is one there
        self._active = False

    def check(self, where: str) -> None:
        """Raises UnsupportedError that names the method, which this CuTe DSL lacks."""
        if not callable(getattr(self._owner, self._name, None)):
            raise UnsupportedError(
                f"nvidia-cutlass-dsl {cutlass.__version__} has no {where}.{self._name}, which kscope needs: "
                f"{installs('cute')} brings a version that works"
            )

    def install(self) -> None:
        """Idempotent."""
        self._active = True
        if self._placed is not None:
            return
        original = getattr(self._owner, self._name)
        self._original = vars(self._owner).get(self._name, original)

        @wraps(original)  # CuTe reads signatures
        def placed(*args: Any, **kwargs: Any) -> Any:
            return self._around(original, *args, **kwargs) if self._active else original(*args, **kwargs)

        self._placed = placed
        setattr(self._owner, self._name, staticmethod(placed) if isinstance(self._original, staticmethod) else placed)

    def remove(self) -> None:
        """Inverse of install()."""
        self._active = False
        if self._placed is not None and getattr(self._owner, self._name) is self._placed:
            setattr(self._owner, self._name, self._original)
            self._placed = self._original = None
