"""A CUDA C++ library built by nvcc, seen from inside: does the sum wait for its copies, or the copies for the sum?

    python examples/cuda_library.py

On a GPU: builds cuda_library.cu, adds up 16 M numbers with it, checks the sum against numpy, writes
sum.kscope, and prints one line per region. Without one: builds it for sm_90 and lists its contents.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import kscope
import kscope_cuda

COUNT, TILE, BLOCKS, WARPS = 1 << 24, 1024, 264, 8
SOURCE = Path(__file__).with_suffix(".cu")


def obstacle() -> str:
    """Reason why no library can be built; empty if it can."""
    return "" if shutil.which("nvcc") else "no nvcc here: it comes with the CUDA toolkit"


def on_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))


def build(source: Path, folder: str, arch: str) -> Path:
    """Build a source with its regions; returns the library's path."""
    built = Path(folder, source.stem + ".so")
    command = ["nvcc", "-O3", f"-arch={arch}", *kscope_cuda.flags(), "-shared", "-Xcompiler", "-fPIC"]
    subprocess.run([*command, str(source), "-o", str(built)], check=True)
    return built


def describe(path: Path) -> None:
    """Without a GPU: print the names of kernels and regions in the file."""
    (module,) = kscope_cuda.describe(path.read_bytes())
    regions = ", ".join(region.name for region in module.regions)
    print(f"no GPU here: {path.name} was built for sm_90; kernel {module.kernels[0].name} has the regions {regions}")


def record(path: Path) -> None:
    """Arm the library once: every later session records it."""
    library = ctypes.CDLL(str(path))
    kscope_cuda.arm(library)
    values = np.random.default_rng(0).random(COUNT, dtype=np.float32)
    result = ctypes.c_float()
    with kscope.profile("sum.kscope") as prof:
        assert library.total(values.ctypes.data_as(ctypes.c_void_p), COUNT, ctypes.byref(result)) == 0
    np.testing.assert_allclose(result.value, values.sum(dtype=np.float64), rtol=1e-4)
    # every warp records two regions for each of its block's tiles, and one at the end
    expected = WARPS * (2 * COUNT // TILE + BLOCKS)
    assert len(prof.trace) == expected, f"{len(prof.trace)} records, expected {expected}"
    print(prof.trace.summary())


def main(source: Path = SOURCE, record: Callable[[Path], None] = record) -> None:
    if why := obstacle():
        print(why)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = build(source, folder, "native" if on_gpu() else "sm_90")
        record(path) if on_gpu() else describe(path)


if __name__ == "__main__":
    main()
