"""One recorded launch in the simulator, for the simulator's own tests."""

from __future__ import annotations

from typing import Any

from contract.reader import Lane, read

import kscope
import kscope_sim
from kscope.capture.capture import Capture
from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset
from kscope_sim import Warp


def capture(kernel: Any, *, recording: Recording | None = None, pool: int | None = None, **launch: Any) -> Capture:
    """One recorded launch."""
    frontend, backend = registry.frontend("sim"), registry.backend("sim")
    frontend.enable(recording or Recording(records=16))
    backend.arm(1, Subset(), pool)
    try:
        kscope_sim.launch(kernel, **launch)
    finally:
        backend.disarm()
        frontend.disable()
    return Capture(1, tuple(backend.collect(wait=True)), backend.modules())


def record(kernel: Any, **options: Any) -> list[Lane]:
    return read(capture(kernel, **options))


def marked(warp: Warp) -> None:
    with kscope.region("work"):
        warp.work(100)
