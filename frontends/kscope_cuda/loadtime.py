"""CUDA C++ that a program compiles and loads by itself, with NVRTC and the driver: four calls make it record.

    source = kscope_cuda.marked(source)                                 what is selected, marked
    options = [*kscope_cuda.compile_options(), "-arch=compute_90"]      to NVRTC
    image = kscope_cuda.lower(ptx, "sm_90")                             to cuModuleLoadData, in the place of the PTX
    kscope_cuda.loaded(module)                                          what that returned

In the plain state they change nothing but where the header is found.
"""

from __future__ import annotations

from typing import Any

from kscope.instrument import registry
from kscope.marks.grammar import PREFIX
from kscope.session.states import STATE

from . import lines, nvrtc
from .libraries import CudaFrontend  # once it is imported, the CUDA backend takes part in sessions


def marked(source: str) -> str:
    """The source with marks around what this process selects without annotations (``regions=``, ``auto=``), on the same
    lines; the source itself where that is nothing. Raises UsageError, which names the region and the line."""
    found = None if STATE.hooked is None else lines.marked(source, STATE.hooked.selection)
    return source if found is None else found.text


def compile_options() -> list[str]:
    """What NVRTC (or nvcc, asked for PTX) is told of kscope in the state that this process is in now."""
    recording = STATE.hooked
    return [*nvrtc.options(recording), *(() if recording is None else (nvrtc.LINES,))]


def lower(ptx: str | bytes, arch: str | None = None) -> bytes:
    """What is loaded in the place of this PTX: its marks lowered for the state that this process is in now.

    arch: ``sm_90``; where it is given and ptxas or nvJitLink is there, a cubin; else PTX for the driver. PTX without
    marks comes back as it is, and so does all PTX in the plain state: marks are comments. Raises as plan.lower().
    """
    text = ptx if isinstance(ptx, str) else ptx.decode()
    text = text.rstrip("\0")
    if STATE.hooked is None or PREFIX not in text:
        return text.encode()
    return nvrtc.lower(text, STATE.hooked, frontend=CudaFrontend.name, arch=arch)


def loaded(module: Any) -> None:
    """Let sessions record the kernels of a module (a CUmodule, or its handle) that was loaded in the current context.

    One without marks is left alone. Once for each module and device; safe inside of graph captures.
    """
    registry.backend("cuda").module_loaded(int(module))
