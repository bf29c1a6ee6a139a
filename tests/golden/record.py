"""Records the small golden captures, of a few blocks each, on a GPU, and checks them before they are written. A
language that is not installed is skipped and named.

    python tests/golden/record.py [FOLDER [NAME...]]  needs a GPU
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import kscope

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "examples")]

import gluon_warp_specialized  # noqa: E402  # examples are scripts, found by path
import triton_attention  # noqa: E402
import triton_matmul  # noqa: E402
from gpu import kernels  # noqa: E402


def matmul() -> None:
    size = triton_matmul.SIZE
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    grid = (size // triton_matmul.TILE["BM"], size // triton_matmul.TILE["BN"])
    triton_matmul.matmul[grid](
        a, b, torch.empty_like(a), size, size, size, **triton_matmul.TILE, **triton_matmul.OPTIONS
    )


def attention() -> None:
    example = triton_attention
    q, k, v = (
        torch.randn(example.HEADS, example.LENGTH, example.WIDTH, device="cuda", dtype=torch.float16) for _ in range(3)
    )
    grid = (example.LENGTH // example.TILE["BM"], example.HEADS)
    example.attention[grid](
        q, k, v, torch.empty_like(q), example.LENGTH, 0.127, **example.TILE, CAUSAL=False, **example.OPTIONS
    )


def warp_specialized() -> None:
    example = gluon_warp_specialized
    a, b = (torch.randn(example.SIZE, example.SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
    tiles = ((a, [example.BM, example.BK]), (b, [example.BK, example.BN]), (a.clone(), [example.BM, example.BN]))
    described = [
        example.TensorDescriptor.from_tensor(
            matrix, shape, example.gl.NVMMASharedLayout.get_default_for(shape, example.gl.float16)
        )
        for matrix, shape in tiles
    ]
    grid = (example.SIZE // example.BM, example.SIZE // example.BN)
    example.matmul[grid](*described, example.SIZE, example.BK, example.STAGES, num_warps=4)


def four() -> None:
    kernels.four[(6,)](kernels.ints(6), num_warps=2)


def loop() -> None:
    kernels.loop[(4,)](kernels.ints(4), 40, num_warps=4)


def graph() -> None:
    out = kernels.ints(4)
    kernels.four[(4,)](out, num_warps=1)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        kernels.four[(4,)](out, num_warps=1)
    for _ in range(5):
        captured.replay()


LANGUAGES = {"cupy": "cupy", "cute": "cutlass", "gluon": "triton", "numba": "numba"}
"""Each records the same softmax, its example's; and the module that it needs."""


def softmax_in(language: str) -> Callable[[], Any]:
    return lambda: import_module(f"{language}_softmax").run()


CAPTURES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "matmul": (matmul, {"block": range(4)}),
    "stalls": (matmul, {"block": range(4), "stalls": True, "period": 128, "kernel": "matmul"}),
    "attention": (attention, {"block": range(0, 512, 128)}),
    "warp_specialized": (warp_specialized, {"block": range(4)}),
    "four": (four, {}),
    "lanes": (four, {"strategy": kscope.AllThreads()}),
    "ring": (loop, {"records": 16}),
    "stop": (loop, {"records": 16, "fill": "stop"}),
    "globaltimer": (loop, {"clock": "globaltimer", "records": 64}),
    "block": (loop, {"strategy": kscope.Lane0Warp0()}),
    "graph": (graph, {}),
    **{f"softmax_{language}": (softmax_in(language), {"block": range(4)}) for language in LANGUAGES},
}


def main(folder: Path, names: list[str]) -> None:
    for name in names or CAPTURES:
        language = LANGUAGES.get(name.removeprefix("softmax_"))
        if language and not find_spec(language):
            print(f"{name:18} skipped: {language} is not installed")
            continue
        run, options = CAPTURES[name]
        with kscope.profile(folder / f"{name}.kscope", **options) as prof:
            run()
            torch.cuda.synchronize()
        print(f"{name:18} {len(prof.trace):7} records, {(folder / f'{name}.kscope').stat().st_size:8} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE, sys.argv[2:])
