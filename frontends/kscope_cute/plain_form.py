"""The plain forms of functions that CuTe compiled with marks, for launches outside sessions: the traced module without
its marks, compiled by CuTe at the first such launch.
"""

from __future__ import annotations

import ctypes
import io
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from inspect import unwrap
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from cutlass._mlir import execution_engine, ir
from cutlass.base_dsl import compiler as cute_compiler
from cutlass.base_dsl import dsl as cute_dsl
from cutlass.base_dsl import jit_executor
from cutlass.cutlass_dsl import cutlass as cutlass_dsl

from kscope.capture.wire import CTL_SYMBOL
from kscope.instrument import loaded_code, registry
from kscope.instrument.hooks import Hooks

from . import libraries
from .assembler import binaries, dump_into
from .traced_module import TracedModule, erase_marks, launch_streams

try:
    cuda_jit_executor: Any = import_module("cutlass.cutlass_dsl.cuda_jit_executor")
except ImportError:  # an older version, whose functions have one form
    cuda_jit_executor = None

_FORM = "_kscope_plain"
"""Attribute of CuTe's object for loaded libraries: the executor of the plain form, or None."""


@dataclass(frozen=True)
class _Traced:
    """A module with marks before it was compiled.

    Attributes:
        code: its bytecode.
        streams: arguments of its host function that are the streams of its launches; empty for the default stream.
    """

    code: bytes
    streams: tuple[int, ...]

    @staticmethod
    def of(module: Any) -> _Traced | None:
        """None if the module has no marks, or a launch's stream is unknown: then it has one form."""
        streams = None if TracedModule.of(module) is None else launch_streams(module)
        if streams is None:
            return None
        code = io.BytesIO()
        module.operation.write_bytecode(code)
        return _Traced(code.getvalue(), streams)

    def is_captured(self, arguments: Sequence[Any]) -> bool:
        """True if a graph captures a launch, or may.

        Args:
            arguments: addresses of the host function's arguments.
        """
        backend = registry.backend("cuda")
        given = [arguments[index] for index in self.streams if index < len(arguments)]
        places = [getattr(one, "value", one) for one in given]
        if len(places) < len(self.streams) or not all(places):  # contradicts the IR
            return True
        handles = [ctypes.c_void_p.from_address(place).value or 0 for place in places]
        return any(backend.capture(handle) != 0 for handle in handles or [0])


@dataclass(frozen=True)
class _Source:
    """Source of a function's compilation, and CuTe's way to compile it. jit: makes an engine of a compiled module."""

    traced: _Traced
    pipeline: str
    compiler: Any
    jit: Callable[[Any], Any]

    def compiled(self) -> Any:
        """The compiled module without marks."""
        with ir.Context() as context, ir.Location.unknown():
            context.enable_multithreading(False)
            module = ir.Module.parse(self.traced.code)
            erase_marks(module)
            compile = unwrap(cute_compiler.Compiler.compile)
            done = compile(self.compiler, module, dump_into(self.pipeline))
            return done if isinstance(done, ir.Module) else module


class PlainForms:
    """The hooks on CuTe's engines, and the choice of the form of launches.

    Attributes:
        recording: True while a session records; launches run plain otherwise.
    """

    def __init__(self) -> None:
        self.recording = False
        self._thread = threading.local()  # traced, pipeline: of the module that this thread compiles
        self._lock = threading.RLock()
        self._sources = WeakKeyDictionary[Any, _Source]()  # by engine
        self._taken = WeakSet[Any]()  # engines whose library the program has
        self._hooks = Hooks()

    def install(self) -> None:
        """Idempotent. Where CuTe lacks a hook point, functions have one form."""
        self._hooks.add(cute_compiler.Compiler, "jit", self._jit)
        if cuda_jit_executor is None:
            return
        for kind in (cute_dsl.BaseDSL, cutlass_dsl.CutlassBaseDSL):  # one calls the other, and returns last
            self._hooks.add(kind, "preprocess_pipeline", self._preprocess)
        self._hooks.add(cuda_jit_executor.CudaDialectJitCompiledFunction, "library", self._library)

    def remove(self) -> None:
        """Inverse of install()."""
        self.recording = False
        self._hooks.remove()

    def compiling(self, module: Any, pipeline: str | None = None) -> None:
        """This thread is about to compile a traced module, or to find it in a cache.

        Args:
            module: the module.
            pipeline: CuTe's, if it is known.
        """
        self._thread.traced = None
        with suppress(Exception):  # a module that is built differently has one form
            self._thread.traced = _Traced.of(module)
        if pipeline is not None:
            self._thread.pipeline = pipeline

    def form(self, executor: Any, arguments: Sequence[Any]) -> Any:
        """The executor that a launch runs.

        Args:
            executor: CuTe's, of a function with marks.
            arguments: addresses of the host function's arguments.
        """
        engine = getattr(executor.jit_module, "engine", None)
        if self.recording or not isinstance(engine, execution_engine.ExecutionEngine):  # of an object file
            return executor
        source = self._sources.get(engine)
        if source is None or engine in self._taken or source.traced.is_captured(arguments):
            return executor
        forms = vars(executor.jit_module)
        if _FORM not in forms:
            with self._lock:
                if _FORM not in forms:
                    forms[_FORM] = _executor(source, executor.jit_module)
        return forms[_FORM] or executor

    def _preprocess(self, original: Callable[..., str], *args: Any, **kwargs: Any) -> str:
        self._thread.pipeline = pipeline = original(*args, **kwargs)
        return pipeline

    def _jit(self, original: Callable[..., Any], compiler: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        """Around Compiler.jit(), which makes an engine of a module that was compiled or found in a cache."""
        engine = original(compiler, module, *args, **kwargs)
        for binary in binaries(module):
            if CTL_SYMBOL.encode() in binary:
                loaded_code.keep(binary)
        traced, self._thread.traced = getattr(self._thread, "traced", None), None
        pipeline = getattr(self._thread, "pipeline", None) if cuda_jit_executor is not None else None
        if traced is not None and pipeline is not None and isinstance(engine, execution_engine.ExecutionEngine):

            def jit(plain: Any) -> Any:
                return original(compiler, plain, *args, **kwargs)

            self._sources[engine] = _Source(traced, pipeline, compiler, jit)
        return engine

    def _library(self, original: Callable[..., Any], function: Any) -> Any:
        """Around compiled.library: the program may set attributes, and write to variables."""
        if isinstance(function.engine, execution_engine.ExecutionEngine):
            self._taken.add(function.engine)
        return original(function)


def _executor(source: _Source, marked: Any) -> Any:
    """An executor of the plain form, which is compiled and loaded; None if there is none.

    Args:
        source: the function's source.
        marked: CuTe's object for the loaded libraries with marks.
    """
    try:
        module = source.compiled()
        engine = source.jit(module)
        function = engine.lookup(marked.execution_args.function_name)
        function.restype = ctypes.c_int32
        with registry.backend("cuda").relaxed():  # another thread may be capturing a graph
            loaded = cuda_jit_executor.CudaDialectJitModule(engine, function, marked.execution_args, _load(engine))
            if any(map(libraries.fits_less, loaded.cuda_library, marked.cuda_library)):
                return None
        executor = jit_executor.JitExecutor(loaded, None, False)
        vars(executor)[_FORM] = module  # the engine's code belongs to it
        return executor
    except Exception:  # the compiler's or the driver's: the form with marks runs instead, and computes the same
        return None


def _load(engine: Any) -> list[Any]:
    """Load the library of an engine on every device, as CuTe does."""
    kind = cuda_jit_executor.CudaDialectJitCompiledFunction
    function = kind.__new__(kind)
    function.engine, function.load_from_binary, function.prefix = engine, False, None
    found: list[Any] = getattr(function, "_load_cuda_library")()  # noqa: B009  # CuTe's
    return found
