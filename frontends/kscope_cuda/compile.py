"""Calls for programs that compile CUDA C++ with NVRTC and load it with the driver themselves. While recording is
disabled they only add the header's include path.

    compilation = kscope_cuda.Compilation()                             for one source
    source = compilation.marked(source)                                 marks the selection of mark= and auto=
    options = [*compilation.options(), "-arch=compute_90"]              for NVRTC
    image = compilation.lower(ptx, "sm_90")                             for cuModuleLoadData, instead of the PTX
    kscope_cuda.loaded(module)                                          the CUmodule
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kscope.instrument import loaded_code, registry
from kscope.instrument.recording import Recording
from kscope.lowering.pipeline import concerns
from kscope.session.states import STATE

from . import nvrtc, select
from .frontend import CudaFrontend  # importing it adds the CUDA backend to sessions


@dataclass(frozen=True)
class Compilation:
    """The compilation of one source. It keeps the recording that it begins with, regardless of other threads.

    Attributes:
        recording: the options; by default those of the process now, None while recording is disabled.
    """

    recording: Recording | None = field(default_factory=lambda: STATE.hooked)

    def marked(self, source: str) -> str:
        """The source with marks around what ``mark=`` and ``auto=`` select; line numbers stay the same.

        Args:
            source: CUDA C++.

        Raises:
            UsageError: a selected range cannot be marked; the message names the region and the line.
        """
        found = None if self.recording is None else select.marked(source, self.recording.selection)
        return source if found is None else found.text

    def options(self) -> list[str]:
        """kscope's options for NVRTC, or for nvcc if it stops at PTX. One of them is a key for caches of the result."""
        return [*nvrtc.options(self.recording), *(() if self.recording is None else (nvrtc.LINE_INFO,))]

    def lower(self, ptx: str | bytes, arch: str | None = None) -> bytes:
        """Code to load instead of the PTX: its marks lowered.

        PTX comes back unchanged if it has no marks, and if recording is disabled: marks are comments.

        Args:
            ptx: the compiler's output.
            arch: such as "sm_90": returns a cubin if ptxas or nvJitLink is installed. PTX otherwise.

        Raises:
            UnsupportedError, PairingError, UsageError: the marks cannot be lowered.
        """
        text = (ptx if isinstance(ptx, str) else ptx.decode()).rstrip("\0")
        if self.recording is None or not concerns(text, self.recording):
            return text.encode()
        code = nvrtc.lower(text, self.recording, frontend=CudaFrontend.name, arch=arch)
        loaded_code.keep(code)  # the program loads it
        return code


def loaded(module: Any) -> None:
    """Let sessions record the kernels of a module loaded in the current context; ignores modules without marks.

    Call it once per module and device; it is safe inside graph captures.

    Args:
        module: a CUmodule, or its handle as an integer.
    """
    registry.backend("cuda").module_loaded(int(module))
