"""A CUDA driver that is a dictionary: device memory as numpy arrays, and warps that play the device's side."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kscope.capture import layout, wire
from kscope.capture.layout import Kind
from kscope.capture.metadata import to_json
from kscope.capture.model import KernelMeta, ModuleMeta, RegionMeta
from kscope.errors import DriverError
from kscope_runtime.device_memory import Allocation
from kscope_runtime.driver import DeviceFacts
from kscope_runtime.entry_points import EntryPoints
from kscope_runtime.memory_ranges import Bytes, Ranges, read_each
from kscope_sim.protocol import Anchor, Slab, Thread, announce, claim

KERNEL = 0x1234_5678_9ABC_DEF0
REGION = "load"


class Gpu:
    """One context: allocations by address, modules, and where the control block is once a module is armed."""

    def __init__(self, ordinal: int = 0, sms: int = 4, free: int = 1 << 30) -> None:
        self.facts = DeviceFacts(ordinal, f"fake {ordinal}", sms)
        self.free = free
        self.blocks: dict[int, Bytes] = {}
        self.modules: dict[int, dict[str, tuple[int, int]]] = {}
        self._next = 0x7F00_0000_0000 + (ordinal << 36)

    def allocate(self, size: int, fill: int = 0xAB) -> int:
        """Memory that is not clear, as a real device's."""
        address, self._next = self._next, self._next + (size + 511) // 512 * 512
        self.blocks[address] = np.full(size, fill, np.uint8)
        return address

    def view(self, address: int, size: int) -> Bytes:
        """The bytes at an address; fails the test outside of any allocation."""
        starts = sorted(self.blocks)
        start = starts[bisect_right(starts, address) - 1]
        assert start <= address and address + size <= start + len(self.blocks[start]), "outside of an allocation"
        return self.blocks[start][address - start : address - start + size]

    def module(self, handle: int, *, meta: bytes | None = None, prepared: bool = True) -> int:
        """A module loaded in the fake driver."""
        symbols = {}
        if prepared:
            symbols[wire.CTL_SYMBOL] = (self.allocate(8, fill=0), 8)
            data = described() if meta is None else meta
            if data:
                symbols[layout.META_SYMBOL] = (self.allocate(len(data)), len(data))
                self.view(*symbols[layout.META_SYMBOL])[:] = np.frombuffer(data, np.uint8)
        self.modules[handle] = symbols
        return handle

    def bound(self, handle: int) -> int:
        """The contents of a module's kscope_ctl."""
        return int(self.view(*self.modules[handle][wire.CTL_SYMBOL]).view("<u8")[0])

    def memory(self, handle: int) -> Memory:
        """Device memory as a kernel of that module sees it."""
        return Memory(self, self.bound(handle))


def described(log2: int = 2, name: str = "kernel") -> bytes:
    """Metadata of a module with one kernel."""
    kernels = (KernelMeta(name, KERNEL, log2),)
    return to_json(ModuleMeta("triton", kernels, (RegionMeta(REGION),))) + b"\0"


@dataclass
class Memory:
    """The memory interface of kscope_sim.protocol; stores wait in `pending` until the test performs them."""

    gpu: Gpu
    control: int
    pending: list[tuple[int, npt.NDArray[np.uint32]]] = field(default_factory=list)

    @property
    def gate(self) -> Any:
        return self.gpu.view(self.control, wire.GATE_BYTES).view(wire.GATE)[0]

    @property
    def stripes(self) -> npt.NDArray[Any]:
        size = (self.gpu.facts.sms + 1) * wire.STRIPE_BYTES
        return self.gpu.view(self.control + wire.STRIPES_AT, size).view(wire.STRIPE)

    @property
    def table(self) -> npt.NDArray[Any]:
        at = int(self.gate["launches"]) or self.control + wire.table_offset(self.gpu.facts.sms)
        return self.gpu.view(at, wire.SLOTS * wire.LAUNCH_BYTES).view(wire.LAUNCH)

    def atom_add(self, stripe: int, word: str, amount: int) -> int:
        before = int(self.stripes[word][stripe])
        self.stripes[word][stripe] = before + amount & 0xFFFFFFFF
        return before

    def store(self, address: int, words: npt.NDArray[np.uint32]) -> None:
        self.pending.append((address, words))

    def happen(self, count: int | None = None) -> None:
        """Let the oldest stores reach memory."""
        for address, words in self.pending[:count]:
            self.gpu.view(address, words.nbytes)[:] = words.view(np.uint8)
        del self.pending[:count]


class Lane:
    """One recording lane, step by step: claim, head, records, leave. grid: its launch; 0: one per size."""

    def __init__(
        self, memory: Memory, *, sm: int = 0, log2: int = 2, block: int = 0, warp: int = 0, grid: int = 0
    ) -> None:
        self.memory = Memory(memory.gpu, memory.control)
        self.thread = Thread(KERNEL, log2, 0, grid or log2, (10_000, 1, 1), (128, 1, 1), (block, 0, 0), warp, 0, sm)
        self.slab: Slab | None = None
        self.written = 0

    def claim(self) -> Lane:
        """The atomics; the head is on its way, and block 0 has written the launch's entry."""
        epoch = int(self.memory.gate["epoch"])
        first = replace(self.thread, ctaid=(0, 0, 0), warp=0, lane=0)
        announce(self.memory, first, epoch, 1000)  # type: ignore[arg-type]  # as below
        self.slab = claim(self.memory, self.thread, epoch, Anchor(100, 1000, 2))  # type: ignore[arg-type]  # as much of a Memory as it uses
        return self

    def begin(self) -> Lane:
        """The head arrives."""
        self.memory.happen()
        return self

    def record(self, count: int = 1) -> Lane:
        """Records arrive."""
        if self.slab is not None:
            for _ in range(count):
                self.slab.store(REGION, Kind.SPAN, 200 + self.written, 300 + self.written)
                self.written += 1
        self.memory.happen()
        return self

    def leave(self) -> Lane:
        """The end arrives."""
        if self.slab is not None:
            self.slab.leave(Anchor(1000, 2000, 2))
        self.memory.happen()
        return self

    def run(self, records: int = 2) -> Lane:
        """All of it."""
        return self.claim().begin().record(records).leave()


class FakeDriver:
    """The driver over several Gpus; `current` is the context, an index into them plus one. `broken` makes every call
    fail, as after a kernel that trapped. Copies happen when their stream is synchronized or queried."""

    def __init__(self, *gpus: Gpu, current: int = 1) -> None:
        self.gpus = gpus or (Gpu(),)
        self.current = current
        self.broken: tuple[str, int] | None = None
        self.attributes: dict[int, dict[int, int]] = {}  # of functions, by handle and number
        self.libraries: dict[int, int] = {}  # handle of a library: of its module
        self.kernels: dict[int, int] = {}  # of its library
        self.functions: dict[int, int] = {}  # of its module
        self.calls: list[str] = []
        self.host: dict[int, Bytes] = {}
        self.clock = 10_000
        self.full = False  # persistent blocks fill the device, so that kscope's kernels cannot start
        self.strict: list[int] = [0]  # stack of capture modes: 0 = a capture on this thread forbids unsafe calls
        self.running: list[Any] = []  # called by synchronize_context: the work that ends then
        self.streams: dict[int, list[Any]] = {}  # copies that wait, in order
        self.kernels_on: set[int] = set()  # streams that kernels were launched on
        self.captures: dict[int, int | None] = {}  # stream -> the id of its graph capture
        self.held: list[Any] = []  # what compiled code may call
        self.meanwhile: list[Any] = []  # called one by one after each stream synchronization: the progress of warps

    def _call(self, name: str) -> Gpu:
        self.calls.append(name)
        if self.broken is not None:
            raise DriverError(name, *self.broken)
        return self.gpus[self.current - 1]

    def context(self) -> int:
        return self.current

    def set_context(self, context: int) -> None:
        self.current = context

    def facts(self) -> DeviceFacts:
        return self._call("facts").facts

    def free_memory(self) -> int:
        return self._call("free_memory").free

    def allocate(self, size: int) -> Allocation:
        return Allocation(self._call("allocate").allocate(size), size)

    def free(self, memory: Allocation) -> None:
        gpu = self._call("free")
        for stream in self.streams:
            self._finish(stream)
        del gpu.blocks[memory.address]

    def pinned(self, size: int) -> Bytes:
        self._call("pinned")
        buffer = np.zeros(size, np.uint8)
        self.host[buffer.ctypes.data] = buffer
        return buffer

    def register(self, memory: Bytes) -> None:
        self._call("register").blocks[memory.ctypes.data] = memory

    def unregister(self, memory: Bytes) -> None:
        del self._call("unregister").blocks[memory.ctypes.data]

    def stream(self) -> int:
        self._call("stream")
        self.streams[len(self.streams) + 1] = []
        return len(self.streams)

    def synchronize(self, stream: int) -> None:
        self._call("synchronize")
        self._finish(stream)
        if self.meanwhile:
            self.meanwhile.pop(0)()

    def _finish(self, stream: int) -> None:
        while self.streams[stream]:
            self.streams[stream].pop(0)()

    def capture(self, stream: int) -> int | None:
        return self.captures.get(stream, 0)

    def ready(self, stream: int) -> bool:
        self._call("ready")
        if self.full and stream in self.kernels_on:
            return False
        self._finish(stream)
        return True

    def synchronize_context(self) -> None:
        self._call("synchronize_context")
        while self.running:
            self.running.pop(0)()
        for stream in self.streams:
            self._finish(stream)

    def read(self, into: Bytes, address: int, stream: int) -> None:
        memory = self._call("read").view(address, into.nbytes)
        self.streams[stream].append(lambda: np.copyto(into, memory))

    def write(self, address: int, words: Bytes, stream: int) -> None:
        memory = self._call("write").view(address, words.nbytes)
        self.streams[stream].append(lambda: np.copyto(memory, words))

    def read_ranges(self, into: Bytes, ranges: Ranges, stream: int) -> None:
        read_each(self, into, ranges, stream)

    def write_ranges(self, ranges: Ranges, words: Bytes, stream: int) -> None:
        for address, size in zip(ranges.address.tolist(), ranges.size.tolist(), strict=True):
            self.write(address, words[:size], stream)

    def write_column(self, address: int, pitch: int, words: Bytes, width: int, stream: int) -> None:
        gpu = self._call("write_column")

        def write() -> None:
            for row, value in enumerate(words.reshape(-1, width)):
                gpu.view(address + row * pitch, width)[:] = value

        self.streams[stream].append(write)

    def symbol(self, module: int, name: str) -> tuple[int, int] | None:
        return self._call("symbol").modules[module].get(name)

    def copy_attribute(self, of: int, to: int, number: int) -> None:
        if number in self.attributes[of]:
            self.attributes[to][number] = self.attributes[of][number]

    def module_of_library(self, library: int) -> int:
        return self._of("cuLibraryGetModule", self.libraries, library)

    def library_of_kernel(self, kernel: int) -> int:
        return self._of("cuKernelGetLibrary", self.kernels, kernel)

    def module_of_function(self, function: int) -> int:
        return self._of("cuFuncGetModule", self.functions, function)

    def _of(self, name: str, known: dict[int, int], handle: int) -> int:
        self._call(name)
        if handle not in known:
            raise DriverError(name, "CUDA_ERROR_INVALID_HANDLE", 400)
        return known[handle]

    def load(self, ptx: str) -> int:
        self._call("load")
        return 99

    def launch(self, module: int, name: str, argument: int, stream: int) -> None:
        self._call("launch")
        self.kernels_on.add(stream)
        self.clock += 32
        if not self.full:
            value = 32 if name == "ks_tick" else self.clock
            self._word(argument).view("<u8")[0] = value

    def _word(self, address: int) -> Bytes:
        """8 bytes of pinned or device memory."""
        for base, buffer in self.host.items():
            if base <= address < base + buffer.nbytes:
                return buffer[address - base :][:8]
        return self.gpus[self.current - 1].view(address, 8)

    def entry_points(self) -> EntryPoints | None:
        return None  # tests count and interrupt single calls

    def check(self, call: str, result: int) -> None:
        assert not result

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        self.strict.append(1)
        try:
            yield
        finally:
            self.strict.pop()
