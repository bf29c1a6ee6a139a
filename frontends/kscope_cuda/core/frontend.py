"""The cuda.core frontend: holds the recording options of compile()."""

from __future__ import annotations

from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording

from .. import assembler

NAME = "cuda.core"


class CoreFrontend(Frontend):
    """Installs no hooks, so any version of cuda.core may be imported."""

    name = NAME
    selects = frozenset({"kinds", "lines"})

    def __init__(self) -> None:
        self.recording: Recording | None = None

    def enable(self, recording: Recording) -> None:
        """Let compile() add marks from now on."""
        self.recording = recording

    def disable(self) -> None:
        """Let compile() add no marks from now on."""
        self.recording = None

    def limitation(self) -> str:
        return assembler.missing()
