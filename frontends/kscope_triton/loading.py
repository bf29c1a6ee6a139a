"""Loaded kernels: tell the runtime about each module, once.

What lives here: Triton's load, unload and launch hooks. What does not: driver calls (the runtime).
"""

from __future__ import annotations

from typing import Any

import triton
from triton import knobs

from kscope import frontends
from kscope.capture import Problem
from kscope.errors import UnsupportedError

_LOAD, _UNLOAD, _LAUNCH = "kernel_load_end_hook", "kernel_unload_hook", "launch_enter_hook"


class Loading:
    """The hooks on modules, while recording is enabled."""

    def __init__(self) -> None:
        self._prepared: set[int] = set()  # function handles
        self._plain: dict[int, str] = {}  # function handle -> kernel, launched though compiled plain

    @property
    def problems(self) -> list[Problem]:
        """Kernels with no marks compiled in that were launched nevertheless."""
        return []

    def check(self) -> None:
        """Raises UnsupportedError naming the hook that this Triton lacks."""
        for point in (_LOAD, _LAUNCH):
            if not hasattr(knobs.runtime, point):
                raise UnsupportedError(f"triton {triton.__version__} has no runtime.{point}, which kscope needs")

    def install(self) -> None:
        """Idempotent: Triton's hook chains hold a hook once."""
        knobs.runtime.kernel_load_end_hook.add(self._loaded)

    def remove(self) -> None:
        knobs.runtime.kernel_load_end_hook.remove(self._loaded)

    def _loaded(self, module: Any, function: Any, name: str, metadata_group: dict[str, str], hash: str) -> None:  # noqa: A002
        frontends.backend("cuda").module_loaded(module)
