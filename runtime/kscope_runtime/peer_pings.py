"""Compares the timers of two GPUs: signals both ways through each other's memory, one thread on each."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from .device_memory import Allocation
from .driver import CudaDriver

MOST_ROUNDS = 1 << 12
_PAGE = 2 << 20
_TIMES, _SLOT, SLOTS = 4096, 64, 63
"""Places of the readings in a side's memory. Before them are the words that other sides write, each in a slot."""
_KERNEL = """
.visible .entry {name}(.param .u64 args)
{{
	.reg .b64 %a, %mine, %theirs, %out, %g, %h, %begin, %now, %patience;
	.reg .b32 %i, %n, %v;
	.reg .pred %p;
	ld.param.u64 %a, [args];
	ld.volatile.global.u64 %mine, [%a];
	ld.volatile.global.u64 %theirs, [%a+8];
	ld.volatile.global.u64 %out, [%a+16];
	ld.volatile.global.u32 %n, [%a+24];
	ld.volatile.global.u64 %patience, [%a+32];
	mov.u64 %begin, %clock64;
	mov.u32 %i, 1;
ROUND:
{first}WAIT:
	mov.u64 %now, %clock64;
	sub.u64 %now, %now, %begin;
	setp.gt.u64 %p, %now, %patience;
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
_SEND = _KERNEL.format(
    name="ks_ping_send", first="	mov.u64 %g, %globaltimer;\n" + _SIGNAL,
    last="	st.global.v2.u64 [%out], {%g, %h};\n",
)  # fmt: skip
_REPLY = _KERNEL.format(name="ks_ping_reply", first="", last=_SIGNAL + "	st.global.v2.u64 [%out], {%h, %h};\n")
PTX = ".version 6.3\n.target sm_75\n.address_size 64\n" + _SEND + _REPLY


def _word(memory: int, slot: int) -> int:
    """The address of the word of a slot."""
    return memory + _SLOT * (slot % SLOTS)


class PeerPings:
    """One side, on the GPU with this ordinal. Raises DriverError if a call fails.

        A  reads its timer, stores i into B's memory ........................ sees i in its memory, reads its timer
        B                       sees i in its memory, reads its timer, stores i into A's

    So B's reading is truly between A's two. Each side is a process; the other's memory is mapped by a descriptor.

    The kernels have a separate stream, which does not synchronize with the program's, and are part of none of its graph
    captures. A GPU that has no room for one more thread, or one queue for all streams (CUDA_DEVICE_MAX_CONNECTIONS=1),
    runs them later: a side that waits for the other one gives up after a number of cycles, so that no two ranks block
    each other.
    """

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
            self._rounds = 0
        finally:
            driver.set_context(self._before)

    @property
    def file(self) -> int:
        """The descriptor of this side's memory, for the other process; -1 if the driver has none."""
        return self._memory.file

    def map(self, file: int) -> int:
        """The address of the other side's memory in this process.

        Args:
            file: its descriptor, which may be closed afterwards.
        """
        with self._inside():
            return self._driver.map(file, self._memory.size)

    def clear(self, slot: int) -> None:
        """Clear the word that the other side writes; then it may begin."""
        with self._inside():
            self._write(np.zeros(_SLOT, np.uint8), _word(0, slot))

    def start(self, theirs: int, their_slot: int, slot: int, begins: bool, rounds: int, patience: int) -> None:
        """Launch this side's kernel.

        Args:
            theirs: the other side's memory, as map() returned it.
            their_slot, slot: the words that this side and the other one write.
            begins: True if this side begins.
            rounds: at most MOST_ROUNDS.
            patience: most cycles for which the kernel waits for the other side.
        """
        self._rounds = min(rounds, MOST_ROUNDS)
        with self._inside():
            self._write(np.zeros(16 * self._rounds, np.uint8), _TIMES)
            mine = self._memory.address
            words = _word(mine, slot), _word(theirs, their_slot), mine + _TIMES, self._rounds, patience
            self._page[:40].view("<u8")[:] = words
            name = "ks_ping_send" if begins else "ks_ping_reply"
            self._driver.launch(self._module, name, self._page.ctypes.data, self._stream)

    def readings(self) -> npt.NDArray[np.int64]:
        """Wait for the kernel.

        Returns:
            (n, 2) ns of %globaltimer, before and after a round; of the side that answers both are its one reading. Only
            rounds that were answered.
        """
        found = np.zeros((self._rounds, 2), np.uint64)
        with self._inside():
            self._driver.synchronize(self._stream)
            self._driver.read(found.view(np.uint8).ravel(), self._memory.address + _TIMES, self._stream)
            self._driver.synchronize(self._stream)
        return found[found.all(axis=1)].astype(np.int64)

    def _write(self, data: npt.NDArray[np.uint8], offset: int = 0) -> None:
        self._driver.write(self._memory.address + offset, data, self._stream)
        self._driver.synchronize(self._stream)

    @contextmanager
    def _inside(self) -> Generator[None]:
        """In this GPU's context, and in no graph capture of another thread."""
        before = self._driver.context()
        self._driver.set_context(self._context)
        try:
            with self._driver.relaxed():
                yield
        finally:
            self._driver.set_context(before)
