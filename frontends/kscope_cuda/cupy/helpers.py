"""kscope's device helpers, such as kscope.clock(), in cupyx.jit kernels: a call becomes a C++ lambda with assembly."""

from __future__ import annotations

from typing import Any

import numpy as np

from kscope.errors import UsageError
from kscope.language.helpers import HELPERS
from kscope.ptx import READINGS, Reading
from kscope.util import thread_stacks

from . import hook_points
from .hook_points import expressions

_TABLE = "builtin_functions_dict"
_KINDS = {"i32": ("int", np.int32), "u32": ("unsigned int", np.uint32), "i64": ("long long", np.int64)}


def check() -> None:
    """Raise UnsupportedError naming the hook point that this CuPy lacks."""
    hook_points.check(hook_points.builtins, _TABLE)
    hook_points.check(hook_points.types, "Scalar")


def install() -> None:
    """Let CuPy translate the helpers."""
    for helper in HELPERS:
        hook_points.fetch(hook_points.builtins, _TABLE)[helper] = _Helper(READINGS[helper.__name__])


def remove() -> None:
    """Inverse of install()."""
    for helper in HELPERS:
        hook_points.fetch(hook_points.builtins, _TABLE).pop(helper, None)


def refuse(name: str) -> None:
    """Raise UsageError if CuPy's translator calls the helper as a Python function, as it does without the hook."""
    if any(frame.f_globals.get("__name__") == hook_points.translator.__name__ for frame in thread_stacks.own()):
        raise UsageError(
            f"kscope.{name}() in a cupyx.jit kernel: CuPy can translate it only while recording is enabled; to "
            "launch the kernel plain, call this once: from kscope_cuda.cupy import teach; teach()"
        )


class _Helper(expressions.BuiltinFunc):
    """A helper as a CuPy builtin."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        super().__init__()

    def call(self, env: Any) -> Any:
        """The C++ expression of a call."""
        kind, number = _KINDS[self._reading.type]
        text = self._reading.text("%0").replace("%", "%%").replace("%%0", "%0")
        constraint = "=l" if self._reading.type == "i64" else "=r"
        volatile, memory = (" volatile", ' :: "memory"') if self._reading.volatile else ("", "")
        asm = f'asm{volatile}("{text}" : "{constraint}"(ks_x){memory});'
        code = f"([&]() -> {kind} {{ {kind} ks_x; {asm} return ks_x; }}())"
        return expressions.Data(code, hook_points.types.Scalar(number))
