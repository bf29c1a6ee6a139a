"""The CUDA backend: sessions on every device that this process uses."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kscope.capture import wire
from kscope.capture.capture_data import DeviceCapture
from kscope.capture.model import ModuleMeta, Problem
from kscope.errors import DriverError, UsageError
from kscope.instrument.backend import OpenPool
from kscope.instrument.raw_samples import SampledCode
from kscope.instrument.subset import Subset
from kscope.instrument.two_forms import SETTABLE
from kscope.machine_code import control_words

from . import broken_context, handles
from .arming import Modules
from .broken_context import Salvage
from .cupti import Cupti
from .device import Device
from .drain import Drain
from .driver import CudaDriver
from .interruptible_wait import waited
from .measuring_backend import MeasuredBackend
from .pc_sampling import PcSampler
from .salvage import SalvagedMemory


@dataclass(frozen=True)
class _Session:
    epoch: int
    subset: Subset
    pool: int | None
    folder: Path | None
    open_pool: OpenPool | None = None


class CudaBackend(MeasuredBackend):
    """One per process. A device is identified by the context that was current when a module was loaded or a session
    armed; a device first used later joins the session then.

    Raises:
        MissingError: there is no driver or GPU.
        UsageError: in a forked child, where CUDA does not work.
    """

    def __init__(
        self, driver: CudaDriver | None = None, salvage: Salvage = SalvagedMemory,
        cupti: Callable[[], Cupti] | None = None,
    ) -> None:  # fmt: skip
        self._driver = CudaDriver() if driver is None else driver
        self._salvage = salvage
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._devices: dict[int, Device] = {}  # by context
        self._drains: dict[int, Drain] = {}
        self._modules = Modules()
        self._session: _Session | None = None
        self._open_pool: OpenPool | None = None
        self._open = False
        self._problems: list[Problem] = []
        self._sampler = PcSampler(cupti, self._sample_others, self._inside, self._as_loaded)

    # Backend

    def module_loaded(self, module: int) -> tuple[ModuleMeta, ...]:
        """Arm a module loaded in the current context, if it was compiled for recording. Safe during graph capture."""
        with self._mine(), self._driver.relaxed():
            if self._driver.symbol(module, wire.CTL_SYMBOL) is None:
                return ()
            found = self._modules.loaded(module, self._device())
            self._note_modules()
            return found

    def arm_control_block(self, control: int, metas: Sequence[ModuleMeta]) -> None:
        """Arm a module that a library loaded in the current context."""
        with self._mine(), self._driver.relaxed():
            self._modules.add(metas)
            self._device().bind(control, metas)
            self._note_modules()

    def patched(self, cubin: bytes, ordinal: int = 0) -> bytes:
        """See Backend.patched(). The control block is this context's, and never freed."""
        if not control_words.moves(cubin):
            return cubin
        with self._mine(), self._driver.relaxed():
            if not self._driver.context():
                self._driver.use(ordinal)
            return control_words.patched(cubin, self._device().control)

    def relaxed(self) -> AbstractContextManager[None]:
        """A context manager in which this thread may load modules while any thread captures a graph."""
        return self._driver.relaxed()

    def copy_attributes(self, of: int, to: int) -> None:
        """Give a function the attributes of another one that the driver lets a program set."""
        with self._mine(), self._driver.relaxed():
            for attribute in SETTABLE:
                self._driver.copy_attribute(of, to, attribute)

    def bind(self, code: Any, metas: Sequence[ModuleMeta]) -> tuple[ModuleMeta, ...]:
        """Arm the module behind a handle in the current context. Raises UsageError, FormatError, DriverError."""
        with self._mine(), self._driver.relaxed():
            found = self._modules.bind(handles.module(self._driver, code), self._device(), metas)
            self._note_modules()
            return found

    def survive(self, open_pool: OpenPool | None) -> None:
        """Set where the pools of the next session are."""
        self._open_pool = open_pool

    def arm(self, epoch: int, subset: Subset, pool_bytes: int | None, folder: Path | None = None) -> None:
        """Open the gates of all devices for this epoch. Data of an earlier armed epoch is dropped."""
        with self._mine(), self._driver.relaxed():
            if self._driver.context():
                self._device()  # before a session exists, which would arm it twice
            self._session = _Session(epoch, subset, pool_bytes, folder, self._open_pool)
            self._open, self._problems = True, []
            for device in self._devices.values():
                self._arm(device)

    def pace(self, kernel: Hashable = None) -> None:
        """Delay launches while more than a quarter of the current device's pool is claimed, or while earlier ones are
        expected to claim more than half of it, so that nothing is lost. The delay is bounded: the work that fills the
        pool may wait for this launch.
        """
        if self._open:
            drain = self._drains.get(self._driver.context())
            if drain is not None:
                drain.wait_for_room(kernel)

    def is_open(self) -> bool:
        """True if the gates are open."""
        return self._open

    def capture(self, stream: int) -> int | None:
        """The id of the graph capture of a stream of the current context; 0 for none, None if it is unknown."""
        return self._driver.capture(stream)

    def begin_samples(self, period: int) -> None:
        """Sample every context of this process. Creates that of this process's GPU if there is none, so that the first
        module that is loaded is known.
        """
        self._sampler.begin(period)
        contexts = dict.fromkeys([*self._devices, *self._driver.primary.active()])
        for context in contexts or (self._driver.primary.of_this_process(),):
            self._sampler.add(context)

    def pause_samples(self, paused: bool) -> None:
        """Take no samples for now, or continue."""
        self._sampler.pause(paused)

    def end_samples(self, *, wait: bool) -> None:
        """End the sampling."""
        self._sampler.end(wait=wait)

    def samples(self) -> tuple[SampledCode, ...]:
        """Samples since begin_samples()."""
        return self._sampler.samples()

    def sampling_problems(self) -> tuple[str, ...]:
        """Reasons why contexts were not sampled."""
        return self._sampler.problems()

    def wait(self) -> None:
        """Wait for all work of all devices. Without the lock: running work may wait for a thread that loads a
        module.
        """
        with self._mine():
            drains = dict(self._drains)
        for context in dict.fromkeys([*drains, *self._sampler.contexts()]):
            if (error := waited(self._driver, partial(self._inside, context))) is not None and context in drains:
                self._failed(drains[context], error)

    def read_timers(self, when: str) -> None:
        """Launch kernels on each device that only read its timer, at the session's "begin" or "end"."""
        with self._mine():
            for drain in self._drains.values():
                try:
                    with self._inside(drain.device.context):
                        drain.device.read_timer(when)
                except DriverError as error:
                    self._failed(drain, error)

    def disarm(self) -> None:
        """Close the gates. Warps that have claimed continue, and their records are still drained."""
        with self._mine():
            self._open = False
            for drain in self._drains.values():
                self._gate(drain, 0)

    def resume(self) -> None:
        """Open the gates that disarm() closed, for the same epoch."""
        with self._mine():
            if self._session is None:
                return
            self._open = True
            for device in self._devices.values():
                if device.context in self._drains:
                    self._gate(self._drains[device.context], self._session.epoch)
                else:
                    self._arm(device)

    def collect(self, *, wait: bool) -> list[DeviceCapture]:
        """Everything recorded under the last epoch. wait=True waits for all work and ends the drains. A device whose
        context a kernel broke returns what its memory holds, and a problem.
        """
        if wait:
            self.wait()
        with self._mine():
            return [self._collect(drain, wait) for drain in self._drains.values()]

    def modules(self) -> tuple[ModuleMeta, ...]:
        """The metadata of every module compiled for recording in this process."""
        return self._modules.metas()

    def problems(self) -> tuple[Problem, ...]:
        """Problems since arm()."""
        drained = [problem for drain in self._drains.values() for problem in drain.problems()]
        return (*self._problems, *drained, *self._modules.problems)

    # devices

    def _device(self) -> Device:
        """The current context's device, created on first use and armed if a session is."""
        context = self._driver.context()
        if context not in self._devices:
            device = self._devices[context] = Device(self._driver)
            self._sampler.add(context)
            if self._session is not None and self._open:
                self._arm(device)
        return self._devices[context]

    def _arm(self, device: Device) -> None:
        session = self._session
        assert session is not None
        with self._inside(device.context):
            drain = self._drains.get(device.context)
            if drain is None:
                device.open_pool(session.pool, session.open_pool)
                drain = self._drains[device.context] = Drain(device)
            drain.begin(session.epoch, session.pool, session.folder, session.open_pool)
            device.begin()
            self._note_modules()
            self._gate(drain, session.epoch)
            drain.start()

    def _note_modules(self) -> None:
        """Names go where the records are."""
        for device in self._devices.values():
            if device.file is not None:
                device.file.modules(self._modules.metas())

    def _gate(self, drain: Drain, epoch: int) -> None:
        assert self._session is not None
        try:
            with self._inside(drain.device.context):
                drain.device.gate(epoch, self._session.subset)
        except DriverError as error:
            self._failed(drain, error)
        if epoch:
            drain.opened()
        else:
            drain.closed()

    def _collect(self, drain: Drain, wait: bool) -> DeviceCapture:
        device, lines, read_ns = drain.device, None, 0
        try:
            with self._inside(device.context):
                if wait:
                    drain.finish()
                    device.sync_clock()
                else:
                    now = device.now()  # warps that have not ended in the snapshot run at this time
                    lines = drain.snapshot()
                    read_ns = now
        except MemoryError as error:
            drain.stop()
            drain.end(error)
        except DriverError as error:
            self._failed(drain, error)
        if lines is None:
            lines = drain.release() if wait else drain.lines()
        return DeviceCapture(
            ordinal=device.facts.ordinal,
            name=device.facts.name,
            lines=lines,
            sms=device.facts.sms,
            lost=drain.lost(),
            tick_ns=device.tick_ns and max(device.tick_ns, 1 << wire.TIME_SHIFT),  # heads have no finer times
            syncs=tuple(device.syncs),
            max_clock_khz=device.facts.max_clock_khz,
            uuid=device.facts.uuid,
            read_ns=read_ns,
            begun=drain.begun(),
            readings=device.readings(),
        )

    def _failed(self, drain: Drain, error: DriverError) -> None:
        """Note the first error of a device, after which every call fails, and keep the contents of its memory."""
        ordinal = drain.device.facts.ordinal
        with self._lock:
            if any(problem.device == ordinal for problem in self._problems):
                return
            drain.stop()
            kept = broken_context.salvaged(drain, self._salvage, error)
            self._problems.append(Problem("driver", f"{error}; {kept}").on_device(ordinal))

    def _as_loaded(self, context: int, cubin: bytes) -> bytes:
        """The code that a frontend has kept, as it was loaded in a context."""
        device = self._devices.get(context)
        return cubin if device is None else control_words.patched(cubin, device.control)

    def _sample_others(self) -> None:
        """Sample contexts whose kernels have no marks."""
        for context in self._driver.primary.active():
            self._sampler.add(context)

    @contextmanager
    def _inside(self, context: int) -> Generator[None, None, None]:
        """Make a context current. Graph captures of other threads neither forbid nor record these calls."""
        with self._driver.relaxed():
            before = self._driver.context()
            if before == context:
                yield
                return
            self._driver.set_context(context)
            try:
                yield
            finally:
                self._driver.set_context(before)

    @contextmanager
    def _mine(self) -> Generator[None, None, None]:
        """One thread at a time, and only in the process that created the backend."""
        if os.getpid() != self._pid:
            raise UsageError(
                "this process was forked after kscope had used CUDA, and CUDA does not survive a fork: start it with "
                "multiprocessing's 'spawn' method, or import and profile only after the fork"
            )
        with self._lock:
            yield
