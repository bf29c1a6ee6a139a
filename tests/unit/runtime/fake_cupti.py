"""CUPTI without a GPU: it writes samples into the sampler's buffers as the library does."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field

from kscope.errors import DriverError, UnsupportedError
from kscope_runtime import cupti
from kscope_runtime.cupti import Data, PcData, StallReason

REASONS = {
    3: "smsp__pcsamp_warps_issue_stalled_long_scoreboard",
    5: "smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued",
    7: "smsp__pcsamp_warps_issue_stalled_selected",
}


@dataclass(frozen=True)
class Sampled:
    """Samples of one instruction: counts by index of the reason."""

    name: str
    pc: int
    counts: dict[int, int]
    module: int = 1


@dataclass
class FakeCupti:
    """The calls of cupti.Cupti.

    Attributes:
        ready: what reads return, in turn.
        late: what arrives only when sampling stops.
        last: what only disabling returns.
        modules: those that the program has loaded, and whether samples of them have their names.
        refuses: why it cannot be enabled.
        broken: calls that fail.
        full: each read says that the hardware's buffer was full, until the context is disabled.
        dropped: of the next read.
        unreadable: cubins that have no checksum.
        understates: reads say that nothing remains.
    """

    ready: list[list[Sampled]] = field(default_factory=list)
    late: list[Sampled] = field(default_factory=list)
    last: list[Sampled] = field(default_factory=list)
    modules: dict[bytes, bool] = field(default_factory=dict)
    used: bool = False
    enabled: bool = False
    refuses: str = ""
    broken: set[str] = field(default_factory=set)
    full: bool = False
    dropped: int = 0
    unreadable: set[bytes] = field(default_factory=set)
    understates: bool = False
    calls: list[str] = field(default_factory=list)
    configured: dict[int, int] = field(default_factory=dict)
    seen: Callable[[bytes], int] = lambda cubin: 0
    _names: dict[str, ctypes.Array[ctypes.c_char]] = field(default_factory=dict)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.broken:
            raise DriverError(name, "CUPTI_ERROR_INVALID_OPERATION", 7)

    def enable(self, context: int) -> None:
        if self.refuses:
            raise UnsupportedError(self.refuses)
        self._call("enable")
        if not self.used:
            self.modules = dict.fromkeys(self.modules, True)
        self.used = self.enabled = True

    def disable(self, context: int) -> None:
        self._call("disable")
        self.full = self.enabled = False
        self._write(Data.from_address(self.configured[cupti.BUFFER]), self.last)

    def start(self, context: int) -> None:
        self._call("start")

    def stop(self, context: int) -> None:
        self._call("stop")
        late, self.late = self.late, []
        self.ready += [late] if late else []

    def configure(self, context: int, values: dict[int, int]) -> None:
        self._call("configure")
        self.configured = values

    def read(self, context: int, data: Data) -> bool:
        self._call("read")
        self._write(data, self.ready.pop(0) if self.ready else [])
        data.dropped, self.dropped = self.dropped, 0
        data.remaining = 0 if self.understates else sum(map(len, self.ready))
        return not self.full

    def reasons(self, context: int) -> dict[int, str]:
        return REASONS

    def on_module(self, seen: Callable[[bytes], int]) -> None:
        self._call("on_module")
        self.seen, self.used = seen, True

    def load(self, cubin: bytes) -> int:
        """The program loads a module; returns the number that its samples carry until finalize()."""
        self.modules[cubin] = self.enabled
        return self.seen(cubin) if self.used else self.checksum(cubin)

    def checksum(self, cubin: bytes) -> int:
        if cubin in self.unreadable:
            raise DriverError("cuptiGetCubinCrc", "CUPTI_ERROR_INVALID_PARAMETER", 1)
        return len(cubin) << 32

    def finalize(self) -> None:
        self._call("finalize")
        self.used, self.seen = False, lambda cubin: 0

    def _write(self, data: Data, rows: list[Sampled]) -> None:
        assert len(rows) <= data.capacity
        data.pcs = len(rows)
        for at, row in enumerate(rows):
            pc = PcData.from_address(data.pc_data + at * ctypes.sizeof(PcData))
            assert pc.size == ctypes.sizeof(PcData)
            name = self._names.setdefault(row.name, ctypes.create_string_buffer(row.name.encode()))
            pc.cubin_crc, pc.pc, pc.function_index = row.module, row.pc, 1
            pc.function_name, pc.reasons = ctypes.addressof(name), len(row.counts)
            for place, (index, count) in enumerate(row.counts.items()):
                reason = StallReason.from_address(pc.reason + place * ctypes.sizeof(StallReason))
                reason.index, reason.samples = index, count
