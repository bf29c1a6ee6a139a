"""Finds TVM-FFI functions whose code is in memory without a file: compiled in this process, or loaded from object
files. CuTe's Python does not run when one is called, and nothing lists them, so the live objects are searched.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Collection
from typing import Any

from cutlass.base_dsl import jit_executor

from kscope.instrument.live_objects import live_objects

_CODE = 24
"""Offset of a function's code in TVM-FFI's C interface (TVMFFIFunctionCell after TVMFFIObject)."""
_WORDS = range(32, 64, 8)
"""Offsets where a function that keeps an object alive may have its own code; _CODE then has code that calls it."""
_WRAPPED = "_tvm_ffi_function"
"""Attribute of CuTe's compiled functions, whose calls are seen."""


def live() -> list[Any]:
    """The functions that are alive, without those that CuTe's compiled functions wrap."""
    module = sys.modules.get("tvm_ffi")
    kind = getattr(module, "Function", None)
    if kind is None:
        return []
    functions = [one for one in live_objects(kind) if type(one) is kind]
    wrapped = _wrapped()
    calls, offset = _calibrated(kind)
    code = {id(one): _code(one, calls, offset) for one in functions if id(one) not in wrapped}
    unbacked = _unbacked(code.values())
    return [one for one in functions if code.get(id(one)) in unbacked]


def key(function: Any) -> tuple[int, int]:
    """Distinguishes a function from others that are or were alive."""
    kind = type(function)
    return int(function.__chandle__()), _code(function, *_calibrated(kind))


def _wrapped() -> set[int]:
    compiled = live_objects(jit_executor.JitCompiledFunction)
    return {id(vars(one).get(_WRAPPED)) for one in compiled}


def _calibrated(kind: Any) -> tuple[int, int]:
    """The code that calls a kept function's own, and the offset of that; 0 if this TVM-FFI has it elsewhere."""
    own = ctypes.cast(ctypes.pythonapi.Py_IncRef, ctypes.c_void_p).value
    sample = kind.__from_extern_c__(own, keep_alive_object=_calibrated)
    offset = next((one for one in _WORDS if _word(sample, one) == own), 0)
    return _word(sample, _CODE), offset


def _code(function: Any, calls: int, offset: int) -> int:
    found = _word(function, _CODE)
    return _word(function, offset) if found == calls and offset else found


def _word(function: Any, offset: int) -> int:
    return ctypes.c_uint64.from_address(function.__chandle__() + offset).value


def _unbacked(addresses: Collection[int]) -> set[int]:
    """Addresses that are in memory without a file."""
    with open("/proc/self/maps") as file:
        rows = [line.split(None, 5) for line in file]
    ranges = [tuple(int(end, 16) for end in row[0].split("-")) for row in rows if len(row) < 6]
    return {address for address in addresses if any(first <= address < last for first, last in ranges)}
