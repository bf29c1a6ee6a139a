"""torch's CUDA graphs: they capture marked kernels, and the launches of their replays are counted."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from kscope.instrument import registry
from kscope.instrument.hooks import Hooks
from kscope.instrument.launch_counts import LaunchCounts
from kscope.util.import_hook import Watcher

from .launch_forms import Forms

_MODULE, _CLASS, _LAUNCHES, _CAPTURE = "torch.cuda.graphs", "CUDAGraph", "_kscope_launches", "_kscope_capture"


class Graphs:
    """The hooks on torch's graphs, while recording is enabled. torch is not imported.

    Args:
        counts: counts launches.
        forms: selects the form that launches run.
        capturing: called before a capture.
    """

    def __init__(self, counts: LaunchCounts, forms: Forms, capturing: Callable[[], None]) -> None:
        self._counts, self._forms, self._capturing = counts, forms, capturing
        self._hooks = Hooks()
        self._watcher = Watcher((_MODULE,), lambda name: self._hook())

    def install(self) -> None:
        """Hook torch's graphs, now or when torch is imported. Idempotent."""
        self._watcher.remove()
        self._watcher.install()
        self._hook()

    def remove(self) -> None:
        """Inverse of install()."""
        self._watcher.remove()
        self._hooks.remove()

    def _hook(self) -> None:
        graph = getattr(sys.modules.get(_MODULE), _CLASS, None)
        points = {"capture_begin": self._begin, "capture_end": self._end, "replay": self._replay}
        if all(hasattr(graph, name) for name in points):
            for name, around in points.items():
                self._hooks.add(graph, name, around)

    def _begin(self, original: Callable[..., Any], graph: Any, *args: Any, **kwargs: Any) -> Any:
        setattr(graph, _LAUNCHES, {})
        self._capturing()
        result = original(graph, *args, **kwargs)
        self._forms.capture(True)
        capture = registry.backend("cuda").capture(sys.modules["torch"].cuda.current_stream().cuda_stream)
        if capture:
            captured = self._counts.captures[capture] = Counter[int]()
            setattr(graph, _LAUNCHES, captured)
            setattr(graph, _CAPTURE, capture)
        return result

    def _end(self, original: Callable[..., Any], graph: Any, *args: Any, **kwargs: Any) -> Any:
        self._forms.capture(False)
        self._counts.captures.pop(getattr(graph, _CAPTURE, 0), None)
        return original(graph, *args, **kwargs)

    def _replay(self, original: Callable[..., Any], graph: Any, *args: Any, **kwargs: Any) -> Any:
        counts = self._counts.replaying()
        result = original(graph, *args, **kwargs)
        if counts is not None:
            counts.update(getattr(graph, _LAUNCHES, {}))
        return result
