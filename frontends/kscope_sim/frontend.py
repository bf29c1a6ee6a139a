"""The simulator as a frontend: marks go to the warp that is running."""

from __future__ import annotations

from typing import Any, ClassVar

from kscope.instrument import registry
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.marks.grammar import Mark

from .backend import SimBackend
from .warp import current


def _host() -> SimBackend:
    host = registry.backend("sim")
    assert isinstance(host, SimBackend)
    return host


class SimFrontend(Frontend):
    """Python kernels, run by kscope_sim.launch."""

    name: ClassVar[str] = "sim"
    backend: ClassVar[str] = "sim"
    selects = frozenset({"pipeline"})

    def enable(self, recording: Recording) -> None:
        """Give marks to kernels launched from now on."""
        _host().recording = recording

    def disable(self) -> None:
        """Launch plain kernels from now on."""
        _host().recording = None

    def emit(self, mark: Mark, context: Any, value: Any = None, when: Any = None) -> bool:
        """Execute the mark at once; False outside a simulated kernel."""
        warp = current()
        if warp is None:
            return False
        warp.mark(mark, value, when)
        return True

    def read(self, name: str, context: Any) -> Any:
        """A device helper's value in the running warp; None outside a simulated kernel."""
        warp = current()
        return None if warp is None or context is not None else warp.read(name)
