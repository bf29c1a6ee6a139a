"""Supports torch.compile: kernels that Inductor compiles and launches are recorded like any other.

Inductor compiles in worker processes, where kscope is not enabled, and launches with a launcher
without hooks. While recording is enabled, it compiles in this process and launches through Triton.
torch is not imported: Inductor reads the two settings on import; if it is already imported, they are set directly.
Its autotuner compiles all configurations before it times one, with marks; each is timed by its plain kernel.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from kscope.instrument.hooks import Hook
from kscope.instrument.recording import Recording
from kscope.util.import_hook import Watcher

from .compile import META
from .tuning import Tuning

_CONFIG = "torch._inductor.config"
_AUTOTUNER = "torch._inductor.runtime.triton_heuristics"
_KEPT = {"torch._inductor.async_compile": "CompiledTritonKernels", "torch._inductor.codecache": "PyCodeCache"}
"""Inductor's in-process caches of kernels, by module."""
_SETTINGS: dict[str, tuple[str, int, str]] = {
    # attribute of Inductor's config: environment variable, value while enabled, config's function for its default
    "use_static_cuda_launcher": ("TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER", 0, "static_cuda_launcher_default"),
    "compile_threads": ("TORCHINDUCTOR_COMPILE_THREADS", 1, "decide_compile_threads"),
}


class Inductor:
    """Inductor's settings while recording is enabled. Already compiled functions are kept until
    torch.compiler.reset().

    Args:
        tuning: is running while Inductor times a configuration.
    """

    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning
        self._bench: Hook | None = None
        self._watcher = Watcher((_AUTOTUNER,), lambda name: self._hook())
        self._environment: dict[str, str | None] | None = None
        self._config: dict[str, Any] = {}
        self._recording: Recording | None = None

    def install(self, recording: Recording) -> None:
        """Apply the settings, also to an Inductor imported since the last call. Idempotent."""
        if self._recording is not None and self._recording != recording:
            _forget_kernels()
        self._recording = recording
        self._hook()
        if self._environment is None:
            self._watcher.install()
            self._environment = {variable: os.environ.get(variable) for variable, _, _ in _SETTINGS.values()}
            os.environ.update({variable: str(value) for variable, value, _ in _SETTINGS.values()})
        config = sys.modules.get(_CONFIG)
        for name, (_, value, _) in _SETTINGS.items():
            if config is not None and name not in self._config and hasattr(config, name):
                self._config[name] = getattr(config, name)
                setattr(config, name, type(self._config[name])(value))
                _forget_kernels()

    def remove(self) -> None:
        """Inverse of install()."""
        if self._environment is None:
            return
        self._watcher.remove()
        if self._bench is not None:
            self._bench.remove()
        for variable, value in self._environment.items():
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value
        self._environment = self._recording = None
        config = sys.modules.get(_CONFIG)
        for name, (_, _, default) in _SETTINGS.items():
            if config is not None and hasattr(config, name):
                # imported while enabled, with our settings: recompute its default
                before = self._config[name] if name in self._config else getattr(config, default)()
                setattr(config, name, before)
        self._config = {}
        _forget_kernels()

    def _hook(self) -> None:
        """Watch the function that times a configuration, once it is imported."""
        autotuner = getattr(sys.modules.get(_AUTOTUNER), "CachingAutotuner", None)
        if self._bench is None and hasattr(autotuner, "bench"):
            self._bench = Hook(autotuner, "bench", self._timed)
        if self._bench is not None:
            self._bench.install()

    def _timed(
        self, original: Callable[..., Any], autotuner: Any, launcher: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        with self._tuning.running():
            return original(autotuner, _plain(autotuner, launcher), *args, **kwargs)


def _plain(autotuner: Any, launcher: Callable[..., Any]) -> Callable[..., Any]:
    """The launcher of the same configuration without marks, compiled if necessary."""
    kernel = getattr(launcher, "__globals__", {}).get("bin")  # of a launcher that Inductor generated
    if not hasattr(getattr(kernel, "metadata", None), META):
        return launcher
    if hasattr(autotuner, "_ensure_kernel_loaded"):
        autotuner._ensure_kernel_loaded()
    plain: Callable[..., Any] = autotuner._precompile_config(vars(launcher)["config"]).make_launcher()
    return plain


def _forget_kernels() -> None:
    """Clear Inductor's kernel caches. They are keyed by source alone and outlive torch.compiler.reset(), so a later
    function could get a kernel compiled under the wrong state."""
    for module, name in _KEPT.items():
        kept = getattr(sys.modules.get(module), name, None)
        if kept is not None:
            kept.cache_clear()
