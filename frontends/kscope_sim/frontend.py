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
        """Kernels launched from now on have marks."""
        _host().recording = recording

    def disable(self) -> None:
        """Kernels launched from now on are plain."""
        _host().recording = None

    def emit(self, mark: Mark, context: Any, value: Any = None, when: Any = None) -> bool:
        """Do at once what the mark means; False outside of a simulated kernel."""
        warp = current()
        if warp is None:
            return False
        warp.mark(mark, value, when)
        return True

    def read(self, name: str, context: Any) -> Any:
        """A device helper's value in the warp that runs; None outside of a simulated kernel."""
        warp = current()
        return None if warp is None or context is not None else warp.read(name)
