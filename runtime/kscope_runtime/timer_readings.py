"""Launches of a kernel that only reads %globaltimer: another profiler's times of them tell how its clock differs.

The kernel's first instruction reads the timer. It then runs until the timer is SPIN ns later and ends without another
access to memory: its end is known without a store that it would have to wait for.
"""

from __future__ import annotations

import time

from kscope.capture.model import TimerReading

from .driver import Driver

COUNT = 64
"""Launches at each end of a session: the timer's step and the launch's delay differ, and the best ones count."""
SPIN = 3072
"""ns: longer than the store takes to reach the host's memory, and a multiple of the timer's step."""
_KERNEL = """
.visible .entry {name}(.param .u64 ks_out)
{{
	.reg .b64 %a, %g, %w;
	.reg .b32 %first, %now, %d;
	.reg .pred %p;
	mov.u32 %first, %globaltimer_lo;
	mov.u64 %g, %globaltimer;
	ld.param.u64 %a, [ks_out];
	cvt.u32.u64 %now, %g;
	sub.u32 %d, %now, %first;
	cvt.u64.u32 %w, %d;
	sub.u64 %g, %g, %w;
	st.volatile.global.u64 [%a], %g;
WAIT:
	mov.u32 %now, %globaltimer_lo;
	sub.u32 %d, %now, %first;
	setp.lt.u32 %p, %d, {spin};
	@%p bra WAIT;
	ret;
}}
"""
_NAMES = {"begin": "kscope_timer_begin", "end": "kscope_timer_end"}
PTX = ".version 6.3\n.target sm_75\n.address_size 64\n" + "".join(
    _KERNEL.format(name=name, spin=SPIN) for name in _NAMES.values()
)
_PATIENCE_S = 0.2  # a device full of persistent blocks runs nothing else: do without


class TimerReadings:
    """The launches of a session, in the context current at creation."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._bytes = driver.pinned(8 * COUNT * len(_NAMES))
        self._words = self._bytes.view("<u8").reshape(len(_NAMES), COUNT)
        self._stream = driver.stream()
        self._module = driver.load(PTX)

    def clear(self) -> None:
        """Forget an earlier session's."""
        self._words[:] = 0

    def launch(self, when: str) -> None:
        """Launch those of the session's "begin" or "end", without waiting; none while earlier ones have not run."""
        if not self._driver.ready(self._stream):
            return
        row = self._words[list(_NAMES).index(when)]
        row[:] = 0
        for at in range(COUNT):
            self._driver.launch(self._module, _NAMES[when], row.ctypes.data + 8 * at, self._stream)

    def wait(self) -> None:
        """Wait for them, but not for long."""
        end = time.monotonic() + _PATIENCE_S
        while not self._driver.ready(self._stream) and time.monotonic() < end:
            pass

    def found(self) -> tuple[TimerReading, ...]:
        """Those of each end of the session at which all have run."""
        return tuple(
            TimerReading(name, first, first + SPIN)
            for name, row in zip(_NAMES.values(), self._words.tolist(), strict=True)
            if all(row)
            for first in row
        )
