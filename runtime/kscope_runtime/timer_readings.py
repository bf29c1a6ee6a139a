"""Launches of a kernel that only reads %globaltimer: the times that another profiler gives them show how its clock
differs.
"""

from __future__ import annotations

import time

from kscope.capture.capture_data import TimerReading

from .clocks import KERNEL_TIMEOUT_S
from .driver import CudaDriver

COUNT = 64
"""Launches at each end of a session: the timer's step and the launch's delay vary, and the best ones count."""
SPIN = 1024
"""ns: longer than the store takes, and a multiple of the timer's step."""
_KERNEL = """
.visible .entry {name}(.param .u64 ks_out)
{{
	.reg .b64 %a, %g, %end;
	.reg .pred %p;
	mov.u64 %g, %globaltimer;
	ld.param.u64 %a, [ks_out];
	st.volatile.global.u64 [%a], %g;
	add.u64 %end, %g, {spin};
WAIT:
	mov.u64 %g, %globaltimer;
	setp.lt.u64 %p, %g, %end;
	@%p bra WAIT;
	ret;
}}
"""
_NAMES = {"begin": "kscope_timer_begin", "end": "kscope_timer_end"}
PTX = ".version 6.3\n.target sm_75\n.address_size 64\n" + "".join(
    _KERNEL.format(name=name, spin=SPIN) for name in _NAMES.values()
)


class TimerReadings:
    """The launches of a session, in the context current at creation.

    The kernel's first instruction reads the timer. It then runs until the timer is SPIN ns later and ends without
    another access to memory: its end is known without a store that it would have to wait for. It stores into device
    memory: a kernel that has stored into the host's ends some 200 ns later.
    """

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._bytes = driver.pinned(8 * COUNT * len(_NAMES))
        self._words = self._bytes.view("<u8").reshape(len(_NAMES), COUNT)
        self._memory = driver.allocate(self._bytes.nbytes)
        self._stream = driver.stream()
        self._module = driver.load(PTX)
        self._launched = set[str]()

    def clear(self) -> None:
        """Forget an earlier session's."""
        self._launched.clear()
        self._words[:] = 0

    def launch(self, when: str) -> None:
        """Launch the kernels of the session's "begin" or "end", without waiting; none while earlier ones have
        not run.
        """
        if not self._driver.ready(self._stream):
            return
        first = self._memory.address + 8 * COUNT * list(_NAMES).index(when)
        for at in range(COUNT):
            self._driver.launch(self._module, _NAMES[when], first + 8 * at, self._stream)
        self._launched.add(_NAMES[when])

    def read(self) -> None:
        """Wait for them briefly, and copy their readings."""
        end = time.monotonic() + KERNEL_TIMEOUT_S
        while not self._driver.ready(self._stream):
            if time.monotonic() > end:
                return
        self._driver.read(self._bytes, self._memory.address, self._stream)
        self._driver.synchronize(self._stream)

    def found(self) -> tuple[TimerReading, ...]:
        """The readings of each end of the session at which all have run."""
        return tuple(
            TimerReading(name, first, first + SPIN)
            for name, row in zip(_NAMES.values(), self._words.tolist(), strict=True)
            if name in self._launched and all(row)
            for first in row
        )
