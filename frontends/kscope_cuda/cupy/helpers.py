"""kscope's device helpers in cupyx.jit kernels: kscope.clock() and its like as functions that CuPy translates.

A call becomes a C++ lambda around the instructions.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from kscope.errors import UsageError
from kscope.language.device import HELPERS
from kscope.ptx import READINGS, Reading

from . import hook_points
from .hook_points import expressions

_TABLE = "builtin_functions_dict"
_KINDS = {"i32": ("int", np.int32), "u32": ("unsigned int", np.uint32), "i64": ("long long", np.int64)}


def check() -> None:
    """Raises UnsupportedError naming the point that this CuPy lacks."""
    hook_points.check(hook_points.builtins, _TABLE)
    hook_points.check(hook_points.types, "Scalar")


def install() -> None:
    """Let CuPy translate the words."""
    for word in HELPERS:
        hook_points.fetch(hook_points.builtins, _TABLE)[word] = _Helper(READINGS[word.__name__])


def remove() -> None:
    """Inverse of install()."""
    for word in HELPERS:
        hook_points.fetch(hook_points.builtins, _TABLE).pop(word, None)


def refuse(name: str) -> None:
    """Raises UsageError where CuPy's translator calls the word as a function of Python, as it does without the hook."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == hook_points.translator.__name__:
            raise UsageError(
                f"kscope.{name}() in a cupyx.jit kernel: CuPy knows it while recording is enabled; for kernels that "
                "are launched plain say once: from kscope_cuda.cupy import teach; teach()"
            )
        frame = frame.f_back


class _Helper(expressions.BuiltinFunc):
    """One word, as CuPy knows functions."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        super().__init__()

    def call(self, env: Any) -> Any:
        """The expression that a call becomes."""
        kind, number = _KINDS[self._reading.type]
        text = self._reading.text("%0").replace("%", "%%").replace("%%0", "%0")
        constraint = "=l" if self._reading.type == "i64" else "=r"
        volatile, memory = (" volatile", ' :: "memory"') if self._reading.volatile else ("", "")
        asm = f'asm{volatile}("{text}" : "{constraint}"(ks_x){memory});'
        code = f"([&]() -> {kind} {{ {kind} ks_x; {asm} return ks_x; }}())"
        return expressions.Data(code, hook_points.types.Scalar(number))
