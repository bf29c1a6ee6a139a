"""Functions that run without CuTe's Python: TVM-FFI, and object files that were exported for it.

Such a function loads its library by itself, at its first launch, and keeps the handle in a private word. So a module
with marks gets one more function, which does the same and says the handle:

    llvm.func @kscope_library() -> i64 { cuda_dialect_init_library_once(state, ...); return *state }

What lives here: that function, and the hooks that call it before the first launch. What does not: what is done with a
library (loading.py).
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from cutlass._mlir import ir
from cutlass.base_dsl.export import external_binary_module

from kscope.instrument.hooks import Hook

LIBRARY = "kscope_library"
_PROVIDER = "cutlass.cutlass_dsl.tvm_ffi_provider"
_CLASSES = ("TVMFFIJitCompiledFunction", "TVMFFIJitCompiledFunctionWithKwargs")
_PREFIX = "__cute_internal_"
"""How CuTe begins the names of what belongs to an exported function."""
_INIT, _STATE = "cuda_dialect_init_library_once", re.compile(r"__.*_cuda_state")
_HELD = "_kscope_library"


def tell(module: Any) -> None:
    """Add the function to a compiled host module that is called through TVM-FFI; others are left alone."""
    names = {_symbol(operation) for operation in module.body.operations}
    state = next((name for name in names if _STATE.fullmatch(name)), None)
    if state is None or _INIT not in names or LIBRARY in names:
        return
    words = [state, "cuda_init", "cuda_load_to_device", "TVMFFIErrorSetRaisedFromCStr"]
    taken = "\n".join(f"%{n} = llvm.mlir.addressof @{word} : !llvm.ptr" for n, word in enumerate(words))
    with module.context, ir.Location.unknown():
        # the other module only lends its names: an operation is parsed on its own
        lent = ir.Module.parse(
            f"llvm.mlir.global external @{state}() : i64\n"
            + "".join(f"llvm.func @{word}()\n" for word in words[1:])
            + f"llvm.func @{_INIT}(!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32\n"
            f"llvm.func @{LIBRARY}() -> i64 {{\n{taken}\n"
            f"%4 = llvm.call @{_INIT}(%0, %1, %2, %3) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32\n"
            "%5 = llvm.load %0 : !llvm.ptr -> i64\nllvm.return %5 : i64 }"
        )
        function = next(one for one in lent.body.operations if _symbol(one) == LIBRARY)
        module.body.append(function.operation.clone())


def _symbol(operation: Any) -> str:
    attributes = operation.operation.attributes
    return ir.StringAttr(attributes["sym_name"]).value if "sym_name" in attributes else ""


class Calls:
    """The hooks on calls through TVM-FFI, while recording is enabled. launched: told of each call, with an object
    that holds the libraries as cuda_library, empty where nothing can be armed, and kernels."""

    def __init__(self, launched: Callable[[Any], None]) -> None:
        self._launched = launched
        self._hooks = {"": Hook(external_binary_module.ExternalBinaryModule, "__getattr__", self._found)}

    def install(self) -> None:
        """Hook what CuTe has imported of TVM-FFI so far. Idempotent; called again when a module was compiled."""
        provider = sys.modules.get(_PROVIDER)
        for name in _CLASSES:
            if hasattr(provider, name):
                self._hooks.setdefault(name, Hook(getattr(provider, name), "__call__", self._called))
        for hook in self._hooks.values():
            hook.install()

    def remove(self) -> None:
        """Inverse of install()."""
        for hook in self._hooks.values():
            hook.remove()

    def _called(self, original: Callable[..., Any], function: Any, *args: Any, **kwargs: Any) -> Any:
        held = vars(function).get(_HELD)
        if held is None:
            held = vars(function)[_HELD] = _held(function.engine, LIBRARY, list(function.kernel_info or ()))
        self._launched(held)
        return original(function, *args, **kwargs)

    def _found(self, original: Callable[..., Any], module: Any, name: str) -> Any:
        function = original(module, name)
        if module.enable_tvm_ffi:
            self._launched(_held(module.engine, f"{_PREFIX}{name}_{LIBRARY}", []))
        return function


def _held(engine: Any, symbol: str, kernels: list[str]) -> Any:
    """The library that the function called `symbol` says; none where the engine has no such function."""
    try:
        address = engine.lookup(symbol)
    except RuntimeError:  # as CuTe says that there is none
        address = None
    handle = ctypes.CFUNCTYPE(ctypes.c_int64)(address)() if address else 0
    return SimpleNamespace(cuda_library=[handle] if handle else [], kernels=[] if address else kernels)
