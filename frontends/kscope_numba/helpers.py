"""kscope's device helpers in kernels: kscope.clock() and its like are functions that Numba types and lowers.

What lives here: Numba's rules for them, made once and kept: they concern no function that does not use one. What does
not: the instructions (kscope/ptx/reading.py), Numba's simulator (simulated.py).
"""

from __future__ import annotations

from typing import Any

from kscope.language.device import HELPERS
from kscope.ptx import READINGS, Reading

from .emit import ir
from .hook_points import module

_types: Any = module("types")
_extending: Any = module("extending")
_templates: Any = module("typing.templates")
_KINDS = {"i32": _types.int32, "u32": _types.uint32, "i64": _types.int64}
_made = False


def register() -> None:
    """Makes the rules, once."""
    global _made
    if _made:
        return
    _made = True
    for word in HELPERS:
        _function(word, READINGS[word.__name__])


def _function(word: Any, reading: Reading) -> None:
    """The word's type, and what is emitted for a call of it."""
    signature = _templates.signature(_KINDS[reading.type])

    class Helper(_templates.ConcreteTemplate):
        key = word
        cases = (signature,)

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = reading.type == "i64"
        clobbers = ("=l" if wide else "=r") + (",~{memory}" if reading.volatile else "")
        shape = ir.FunctionType(ir.IntType(64 if wide else 32), [])
        return builder.call(ir.InlineAsm(shape, reading.text("$0"), clobbers, side_effect=reading.volatile), [])

    _templates.infer_global(word, _types.Function(Helper))
    _extending.lower_builtin(word)(lower)
