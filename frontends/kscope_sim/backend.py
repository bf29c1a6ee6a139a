"""The simulator's backend: the simulated device and its instrumented kernels."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from pathlib import Path

from kscope.capture.capture_data import DeviceCapture
from kscope.capture.model import ModuleMeta, Problem
from kscope.instrument.backend import Backend, OpenPool, Simulator, Triple
from kscope.instrument.launch_lines import LINES
from kscope.instrument.raw_samples import SampledCode
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset

from .device import SimDevice
from .interpreted import InterpretedLaunch, ThreadedLaunch
from .module import Module
from .samples import Sampler


class SimBackend(Backend, Simulator):
    """Owns the simulated device and its modules.

    Attributes:
        device: the simulated device.
        recording: the options that kernels are instrumented with; None while recording is off.
        sampler: counts PC samples; None while stalls are not sampled.
    """

    def __init__(self) -> None:
        self.device = SimDevice()
        self.recording: Recording | None = None
        self._modules: dict[tuple[object, str], Module] = {}
        self.sampler: Sampler | None = None
        self._sampled: Sampler | None = None
        self._open_pool: OpenPool | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """A child does not write to its parent's file."""
        if self.device.memory.file is not None:
            self.device = SimDevice()

    def module_loaded(self, module: int) -> tuple[ModuleMeta, ...]:
        """Does nothing: simulated modules share one gate."""
        return ()

    def survive(self, open_pool: OpenPool | None) -> None:
        """Set where the pool of the next session is."""
        self._open_pool = open_pool

    def arm(self, epoch: int, subset: Subset, pool_bytes: int | None, folder: Path | None = None) -> None:
        """A fresh pool and an open gate."""
        if self.device.arm(epoch, subset, pool_bytes, self._open_pool):
            self._modules.clear()
        for module in self._modules.values():
            self._note(module)

    def disarm(self) -> None:
        """Close the gate: warps that start afterwards claim no slab."""
        self.device.disarm()

    def resume(self) -> None:
        """Open the gate again."""
        self.device.resume()

    def begin_samples(self, period: int) -> None:
        """Sample launches from now on."""
        self.sampler = self._sampled = Sampler(period)

    def pause_samples(self, paused: bool) -> None:
        """Pause the sampling, or continue."""
        if self.sampler is not None:
            self.sampler.paused = paused

    def end_samples(self, *, wait: bool) -> None:
        """Stop sampling launches."""
        self.sampler = None

    def samples(self) -> tuple[SampledCode, ...]:
        """Samples since begin_samples()."""
        return () if self._sampled is None else (self._sampled.samples(),)

    def collect(self, *, wait: bool) -> list[DeviceCapture]:
        """All slabs claimed since arm(). wait=True also frees slabs that were never finished."""
        return [self.device.collect(wait=wait)]

    def problems(self) -> tuple[Problem, ...]:
        """Problems for readers of the slabs last collected."""
        return self.device.problems()

    def modules(self) -> tuple[ModuleMeta, ...]:
        """Every module launched since arm(), with the names of the marks it reached."""
        return tuple(module.meta() for module in tuple(self._modules.values()))

    def module(self, name: str, kernel: Callable[..., object]) -> Module | None:
        """The kernel, instrumented with the current options; None while recording is off.

        Args:
            name: the kernel's name.
            kernel: the kernel, which identifies its module.
        """
        if self.recording is None:
            return None
        return self._prepared(name, kernel, self.recording)

    def launch_by_block(
        self, name: str, kernel: Callable[..., object], grid: Triple, recording: Recording
    ) -> InterpretedLaunch:
        """See Simulator.launch_by_block()."""
        module = self._prepared(name, kernel, recording)
        LINES.add(module.id)
        return InterpretedLaunch(self.device, name, module, grid)

    def launch_by_thread(
        self, name: str, kernel: Callable[..., object], grid: Triple, block: Triple, recording: Recording
    ) -> ThreadedLaunch:
        """See Simulator.launch_by_thread()."""
        module = self._prepared(name, kernel, recording)
        LINES.add(module.id)
        return ThreadedLaunch(self.device, name, module, grid, block)

    def _note(self, module: Module) -> None:
        """Note a module's new metadata."""
        if (file := self.device.memory.file) is not None:
            file.modules((module.meta(),))

    def _prepared(self, name: str, kernel: Callable[..., object], recording: Recording) -> Module:
        key = kernel if isinstance(kernel, Hashable) else id(kernel), recording.tag()
        if key not in self._modules:
            self._modules.setdefault(
                key, Module(name, kernel, recording, self._note)
            )  # another thread may have added it
        return self._modules[key]
