"""The cost of auto="pipeline": a warp-specialized matmul in Gluon and persistent ones in Triton, plain, with regions
that are placed by hand, and with every operation on barriers.

    python bench/on_pipeline.py                      # on an sm_90 GPU
"""

from __future__ import annotations

import importlib.util
import re
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton

import kscope

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests")]
ROUNDS, LAUNCHES, SLEEP = 9, 4, 4_000_000


def without_regions(name: str) -> ModuleType:
    """An example whose regions are gone."""
    text = (ROOT / "examples" / f"{name}.py").read_text()
    text = re.sub(r"with kscope\.region\([^\n]*\):", "if True:", text)
    path = Path(tempfile.mkdtemp()) / f"{name}_plain.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


def gluon(module: Any) -> Callable[[], object]:
    a, b = (torch.randn(module.SIZE, module.SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
    tiles = ((a, [module.BM, module.BK]), (b, [module.BK, module.BN]), (torch.empty_like(a), [module.BM, module.BN]))
    made = [
        module.TensorDescriptor.from_tensor(
            matrix, shape, module.gl.NVMMASharedLayout.get_default_for(shape, module.gl.float16)
        )
        for matrix, shape in tiles
    ]
    grid = (module.SIZE // module.BM, module.SIZE // module.BN)
    return lambda: module.matmul[grid](*made, module.SIZE, module.BK, module.STAGES, num_warps=4)


def persistent(apart: bool, stages: int = 3) -> Callable[[], object]:
    from gpu.pipeline_kernels import TILES, multiply

    size = 4096
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    options = {"num_warps": 4 if apart else 8, "num_stages": stages}
    return lambda: multiply[(132,)](a, b, c, size, size, size, **TILES, APART=apart, **options)


def microseconds(launch: Callable[[], object]) -> float:
    """Of a launch, back to back with others behind a kernel that hides what the host does."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(SLEEP)
    begin.record()
    for _ in range(LAUNCHES):
        launch()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / LAUNCHES * 1e3


def main() -> None:
    warnings.simplefilter("ignore")
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    import gluon_warp_specialized

    bare = gluon(without_regions("gluon_warp_specialized"))
    kernels: dict[str, tuple[Callable[[], object], Callable[[], object] | None]] = {
        "Gluon, warp-specialized, 2048^3": (bare, gluon(gluon_warp_specialized)),
        "Triton, persistent, 4096^3": (persistent(False), None),
        "Triton, warp-specialized, 4096^3": (persistent(True), None),
    }
    for name, (launch, by_hand) in kernels.items():
        measured: dict[str, list[float]] = {"plain": [], "by hand": [], "pipeline": []}
        for _ in range(ROUNDS):
            launch()
            measured["plain"].append(microseconds(launch))
            if by_hand is not None:
                with kscope.profile(auto=False, pool=4 << 30) as prof:
                    by_hand()
                    measured["by hand"].append(microseconds(by_hand))
            with kscope.profile(auto="pipeline", pool=4 << 30) as prof:
                launch()
                measured["pipeline"].append(microseconds(launch))
        plain = statistics.median(measured["plain"])
        rows = [f"{kind} {statistics.median(found):.1f} us ({statistics.median(found) / plain - 1:+.1%})"
                for kind, found in measured.items() if found]  # fmt: skip
        print(f"{name}: {', '.join(rows)}; {len(prof.trace):,} records in {LAUNCHES + 1} launches, "
              f"{[one.kind for one in prof.trace.problems]}")  # fmt: skip
    for stages in (2, 3, 4, 5):  # 3 are too few, says kscope pipeline
        launch = persistent(False, stages)
        launch()
        times = [microseconds(launch) for _ in range(ROUNDS)]
        print(f"Triton, persistent, {stages} stages: {statistics.median(times):.1f} us")


if __name__ == "__main__":
    main()
