"""Supports torch.compile: while recording is enabled, Inductor compiles in this process and launches through Triton."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from kscope.instrument.hooks import Hooks
from kscope.instrument.recording import Recording
from kscope.util.import_hook import Watcher

from .compile import META
from .launch_forms import Forms

_FORMS = "_kscope_forms"
"""Attribute of a launcher: that of the plain kernel, and that of the marked one."""
_CONFIG, _AUTOTUNER = "torch._inductor.config", "torch._inductor.runtime.triton_heuristics"
_ANALYSIS = "torch._higher_order_ops.triton_kernel_wrap"
_KEPT = {"torch._inductor.async_compile": "CompiledTritonKernels", "torch._inductor.codecache": "PyCodeCache"}
"""Inductor's in-process caches of kernels, by module."""
_SETTINGS: dict[str, int] = {
    "use_static_cuda_launcher": False,
    "use_static_triton_launcher": False,  # the same: in torch 2.13 an alias
    "compile_threads": 1,
}
"""Attributes of Inductor's config while recording is enabled, in the order in which they are set."""


class Inductor:
    """Inductor's settings while recording is enabled. Already compiled functions are kept until torch.compiler.reset().

    Inductor compiles in worker processes, where kscope is not enabled, and launches with a launcher without hooks. Its
    autotuner compiles all configurations before it times one, with marks; each is timed by its plain kernel. The
    selected one is launched plain at rest: its plain form is compiled at its second launch.

    torch traces a user's kernel to find the arguments that it writes. A mark would stop that analysis, all arguments
    would count as written, and the function would stay out of CUDA graphs, so that trace has no marks. torch is not
    imported.

    Args:
        forms: selects the form that launches run.
        unmarked: a context in which this thread traces kernels without marks.
    """

    def __init__(self, forms: Forms, unmarked: Callable[[], AbstractContextManager[None]]) -> None:
        self._forms, self._unmarked = forms, unmarked
        self._recording: Recording | None = None
        self._before: dict[str, tuple[Any, Any]] = {}  # a setting's value in the thread that set it, and its default
        self._hooks = Hooks()
        self._watcher = Watcher((_CONFIG, _AUTOTUNER, _ANALYSIS), lambda name: self._imported())

    def install(self, recording: Recording) -> None:
        """Apply the settings now, or when Inductor is imported. Idempotent."""
        if self._recording is None:
            self._watcher.install()
        elif self._recording != recording:
            _forget_kernels()
        self._recording = recording
        self._imported()

    def remove(self) -> None:
        """Inverse of install()."""
        if self._recording is None:
            return
        self._recording = None
        self._watcher.remove()
        self._hooks.remove()
        config = sys.modules.get(_CONFIG)
        for name, (value, default) in reversed(self._before.items()):
            if config is not None:
                _assign(config, name, value, default)
        self._before = {}
        _forget_kernels()

    def _imported(self) -> None:
        """Apply the settings to what is imported."""
        config = sys.modules.get(_CONFIG)
        for name, value in _SETTINGS.items():
            if name not in self._before and hasattr(config, name):
                self._before[name] = getattr(config, name), getattr(_entry(config, name), "default", None)
                _assign(config, name, value, value)
                _forget_kernels()
        analysis = sys.modules.get(_ANALYSIS)
        autotuner = getattr(sys.modules.get(_AUTOTUNER), "CachingAutotuner", None)
        self._hooks.add(autotuner, "bench", self._timed)
        self._hooks.add(autotuner, "run", self._launched)
        self._hooks.add(analysis, "generate_ttir", self._traced)

    def _traced(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._unmarked():
            return original(*args, **kwargs)

    def _timed(
        self, original: Callable[..., Any], autotuner: Any, launcher: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        with self._forms.tuning.running():
            return original(autotuner, _plain(autotuner, launcher), *args, **kwargs)

    def _launched(self, original: Callable[..., Any], autotuner: Any, *args: Any, **kwargs: Any) -> Any:
        """Exchange the launcher, once one configuration is selected."""
        launchers: list[Any] = getattr(autotuner, "launchers", [])
        resting = self._forms.resting
        if len(launchers) == 1:
            forms = vars(launchers[0]).get(_FORMS)
            if forms is None and resting:
                with self._forms.tuning.running():
                    forms = _plain(autotuner, launchers[0]), launchers[0]
                for launcher in forms:
                    setattr(launcher, _FORMS, forms)
            if forms is not None and launchers[0] is not forms[0 if resting else 1]:
                autotuner.launchers = [forms[0 if resting else 1]]
                autotuner._cached_launcher = None  # of torch 2.13
        return original(autotuner, *args, **kwargs)


def _entry(config: Any, name: str) -> Any:
    """Inductor's entry for a setting, which has its default; an int or bool in old versions."""
    return vars(config).get("_config", {}).get(name)


def _assign(config: Any, name: str, value: Any, default: Any) -> None:
    """Set a setting for all threads: in torch 2.13 an attribute is that of the thread that sets it."""
    entry = _entry(config, name)
    if isinstance(getattr(entry, "default", None), int):  # not an alias
        entry.default = default
    setattr(config, name, value)


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
