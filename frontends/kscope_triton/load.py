"""Reports loaded modules to the runtime, and detects launches that record nothing."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, cast

import orjson
import triton
from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime.driver import driver

from kscope.capture.metadata import from_json
from kscope.capture.model import Problem
from kscope.errors import UnsupportedError
from kscope.instrument import compile_warnings, loaded_code, registry
from kscope.instrument.code_objects import reachable, uses_kscope
from kscope.instrument.hooks import Hooks
from kscope.instrument.launch_counts import LaunchCounts
from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection
from kscope.util import thread_stacks
from kscope.util.text import install_command

from .compile import LOST, META
from .functions import python_function
from .graphs import Graphs
from .launch_forms import Forms

_BEFORE, _LOAD, _UNLOAD = "kernel_load_start_hook", "kernel_load_end_hook", "kernel_unload_hook"
_LAUNCH, _BINARY = "launch_enter_hook", "load_binary"
_LAUNCHED = "launch_exit_hook"
_GRID, _NEAR = "gridX", 8
"""A variable of Triton's launcher, whose frame is so near to its hooks."""


class _Queued(threading.local):
    """The launch that this thread is queuing. counts: counts it once the driver has accepted it."""

    counts: Counter[int] | None = None
    kernel = 0


class Loading:
    """The hooks on modules, and on launches that run marked kernels, while recording is enabled.

    Args:
        forms: selects the form that launches run.
        capturing: called before torch captures a graph.
        same_attributes: called before the first launch of each marked function after begin().
    """

    def __init__(
        self,
        forms: Forms,
        capturing: Callable[[], None],
        same_attributes: Callable[[Any], None] = lambda function: None,
    ) -> None:
        self._forms, self._tuning = forms, forms.tuning
        self._selection = Selection()
        self._seen: set[Any] = set()  # handles of the functions that were compiled with marks, if they have any
        self._plain: dict[Any, str] = {}  # handle -> name of launched plain kernels
        self._lost: dict[Any, str] = {}  # handle -> why the kernel has no marks
        self._launched_lost: set[str] = set()
        self._ids: dict[Any, int] = {}  # handle -> kernel id of marked kernels
        self._same_attributes = same_attributes
        self._first: set[Any] = set()  # handles of marked kernels that were launched since begin()
        self._queued = _Queued()
        self.counts = LaunchCounts()
        self._graphs = Graphs(self.counts, forms, capturing)
        self._on_modules = {_BEFORE: self._loading, _LOAD: self._loaded, _UNLOAD: self._unloaded}
        self._binaries = Hooks()
        self._on_launches = {_LAUNCH: self._launching, _LAUNCHED: self._launched}

    @property
    def problems(self) -> list[Problem]:
        """Launched kernels that use kscope and were compiled plain, or lost their marks."""
        names = [name for handle, name in self._plain.items() if self._is_marked(name, handle)]
        return [Problem("removed", text) for text in sorted(self._launched_lost)] + [
            Problem(
                "plain",
                f"kernel {name} was compiled plain and launched as a compiled object, so its regions are not recorded; "
                "launch it through its jit function, or get the object from warmup() after kscope.enable()",
            )
            for name in sorted(set(names))
        ]

    def _is_marked(self, name: str, handle: Any) -> bool:
        return bool(self._selection.of_kernel(name)) or _uses_kscope(handle)

    def check(self) -> None:
        """Raises UnsupportedError naming the hook that this Triton lacks (only unloading may be missing: 3.6)."""
        for point in (_BEFORE, _LOAD, _LAUNCH, _LAUNCHED):
            if not hasattr(getattr(knobs.runtime, point, None), "add"):
                raise UnsupportedError(
                    f"triton {triton.__version__} has no knobs.runtime.{point} to add to, which kscope needs to find "
                    f"loaded kernels: {install_command('triton')} installs a supported version"
                )

    def install(self, recording: Recording) -> None:
        """Add the hooks. Idempotent: Triton's hook chains keep one copy of a hook."""
        self._selection = recording.selection
        self.begin()
        self._graphs.install()
        _add(self._on_modules)
        self.switch()

    def switch(self) -> None:
        """Watch launches while they run marked kernels: at rest a launch costs no call of a hook."""
        _remove(self._on_launches) if self._forms.resting else _add(self._on_launches)

    def begin(self) -> None:
        """Discard problems of earlier launches."""
        self._plain.clear()
        self._launched_lost.clear()
        self._tuning.launches = 0
        self._first.clear()
        self.counts.begin()

    def remove(self) -> None:
        """Inverse of install()."""
        self._graphs.remove()
        _remove(self._on_modules | self._on_launches)
        self._binaries.remove()

    def _loading(self, module: Any, function: Any, name: str, group: dict[str, str], hash: str) -> None:
        """Hook what loads the kernel next: Triton's driver exists now, which it may not before the first launch."""
        self._binaries.add(cast("Any", driver.active).utils, _BINARY, self._load)  # CUDA's driver

    def _load(self, original: Callable[..., Any], name: str, cubin: bytes, shared: int, device: int) -> Any:
        return original(name, registry.backend("cuda").patched(cubin, device), shared, device)

    def _loaded(self, module: Any, function: Any, name: str, group: dict[str, str], hash: str) -> None:
        metadata = _metadata(group)
        if not metadata or metadata.keys() & {META, LOST}:
            self._seen.add(function)
        if lost := metadata.get(LOST):
            self._lost[function] = lost
        if module_metadata := metadata.get(META):
            meta = from_json(module_metadata.encode())
            self._ids[function] = meta.kernels[0].id
            _keep_image(group)
            compile_warnings.warn_once(meta.problems)
        elif lost:
            compile_warnings.warn_once([Problem("removed", lost)])
        registry.backend("cuda").module_loaded(module)

    def _unloaded(self, module: Any, function: Any, name: str, group: dict[str, str], hash: str) -> None:
        self._seen.discard(function)
        self._plain.pop(function, None)
        self._lost.pop(function, None)
        self._ids.pop(function, None)
        self._first.discard(function)

    def _launching(self, metadata: Any) -> None:
        queued = self._queued
        queued.counts = None
        if self._tuning.here:
            self._tuning.launches += 1
            return
        # not metadata.get(), which calls the user's launch_metadata function. Inductor's launcher may give no data
        launch = getattr(metadata, "data", None) or _launcher()
        function = launch.get("function")
        kernel = self._ids.get(function)
        if kernel is not None:
            if function not in self._first:
                self._first.add(function)
                self._same_attributes(function)
            counts = self.counts.open(launch["stream"])
            if counts is not None and (found := launch if _GRID in launch else _launcher()):
                if 0 in (found["gridX"], found["gridY"], found["gridZ"]):
                    return  # Triton calls the hooks, and launches nothing
                queued.counts, queued.kernel = counts, kernel
        elif function not in self._seen and "name" in launch:
            self._plain.setdefault(function, launch["name"])
        elif function in self._lost:
            self._launched_lost.add(self._lost[function])
        registry.backend("cuda").pace(function)

    def _launched(self, metadata: Any) -> None:
        queued = self._queued
        if (counts := queued.counts) is not None:
            queued.counts = None
            self.counts.accepted(counts, queued.kernel)


def _add(hooks: dict[str, Callable[..., None]]) -> None:
    """Add hooks to Triton's chains, by name."""
    for point, hook in hooks.items():
        if (chain := getattr(knobs.runtime, point, None)) is not None:
            chain.add(hook)


def _remove(hooks: dict[str, Callable[..., None]]) -> None:
    for point, hook in hooks.items():
        if (chain := getattr(knobs.runtime, point, None)) is not None:
            chain.remove(hook)


def _launcher() -> dict[str, Any]:
    """The variables of Triton's launcher whose hook this thread runs; none if it is unknown.

    Called for each launch, so it looks at few frames, and makes no generators.
    """
    frame: FrameType | None = thread_stacks.outward(2)
    for _ in range(_NEAR):
        if frame is None:
            break
        if _GRID in frame.f_code.co_varnames:
            return frame.f_locals
        frame = frame.f_back
    return {}


def _metadata(group: dict[str, str]) -> dict[str, Any]:
    """A compiled kernel's metadata, from its files in the cache; empty if they were deleted."""
    path = next((Path(path) for name, path in group.items() if name.endswith(".json")), None)
    found: dict[str, Any] = orjson.loads(path.read_bytes()) if path is not None and path.is_file() else {}
    return found


def _keep_image(group: dict[str, str]) -> None:
    for name, path in group.items():
        if name.endswith(".cubin"):
            loaded_code.keep(Path(path))


def _uses_kscope(handle: Any) -> bool:
    """True if the kernel of this handle has marks in its source, or its source is not available."""
    for kernel in gc.get_objects():
        if type(kernel) is CompiledKernel and kernel.function == handle:
            jit = getattr(kernel.src, "fn", None)
            return jit is None or has_marks(jit)
    return True


def has_marks(jit: Any) -> bool:
    """Return True if a JITFunction, or one that it calls, uses kscope."""
    return any(map(uses_kscope, reachable(jit, python_function)))
