"""For programs that compile CUDA C++ with NVRTC and load it with the driver themselves: four calls make it record.

    source = kscope_cuda.marked(source)                                 marks what mark= and auto= select
    options = [*kscope_cuda.compile_options(), "-arch=compute_90"]      for NVRTC
    image = kscope_cuda.lower(ptx, "sm_90")                             for cuModuleLoadData, instead of the PTX
    kscope_cuda.loaded(module)                                          the CUmodule

While recording is disabled they only add the header's include path.
"""

from __future__ import annotations

from typing import Any

from kscope.instrument import registry
from kscope.marks.grammar import PREFIX
from kscope.session.states import STATE

from . import nvrtc, select
from .frontend import CudaFrontend  # importing it adds the CUDA backend to sessions


def marked(source: str) -> str:
    """The source with marks around what ``mark=`` and ``auto=`` select; line numbers stay the same.

    Args:
        source: CUDA C++.

    Raises:
        UsageError: a selected range cannot be marked; the message names the region and the line.
    """
    found = None if STATE.hooked is None else select.marked(source, STATE.hooked.selection)
    return source if found is None else found.text


def compile_options() -> list[str]:
    """kscope's options for NVRTC, or for nvcc if it stops at PTX, in the current state of the process."""
    recording = STATE.hooked
    return [*nvrtc.options(recording), *(() if recording is None else (nvrtc.LINE_INFO,))]


def lower(ptx: str | bytes, arch: str | None = None) -> bytes:
    """Code to load instead of the PTX: its marks lowered for the current state of the process.

    PTX comes back unchanged if it has no marks, and while recording is disabled: marks are comments.

    Args:
        ptx: the compiler's output.
        arch: such as "sm_90": returns a cubin if ptxas or nvJitLink is installed. PTX otherwise.

    Raises:
        UnsupportedError, PairingError, UsageError: the marks cannot be lowered.
    """
    text = (ptx if isinstance(ptx, str) else ptx.decode()).rstrip("\0")
    if STATE.hooked is None or PREFIX not in text:
        return text.encode()
    return nvrtc.lower(text, STATE.hooked, frontend=CudaFrontend.name, arch=arch)


def loaded(module: Any) -> None:
    """Let sessions record the kernels of a module loaded in the current context; ignores modules without marks.

    Call it once per module and device; it is safe inside graph captures.

    Args:
        module: a CUmodule, or its handle as an integer.
    """
    registry.backend("cuda").module_loaded(int(module))
