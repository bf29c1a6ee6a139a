"""Functions called through TVM-FFI, without CuTe's Python, and objects that were exported for it."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cutlass._mlir import ir
from cutlass.base_dsl.export import external_binary_module

from kscope.instrument import loaded_code
from kscope.instrument.hooks import Hook, Hooks

from . import exported_functions

LIBRARY = "kscope_library"
_PROVIDER = "cutlass.cutlass_dsl.tvm_ffi_provider"
_CLASSES = ("TVMFFIJitCompiledFunction", "TVMFFIJitCompiledFunctionWithKwargs")
_PREFIX = "__cute_internal_"
"""Prefix of the symbols that belong to an exported function."""
_INIT, _STATE = "cuda_dialect_init_library_once", re.compile(r"__.*_cuda_state")
_CACHED, _PATH = "_kscope_library", "_kscope_path"


def export_library(module: Any) -> None:
    """Add a function to a compiled host module that is called through TVM-FFI; leave others unchanged.

    Such a module loads its library itself at the first launch and keeps the handle in a private variable. The function
    does the same and returns the handle; TvmFfiHooks call it before the first launch:

        llvm.func @kscope_library() -> i64 { cuda_dialect_init_library_once(state, ...); return *state }
    """
    names = {_symbol(operation) for operation in module.body.operations}
    state = next((name for name in names if _STATE.fullmatch(name)), None)
    if state is None or _INIT not in names or LIBRARY in names:
        return
    symbols = [state, "cuda_init", "cuda_load_to_device", "TVMFFIErrorSetRaisedFromCStr"]
    addresses = "\n".join(f"%{n} = llvm.mlir.addressof @{one} : !llvm.ptr" for n, one in enumerate(symbols))
    with module.context, ir.Location.unknown():
        # a separate module declares the names, because an operation cannot be parsed alone
        source = ir.Module.parse(
            f"llvm.mlir.global external @{state}() : i64\n"
            + "".join(f"llvm.func @{one}()\n" for one in symbols[1:])
            + f"llvm.func @{_INIT}(!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32\n"
            f"llvm.func @{LIBRARY}() -> i64 {{\n{addresses}\n"
            f"%4 = llvm.call @{_INIT}(%0, %1, %2, %3) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32\n"
            "%5 = llvm.load %0 : !llvm.ptr -> i64\nllvm.return %5 : i64 }"
        )
        function = next(one for one in source.body.operations if _symbol(one) == LIBRARY)
        module.body.append(function.operation.clone())


def _symbol(operation: Any) -> str:
    attributes = operation.operation.attributes
    return ir.StringAttr(attributes["sym_name"]).value if "sym_name" in attributes else ""


class TvmFfiHooks:
    """The hooks on calls through TVM-FFI, while recording is enabled."""

    def __init__(self, launching: Callable[[Any], None]) -> None:
        """launching: called before each launch, and for each function loaded from a file, with an object that has the
        attributes cuda_library, kernels and functions.
        """
        self._launching = launching
        self._looked_up: dict[tuple[int, int], Any] = {}
        binary = external_binary_module.ExternalBinaryModule
        self._hooks = Hooks(Hook(binary, "__getattr__", self._getattr), Hook(binary, "__init__", self._read))

    def install(self) -> None:
        """Hook the TVM-FFI classes that CuTe has imported so far. Idempotent; called again after each compilation."""
        self._hooks.install()
        for name in _CLASSES:
            if found := getattr(sys.modules.get(_PROVIDER), name, None):
                self._hooks.add(found, "__call__", self._call)

    def remove(self) -> None:
        """Inverse of install()."""
        self._hooks.remove()

    def looked_up(self) -> tuple[list[Any], list[Any]]:
        """The functions of live object files, whose calls are not seen: the libraries of those that were looked up
        while recording was enabled, and the other functions.
        """
        found = {exported_functions.key(one): one for one in exported_functions.live()}
        self._looked_up = {key: library for key, library in self._looked_up.items() if key in found}
        return list(self._looked_up.values()), [one for key, one in found.items() if key not in self._looked_up]

    def _call(self, original: Callable[..., Any], function: Any, *args: Any, **kwargs: Any) -> Any:
        library = vars(function).get(_CACHED)
        if library is None:
            library = vars(function)[_CACHED] = _library(function.engine, LIBRARY, tuple(function.kernel_info or ()))
        self._launching(library)
        return original(function, *args, **kwargs)

    def _read(self, original: Callable[..., Any], module: Any, file_path: str, *args: Any, **kwargs: Any) -> None:
        original(module, file_path, *args, **kwargs)
        vars(module)[_PATH] = file_path
        loaded_code.keep(Path(file_path))

    def _getattr(self, original: Callable[..., Any], module: Any, name: str) -> Any:
        function = original(module, name)
        if module.enable_tvm_ffi:
            place = f"function {name} of {vars(module).get(_PATH, 'an object file')}"
            library = _library(module.engine, f"{_PREFIX}{name}_{LIBRARY}", functions=[place])
            self._looked_up[exported_functions.key(function)] = library
            self._launching(library)
        return function


def _library(engine: Any, symbol: str, kernels: Sequence[str] = (), functions: Sequence[str] = ()) -> Any:
    """The library that the engine's function `symbol` returns; without one, kernels that were compiled without
    marks.
    """
    try:
        address = engine.lookup(symbol)
    except RuntimeError:  # raised by CuTe for a missing symbol
        address = None
    if not address:
        return SimpleNamespace(cuda_library=[], kernels=kernels, functions=functions)
    handle = ctypes.CFUNCTYPE(ctypes.c_int64)(address)()
    return SimpleNamespace(cuda_library=[handle] if handle else [], kernels=(), functions=())
