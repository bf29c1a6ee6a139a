"""Device helpers such as kscope.clock() as Numba extensions; they affect only kernels that use them."""

from __future__ import annotations

from functools import cache
from typing import Any

from kscope.language.helpers import HELPERS
from kscope.ptx import READINGS, Reading

from .emit import ir
from .hook_points import module

_types: Any = module("types")
_extending: Any = module("extending")
_templates: Any = module("typing.templates")
_KINDS = {"i32": _types.int32, "u32": _types.uint32, "i64": _types.int64}


@cache
def register() -> None:
    """Register the extensions, once."""
    for helper in HELPERS:
        _register(helper, READINGS[helper.__name__])


def _register(helper: Any, reading: Reading) -> None:
    """Numba's type and lowering of one helper."""
    signature = _templates.signature(_KINDS[reading.type])

    class Helper(_templates.ConcreteTemplate):
        key = helper
        cases = (signature,)

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = reading.type == "i64"
        clobbers = ("=l" if wide else "=r") + (",~{memory}" if reading.volatile else "")
        shape = ir.FunctionType(ir.IntType(64 if wide else 32), [])
        return builder.call(ir.InlineAsm(shape, reading.text("$0"), clobbers, side_effect=reading.volatile), [])

    _templates.infer_global(helper, _types.Function(Helper))
    _extending.lower_builtin(helper)(lower)
