"""CuPy's functions and modules while recording is enabled: they delay, count and report launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kscope.instrument import registry
from kscope.instrument.launch_counts import LaunchCounts

from .hook_points import cupy, function


class PreparedKernel(function.Function):
    """A function of a prepared module: delays launches while the pool is almost full, and counts them."""

    def __init__(self, module: PreparedModule, name: str) -> None:
        super().__init__(module, name)
        self._number, self._counts = module.numbers.get(name), module.counts

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._launch(super().__call__, args, options)

    def linear_launch(self, *args: Any, **options: Any) -> Any:
        return self._launch(super().linear_launch, args, options)

    def _launch(self, launch: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        registry.backend("cuda").pace(self.ptr)
        stream = args[4] if len(args) > 4 else options.get("stream")
        counts = self._counts.open((stream or cupy.cuda.get_current_stream()).ptr)
        result = launch(*args, **options)
        if counts is not None and self._number is not None:
            counts[self._number] += 1
        return result


class PlainKernel(function.Function):
    """Wraps a function that stays plain, to report its launches."""

    def __init__(self, wrapped: Any, name: str, launched: set[str]) -> None:
        self.ptr, self.module = wrapped.ptr, wrapped.module
        self.wrapped, self._name, self._launched = wrapped, name, launched

    def __call__(self, *args: Any, **options: Any) -> Any:
        self._launched.add(self._name)
        return self.wrapped(*args, **options)

    def linear_launch(self, *args: Any, **options: Any) -> Any:
        self._launched.add(self._name)
        return self.wrapped.linear_launch(*args, **options)


class PreparedModule(function.Module):
    """Takes over the handle of a prepared module that CuPy loaded.

    Attributes:
        numbers: kernel ids by the kernels' names.
        counts: where launches of its functions count.
    """

    def __init__(self, module: Any, counts: LaunchCounts) -> None:
        super().__init__()
        self.numbers: Mapping[str, int] = {}
        self.counts = counts
        self.ptr, module.ptr = module.ptr, 0  # only this one unloads it
        if module.mapping is not None:
            self._set_mapping(module.mapping)

    def get_function(self, name: Any) -> PreparedKernel:
        return PreparedKernel(self, name)
