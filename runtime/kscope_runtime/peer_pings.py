"""Two GPUs compare their timers: signals both ways through each other's memory, one thread on each.

    A  reads its timer, stores i into B's memory ........................ sees i in its own, reads its timer
    B                       sees i in its own memory, reads its timer, stores i into A's

So B's reading is between A's two, in truth. Each side is a process; the other's memory is mapped by a descriptor.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .device_memory import Allocation
from .driver import CudaDriver

ROUNDS = 2000
"""A few ms over NVLink."""
_PAGE = 2 << 20
_TIMES = 4096
"""Where the readings are in a side's memory; its first word is the one that the other side writes."""
_PATIENCE = 1 << 30
"""Cycles for which a side waits at most, about half a second: then the other one is not there."""
_KERNEL = """
.visible .entry {name}(.param .u64 args)
{{
	.reg .b64 %a, %mine, %theirs, %out, %g, %h, %begin, %now;
	.reg .b32 %i, %n, %v;
	.reg .pred %p;
	ld.param.u64 %a, [args];
	ld.volatile.global.u64 %mine, [%a];
	ld.volatile.global.u64 %theirs, [%a+8];
	ld.volatile.global.u64 %out, [%a+16];
	ld.volatile.global.u32 %n, [%a+24];
	mov.u64 %begin, %clock64;
	mov.u32 %i, 1;
ROUND:
{first}WAIT:
	mov.u64 %now, %clock64;
	sub.u64 %now, %now, %begin;
	setp.gt.u64 %p, %now, {patience};
	@%p bra DONE;
	ld.relaxed.sys.global.u32 %v, [%mine];
	setp.ne.u32 %p, %v, %i;
	@%p bra WAIT;
	mov.u64 %h, %globaltimer;
{last}	add.u64 %out, %out, 16;
	add.u32 %i, %i, 1;
	setp.le.u32 %p, %i, %n;
	@%p bra ROUND;
DONE:
	ret;
}}
"""
_SIGNAL = "	st.relaxed.sys.global.u32 [%theirs], %i;\n"
_ASKS = _KERNEL.format(
    name="ks_ping_asks", first="	mov.u64 %g, %globaltimer;\n" + _SIGNAL,
    last="	st.global.v2.u64 [%out], {%g, %h};\n", patience=_PATIENCE,
)  # fmt: skip
_ANSWERS = _KERNEL.format(
    name="ks_ping_answers", first="", last=_SIGNAL + "	st.global.v2.u64 [%out], {%h, %h};\n", patience=_PATIENCE
)
PTX = ".version 6.3\n.target sm_75\n.address_size 64\n" + _ASKS + _ANSWERS


class PeerPings:
    """One side, on the GPU with this ordinal. Raises DriverError if a call fails."""

    def __init__(self, ordinal: int) -> None:
        self._driver = driver = CudaDriver()
        self._before = driver.context()
        driver.use(ordinal)
        try:
            self._context, facts = driver.context(), driver.facts()
            self.uuid = facts.uuid
            self._memory: Allocation = driver.allocate(_PAGE)
            self._module, self._stream = driver.load(PTX), driver.stream()
            self._page = driver.pinned(4096)
        finally:
            driver.set_context(self._before)

    @property
    def file(self) -> int:
        """The descriptor of this side's memory, for the other process; -1 if the driver has none."""
        return self._memory.file

    def ready(self) -> None:
        """Clear what the other side signals; then the other side may begin."""
        self._inside(lambda: self._write(np.zeros(_TIMES, np.uint8)))

    def ping(self, file: int, asks: bool) -> npt.NDArray[np.int64]:
        """The readings of every round.

        Args:
            file: the descriptor of the other side's memory.
            asks: whether this side begins.

        Returns:
            (n, 2) ns of %globaltimer, before and after a round; of the side that answers both are its one reading. Only
            rounds that were answered.
        """
        found = np.zeros((ROUNDS, 2), np.uint64)

        def run() -> None:
            driver = self._driver
            theirs = driver.map(file, self._memory.size)
            self._write(found.view(np.uint8).ravel(), _TIMES)
            words = self._page[:32].view("<u8")
            words[:] = self._memory.address, theirs, self._memory.address + _TIMES, ROUNDS
            name = "ks_ping_asks" if asks else "ks_ping_answers"
            driver.launch(self._module, name, self._page.ctypes.data, self._stream)
            driver.synchronize(self._stream)
            driver.read(found.view(np.uint8).ravel(), self._memory.address + _TIMES, self._stream)
            driver.synchronize(self._stream)

        self._inside(run)
        return found[found.all(axis=1)].astype(np.int64)

    def _write(self, data: npt.NDArray[np.uint8], offset: int = 0) -> None:
        self._driver.write(self._memory.address + offset, data, self._stream)
        self._driver.synchronize(self._stream)

    def _inside(self, run: Callable[[], None]) -> None:
        before = self._driver.context()
        self._driver.set_context(self._context)
        try:
            run()
        finally:
            self._driver.set_context(before)
