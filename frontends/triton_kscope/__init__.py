"""kscope's marks for kernels under torch.compile.

Inductor copies a user's kernel into a generated file, and copies only imports from modules whose name starts with
`triton`:

    from triton_kscope import region

    @triton.jit
    def kernel(...):
        with region("load"):
            ...
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

from kscope.language import regions

__all__ = ["begin", "counter", "end", "instant", "region"]

F = TypeVar("F", bound=Callable[..., Any])


class region(regions.region):  # noqa: N801  # lower case matches kscope.region
    """Same as kscope.region."""


def _of_this_module(function: F) -> F:
    original = cast(FunctionType, function)
    copy = FunctionType(original.__code__, original.__globals__, original.__name__, original.__defaults__)
    copy.__doc__, copy.__kwdefaults__ = original.__doc__, original.__kwdefaults__
    copy.__annotations__ = original.__annotations__
    vars(copy).update(vars(original))  # __triton_builtin__
    copy.__module__ = __name__
    return cast(F, copy)


instant, counter = _of_this_module(regions.instant), _of_this_module(regions.counter)
begin, end = _of_this_module(regions.begin), _of_this_module(regions.end)
