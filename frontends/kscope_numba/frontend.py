"""The Numba frontend: that of numba.cuda's GPU target, or of its simulator."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kscope.instrument import registry

from . import hook_points

NAME = "numba"
hook_points.version()  # before a package that is too old lacks a module
_target: Any = import_module(".simulator" if hook_points.SIMULATED else ".gpu", __package__)


class NumbaFrontend(_target.Target):
    """Regions in Numba CUDA kernels, on a GPU or in Numba's simulator."""

    name = NAME
    selects = frozenset({"kinds", "lines"})
    backend = "sim" if hook_points.SIMULATED else "cuda"


def teach() -> None:
    """Let Numba compile kernels with regions while recording is disabled: regions are dropped.

    The hook stays until the process ends. If kscope is installed, Numba calls this through its extension entry point
    before it compiles the first kernel. If kscope is only on the path, call it once.

    Raises:
        UnsupportedError: the installed numba-cuda lacks a hook point.
    """
    frontend = registry.frontend(NAME)
    assert isinstance(frontend, NumbaFrontend)
    frontend.teach()


def init() -> None:
    """Numba's entry point ``numba_cuda_extensions``."""
    teach()
