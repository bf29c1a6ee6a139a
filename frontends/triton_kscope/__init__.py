"""The words of kscope for kernels that torch.compile takes apart.

Inductor copies the source of a user's kernel into a file of its own, and with it only imports from
modules whose name begins with `triton`. So there:

    from triton_kscope import region

    @triton.jit
    def kernel(...):
        with region("load"):
            ...
"""

from __future__ import annotations

from typing import Any

from kscope.language import regions
from kscope.marks.strategies import Strategy

__all__ = ["counter", "instant", "region"]


class region(regions.region):  # noqa: N801  # lower case as it is used: a word of the kernel's language
    """As kscope.region."""


def instant(
    name: Any,
    value: Any = None,
    *,
    strategy: Strategy | None = None,
    track: Any = None,
    when: Any = None,
    _semantic: Any = None,
) -> None:
    """As kscope.instant."""
    regions.instant(name, value, strategy=strategy, track=track, when=when, _semantic=_semantic)


def counter(
    name: Any,
    value: Any,
    *,
    strategy: Strategy | None = None,
    track: Any = None,
    when: Any = None,
    _semantic: Any = None,
) -> None:
    """As kscope.counter."""
    regions.counter(name, value, strategy=strategy, track=track, when=when, _semantic=_semantic)


for _builtin in (instant, counter):
    _builtin.__triton_builtin__ = True  # type: ignore[attr-defined]  # read by the compiler's call protocol
