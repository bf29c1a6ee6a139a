"""The sections of the GPU benchmark, and their settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """Settings of all sections. quick: fewer repeats. kernels: of `triton` and `placement`; empty for all."""

    folder: Path
    arch: str
    headers: Path
    quick: bool
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """A section: the module that measures it, approximate seconds with --quick, its needs, its description. dry: a part
    of it needs no GPU."""

    module: str
    seconds: int
    needs: tuple[str, ...]
    what: str
    dry: bool = False


PARTS: dict[str, Part] = {
    "regions": Part(
        "on_regions", 45, ("nvcc",), "a region: strategy, clock, fill; back to back, behind FMAs; peers", True
    ),
    "triton": Part(
        "on_triton", 60, ("torch", "triton", "ncu"), "nine kernels, from GEMMs to short warps (--kernels); Proton", True
    ),
    "placement": Part(
        "on_placement", 60, ("torch", "triton"), "both placements of the kernels of triton, in CUDA graphs (--kernels)"
    ),
    "loops": Part("on_loops", 35, ("torch", "triton"), "a region in Triton's loop; Proton as it ships", True),
    "inflight": Part("on_regions", 10, ("nvcc",), "a region with loads and with TMA copies under way; peers", True),
    "everywhere": Part(
        "on_everywhere", 60, ("torch", "ncu"), "softmax, matmul, layer norm, tasks, attention in every language", True
    ),
    "cute": Part("on_cute", 50, ("torch", "cutlass"), "a matmul in CuTe DSL; IKET"),
    "growth": Part("on_growth", 45, ("nvcc",), "records, warps, blocks and launches as they grow", True),
    "nested": Part("on_regions", 8, ("nvcc",), "regions in one another, 1 to 8 deep", True),
    "warps": Part("on_regions", 8, ("nvcc",), "1 to 64 warps on every SM", True),
    "cuda": Part("on_cuda", 25, ("cupy", "nvcc"), "CUDA C++: stores sunk by the pass, and in place"),
    "numba": Part("on_numba", 25, ("numba", "nvcc"), "a region in Numba, beside CUDA C++", True),
}
"""In order of importance."""
KERNELS = (
    "matmul", "attention", "persistent", "layernorm", "tasks", "softmax", "splitk", "backward", "grouped",
)  # fmt: skip
"""Kernels of the sections `triton` and `placement`."""
