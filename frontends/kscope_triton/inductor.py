"""Supports torch.compile: kernels that Inductor compiles and launches are recorded like any other.

Inductor compiles in worker processes, where kscope is not enabled, and launches with a launcher
without hooks. While recording is enabled, it compiles in this process and launches through Triton.
torch is not imported: Inductor reads the two settings on import; if it is already imported, they are set directly.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from kscope.instrument.recording import Recording

_CONFIG = "torch._inductor.config"
_KEPT = {"torch._inductor.async_compile": "CompiledTritonKernels", "torch._inductor.codecache": "PyCodeCache"}
"""Inductor's in-process caches of kernels, by module."""
_SETTINGS: dict[str, tuple[str, int, str]] = {
    # attribute of Inductor's config: environment variable, value while enabled, config's function for its default
    "use_static_cuda_launcher": ("TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER", 0, "static_cuda_launcher_default"),
    "compile_threads": ("TORCHINDUCTOR_COMPILE_THREADS", 1, "decide_compile_threads"),
}


class Inductor:
    """Inductor's settings while recording is enabled. Already compiled functions are kept until
    torch.compiler.reset()."""

    def __init__(self) -> None:
        self._environment: dict[str, str | None] | None = None
        self._config: dict[str, Any] = {}
        self._recording: Recording | None = None

    def install(self, recording: Recording) -> None:
        """Apply the settings, also to an Inductor imported since the last call. Idempotent."""
        if self._recording is not None and self._recording != recording:
            _forget_kernels()
        self._recording = recording
        if self._environment is None:
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


def _forget_kernels() -> None:
    """Clear Inductor's kernel caches. They are keyed by source alone and outlive torch.compiler.reset(), so a later
    function could get a kernel compiled under the wrong state."""
    for module, name in _KEPT.items():
        kept = getattr(sys.modules.get(module), name, None)
        if kept is not None:
            kept.cache_clear()
