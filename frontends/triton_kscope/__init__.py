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

from typing import Any

from kscope.language import regions
from kscope.marks.strategies import Strategy

__all__ = ["counter", "instant", "region"]


class region(regions.region):  # noqa: N801  # lower case matches kscope.region
    """As kscope.region."""


def instant(
    name: Any,
    value: Any = None,
    *,
    strategy: Strategy | str | None = None,
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
    strategy: Strategy | str | None = None,
    track: Any = None,
    when: Any = None,
    _semantic: Any = None,
) -> None:
    """As kscope.counter."""
    regions.counter(name, value, strategy=strategy, track=track, when=when, _semantic=_semantic)


for _builtin in (instant, counter):
    _builtin.__triton_builtin__ = True  # type: ignore[attr-defined]  # read by the compiler's call protocol
