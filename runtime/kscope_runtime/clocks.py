"""Compares the host's clock with the device's globaltimer, which a tiny kernel reads; and finds the timer's smallest
step.
"""

from __future__ import annotations

import time

from kscope.capture.capture_data import ClockSync

from .driver import CudaDriver
from .memory_ranges import Bytes

# now:  word = globaltimer
# tick: word = smallest of 64 observed steps of globaltimer, at most 2^20 reads
_PTX = """
.version 6.3
.target sm_75
.address_size 64
.visible .entry ks_now(.param .u64 ks_out)
{
	.reg .b64 %a, %g;
	ld.param.u64 %a, [ks_out];
	mov.u64 %g, %globaltimer;
	st.volatile.global.u64 [%a], %g;
	ret;
}
.visible .entry ks_tick(.param .u64 ks_out)
{
	.reg .b64 %a, %g, %h, %d, %best;
	.reg .b32 %i, %n;
	.reg .pred %p, %q;
	ld.param.u64 %a, [ks_out];
	mov.u64 %best, 0xFFFFFFFF;
	mov.u32 %i, 0;
	mov.u32 %n, 0;
	mov.u64 %g, %globaltimer;
LOOK:
	mov.u64 %h, %globaltimer;
	setp.eq.u64 %p, %h, %g;
	@%p bra SAME;
	sub.u64 %d, %h, %g;
	min.u64 %best, %best, %d;
	mov.u64 %g, %h;
	add.u32 %n, %n, 1;
SAME:
	add.u32 %i, %i, 1;
	setp.lt.u32 %p, %i, 1048576;
	setp.lt.and.u32 %q, %n, 64, %p;
	@%q bra LOOK;
	st.volatile.global.u64 [%a], %best;
	ret;
}
"""
OWN_KERNELS = frozenset({"ks_now", "ks_tick", "ks_ping_send", "ks_ping_reply"})
"""Names of the kernels above and of those of peer_pings.py, whose samples are dropped."""
_NONE = 0xFFFFFFFF  # ks_tick saw no step
KERNEL_TIMEOUT_S = 0.2
"""Timeout of a tiny kernel: a device full of persistent blocks runs nothing else."""
_TRIES = 5


class Clocks:
    """One device's timer, in the context current at creation. word: 8 bytes of pinned memory for its exclusive use."""

    def __init__(self, driver: CudaDriver, word: Bytes) -> None:
        self._driver, self._bytes = driver, word
        self._word = word.view("<u8")
        self._stream = driver.stream()
        self._module = driver.load(_PTX)
        self._tick: int | None = None

    def tick_ns(self) -> int:
        """The smallest step of globaltimer in ns, measured once; 0 if it could not be measured."""
        if self._tick is None:
            found = self._ask("ks_tick")
            if found is None:
                return 0
            self._tick = 0 if found == _NONE else found
        return self._tick

    def sync(self) -> ClockSync | None:
        """The narrowest of a few comparisons; None while the device has no room for another block."""
        self._ask("ks_now")  # the first launch loads the kernel
        best: ClockSync | None = None
        for _ in range(_TRIES):
            before = time.time_ns()
            found = self._ask("ks_now")
            after = time.time_ns()
            if found is None:
                break
            if best is None or after - before < best.host_after - best.host_before:
                best = ClockSync(before, found, after)
        return best

    def _ask(self, kernel: str) -> int | None:
        """Run a kernel that writes the word. Returns the word, or None if the kernel does not run."""
        if not self._driver.ready(self._stream):
            return None  # the previous launch still waits for room
        self._word[0] = 0
        self._driver.launch(self._module, kernel, self._bytes.ctypes.data, self._stream)
        end = time.monotonic() + KERNEL_TIMEOUT_S
        while not (found := int(self._word[0])):
            if time.monotonic() > end:
                return None
        return found
