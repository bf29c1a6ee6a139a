"""PC sampling of every context: CUPTI's continuous mode, which does not serialize kernels. A thread moves samples from
CUPTI's buffers into a table while kernels run.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial

import numpy as np

from kscope.capture.samples import NOT_ISSUED, SampledFunction, Samples
from kscope.errors import DriverError, KscopeError, UnsupportedError
from kscope.instrument.raw_samples import SampledCode

from . import cupti
from .clocks import OWN_KERNELS
from .cupti import Cupti
from .sample_buffers import Buffer, Modules, keep_forever
from .sample_table import SampleTable
from .sample_times import SampleTimes

_POLL_S = 0.05
"""Seconds between two reads."""
_SLEEP_MS = 10
"""Interval at which the library's threads empty the hardware's buffer. The library's default is 100: a read returns
samples of 200 ms ago, or none until the end.
"""
_MOST_READS = 1 << 10
"""Most reads in a round, and at the end."""
_PREFIX = "stalled_"


class ContextSampler:
    """The samples of one context in one session.

    Args:
        library: CUPTI.
        context: the driver's handle.
        period: cycles between two samples, a power of two.

    Raises:
        UnsupportedError: it cannot be sampled, with the reason.
        DriverError: a call failed.
    """

    def __init__(self, library: Cupti, context: int, period: int) -> None:
        self._library, self._context, self.period = library, context, period
        self._table, self._times = SampleTable(), SampleTimes()
        self._functions: dict[tuple[int, int, int], int] = {}  # module, index, address of the name -> number
        self._names: list[tuple[str, int]] = []
        self._dropped = self._elsewhere = 0
        self._full = False
        self._sampling = self._enabled = False
        self._polls = True
        self._error: KscopeError | None = None
        library.enable(context)
        self._enabled = True
        try:
            self._reasons = library.reasons(context)
            self._last, self._next = Buffer(len(self._reasons)), Buffer(len(self._reasons))
            subsets = [index for index, name in self._reasons.items() if name.endswith(NOT_ISSUED)]
            self._subsets = np.array(subsets, np.int64)
            values = {
                cupti.PERIOD: period.bit_length() - 1,
                cupti.MODE: cupti.CONTINUOUS,
                cupti.START_STOP: 1,
                cupti.BUFFER: ctypes.addressof(self._last.data),
            }
            try:
                library.configure(context, values | {cupti.THREAD_SLEEP: _SLEEP_MS})
            except DriverError:  # a library that does not know the attribute
                library.configure(context, values)
        except BaseException:
            library.disable(context)
            raise

    @property
    def problem(self) -> str:
        """Reason why sampling ended early; empty if it did not."""
        return "" if self._error is None else str(self._error)

    def start(self) -> None:
        """Start taking samples."""
        if self._enabled and not self._sampling:
            self._library.start(self._context)
            self._sampling = True
            self._times.start()

    def stop(self) -> None:
        """Stop taking samples, and read the remaining ones."""
        if self._enabled and self._sampling:
            self._sampling = False
            self._library.stop(self._context)
            self._read(final=True)

    def poll(self) -> None:
        """Move samples that have arrived into the table, while kernels run."""
        if self._sampling and self._polls:
            try:
                self._read(final=False)
            except DriverError:  # a library that reads only after the end: CUPTI keeps the counts until then
                self._polls = False

    def _read(self, *, final: bool) -> None:
        for _ in range(_MOST_READS):
            complete = self._library.read(self._context, self._next.data)
            self._full |= not complete  # from then on each read reports it, until the context is disabled
            count, more = int(self._next.data.pcs), int(self._next.data.remaining)
            self._take(self._next)
            if not (more or (final and count)):
                break
        self._times.turn()

    def end(self, *, wait: bool) -> None:
        """End the sampling. Without `wait`, kernels may run and never end: only samples that have arrived are read."""
        if not self._enabled:
            return
        try:
            if not wait:
                self.poll()
                keep_forever(self._last)  # CUPTI writes to it when the process ends
                return
            self.stop()
            self._enabled = False
            self._library.disable(self._context)  # also so that other processes can use the GPU's counters
            self._take(self._last)
            self._times.end()
        except KscopeError as error:  # the context may be broken: the samples until then are kept
            self._enabled, self._error = False, error

    def samples(self, modules: Modules, loaded: Callable[[bytes], bytes] = lambda cubin: cubin) -> SampledCode:
        """All samples read so far. loaded: returns a frontend's cubin as it was loaded in this context."""
        rows = self._table.rows()
        names = [self._reasons[index] for index in sorted(self._reasons)]
        number = {index: at for at, index in enumerate(sorted(self._reasons))}
        if len(rows):
            rows["reason"] = np.array([number.get(one, 0) for one in range(max(number) + 1)])[rows["reason"]]
        functions, cubin_of, cubins = list[SampledFunction](), dict[int, int](), dict[bytes, int]()
        code = modules.code(self._names, lambda cubin: self._library.checksum(loaded(cubin)))
        for at, (name, module) in enumerate(self._names):
            cubin = code.get((name, module))
            why = modules.why_unknown(module) if cubin is None else ""
            functions.append(SampledFunction(name, why_unknown=why))
            if cubin is not None:
                cubin_of[at] = cubins.setdefault(cubin, len(cubins))
        samples = Samples(
            self.period, tuple(short(name) for name in names), tuple(functions), rows, self._dropped, int(self._full),
            self._elsewhere, self._table.left_out, windows=self._times.rows(),
        )  # fmt: skip
        return SampledCode(samples, tuple(cubins), cubin_of)

    def _take(self, buffer: Buffer) -> None:
        data = buffer.data
        self._dropped += int(data.dropped)
        self._elsewhere += int(data.elsewhere)
        pcs, reasons = buffer.taken()
        data.pcs = data.dropped = data.elsewhere = 0  # so that a buffer that is not written again counts once
        if not len(pcs):
            return
        functions = np.array([self._function(row) for row in pcs[["cubin", "index", "name"]].tolist()], np.int64)
        at, which = np.nonzero((reasons["samples"] > 0) & (functions >= 0)[:, None])
        found = reasons[at, which]
        index, counts = found["index"].astype(np.int64), found["samples"].astype(np.uint64)
        self._table.add(functions[at], pcs["pc"][at].astype(np.int64), index, counts)
        whole = ~np.isin(index, self._subsets)
        self._times.add(functions[at][whole], counts[whole])

    def _function(self, key: tuple[int, int, int]) -> int:
        module, index, address = key
        number = self._functions.get(key)
        if number is None:
            name = (ctypes.string_at(address) if address else b"").decode("utf-8", "replace") or f"function {index}"
            if name in OWN_KERNELS:
                return self._functions.setdefault(key, -1)
            same = next((at for at, one in enumerate(self._names) if one == (name, module)), None)
            number = self._functions[key] = len(self._names) if same is None else same
            if same is None:
                self._names.append((name, module))
        return number


class PcSampler:
    """The samplers of all contexts, and the thread that reads them.

    Args:
        load: returns the library; None for NVIDIA's.
        watch: called in each round of the thread: it finds contexts that the program has created, and adds them.
        inside: a context manager in which a context is current.
        loaded: returns a frontend's cubin as it was loaded in a context.
    """

    def __init__(
        self,
        load: Callable[[], Cupti] | None = None,
        watch: Callable[[], None] = lambda: None,
        inside: Callable[[int], AbstractContextManager[None]] = lambda context: nullcontext(),
        loaded: Callable[[int, bytes], bytes] = lambda context, cubin: cubin,
    ) -> None:
        self._load: Callable[[], Cupti] = load or (lambda: Cupti(cupti.find()))
        self._watch, self._inside, self._loaded = watch, inside, loaded
        self._library: Cupti | None = None
        self._modules = Modules()
        self._period = 0
        self._paused = self._used = self._registered = False
        self._contexts: dict[int, ContextSampler] = {}
        self._problems: list[str] = []
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._lock = threading.RLock()

    def begin(self, period: int) -> None:
        """A new recording begins; contexts join with add().

        Raises:
            MissingError: the library is not installed.
            UnsupportedError: another profiler is active.
        """
        if client := cupti.other_client():
            raise UnsupportedError(
                f"{client} profiles this process, and only one profiler can at a time: run without it"
            )
        self.end(wait=True)
        with self._lock:
            self._problems = []
            if self._library is None:
                self._library = self._load()
            if self._used or cupti.torch_may_have_used_it():
                self._begin_anew(self._library)
            self._period, self._paused, self._contexts = period, False, {}
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._read, args=(self._stop,), name="kscope samples", daemon=True)
            self._thread.start()

    def add(self, context: int) -> None:
        """Sample a context from now on; note a problem if that fails."""
        with self._lock:
            if self._thread is None or self._library is None or context in self._contexts:
                return
            try:
                with self._inside(context):
                    sampler = ContextSampler(self._library, context, self._period)
                    self._register(self._library)
                    if not self._paused:
                        sampler.start()
                self._contexts[context] = sampler
            except (UnsupportedError, DriverError) as error:
                if str(error) not in self._problems:
                    self._problems.append(str(error))

    def _begin_anew(self, library: Cupti) -> None:
        """Make CUPTI learn of all loaded modules at its next use. Else it attributes no samples to modules that were
        loaded since its first use while their context was not enabled.
        """
        self._registered = False
        with suppress(DriverError, UnsupportedError):  # it was not used
            library.finalize()

    def _register(self, library: Cupti) -> None:
        """Receive modules from now on. After a context is enabled, because this is a use of CUPTI."""
        self._used = True
        if not self._registered:
            self._registered = True
            try:
                library.on_module(self._modules.seen)
            except (DriverError, UnsupportedError) as error:
                self._modules.refused = str(error)

    def contexts(self) -> tuple[int, ...]:
        """The contexts that are sampled."""
        return tuple(self._contexts)

    def pause(self, paused: bool) -> None:
        """Pause the sampling, or continue."""
        with self._lock:
            self._paused = paused
            for sampler in self._contexts.values():
                self._noted(sampler.stop if paused else sampler.start)

    def end(self, *, wait: bool) -> None:
        """End the recording; its samples stay. `wait`: all launches have ended."""
        thread, self._thread = self._thread, None
        self._stop.set()
        if thread is not None:
            thread.join()
        with self._lock:
            for sampler in self._contexts.values():
                sampler.end(wait=wait)

    def samples(self) -> tuple[SampledCode, ...]:
        """All samples so far, per context."""
        with self._lock:
            return tuple(
                sampler.samples(self._modules, partial(self._loaded, context))
                for context, sampler in self._contexts.items()
            )

    def problems(self) -> tuple[str, ...]:
        """Reasons why contexts were not sampled, or not to the end."""
        with self._lock:
            ended = [one.problem for one in self._contexts.values() if one.problem]
            return tuple(dict.fromkeys([*self._problems, *ended]))

    def _read(self, stop: threading.Event) -> None:
        while not stop.wait(_POLL_S):
            self._noted(self._watch)
            with self._lock:
                for sampler in self._contexts.values():
                    sampler.poll()

    def _noted(self, call: Callable[[], None]) -> None:
        try:
            call()
        except KscopeError as error:
            if str(error) not in self._problems:
                self._problems.append(str(error))


def short(name: str) -> str:
    """smsp__pcsamp_warps_issue_stalled_long_scoreboard as long_scoreboard."""
    return name.rpartition(_PREFIX)[2] if _PREFIX in name else name.removeprefix("smsp__pcsamp_").removeprefix("warps_")
