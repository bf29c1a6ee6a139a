"""One process of tests/gpu/test_inductor.py: compiles a function with torch.compile, runs it, and writes the result.

    python -m gpu.inductor_process STATE RESULT [ARTIFACTS TO LOAD ...]

STATE is on or off. RESULT (.json) gets the loaded cubins and the records; the file beside it (.bin) the artifacts that
torch.compiler saves.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch._inductor import config as inductor
from triton.runtime import driver

import kscope

from .checks import doubts
from .triton_kernels import halved

BLOCK, BLOCKS, LAUNCHES = 256, 16, 3
inductor.triton.autotune_pointwise = False  # otherwise timing decides which of two kernels is loaded


def watch(loaded: set[tuple[str, str, bool]]) -> None:
    """Note every cubin that Triton or Inductor's own launcher loads: name, SHA-256, whether it has marks."""

    def note(name: str, cubin: bytes) -> None:
        loaded.add((name, hashlib.sha256(cubin).hexdigest(), b"kscope" in cubin))

    utils = driver.active.utils
    load_binary = utils.load_binary

    def load_with_triton(name: str, cubin: bytes, *rest: Any) -> Any:
        note(name, cubin)
        return load_binary(name, cubin, *rest)

    utils.load_binary = load_with_triton
    folder = "torch._inductor.runtime."
    names = (folder + name for name in ("static_triton_launcher", "static_cuda_launcher"))  # its name changed
    kernel = import_module(next(name for name in names if find_spec(name))).StaticallyLaunchedCudaKernel
    load_kernel = kernel.load_kernel

    def load_by_itself(self: Any, *rest: Any) -> Any:
        if self.function is None:
            note(self.name, Path(self.cubin_path).read_bytes())
        return load_kernel(self, *rest)

    kernel.load_kernel = load_by_itself


@torch.compile
def compiled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    halved[(BLOCKS,)](x, out, BLOCK=BLOCK)
    return out + 1


def main(state: str, result: Path, artifacts: list[Path]) -> None:
    if state == "on":
        kscope.enable()
    for path in artifacts:
        torch.compiler.load_cache_artifacts(path.read_bytes())
    x = torch.randn(BLOCK * BLOCKS, device="cuda")
    loaded = set[tuple[str, str, bool]]()
    watch(loaded)
    torch.testing.assert_close(compiled(x), x * 0.5 + 1)
    message: dict[str, Any] = {}
    if state == "on":
        with kscope.profile() as prof:
            for _ in range(LAUNCHES):
                compiled(x)
        regions = {
            region.name: len(prof.trace.filter(region=region.name)) for region in prof.trace.regions if region.known
        }
        message |= {"regions": regions, "launches": len(prof.trace.launches), "doubts": doubts(prof.trace)}
    message["loaded"] = sorted(loaded)
    saved = torch.compiler.save_cache_artifacts()
    result.with_suffix(".bin").write_bytes(b"" if saved is None else saved[0])
    from torch._dynamo.utils import counters

    message["hits"] = counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
    result.write_text(json.dumps(message))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [Path(path) for path in sys.argv[3:]])
