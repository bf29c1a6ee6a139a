"""The kernel of `kscope demo` on a GPU with Triton: a tiled matmul."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import triton
import triton.language as tl
from triton.backends import backends

import kscope

TITLE = "a Triton matmul on this GPU: 1024 x 1024 x 1024 in fp16, 64 blocks of 8 warps"
SIZE = 1024
TILE = {"BM": 128, "BN": 128, "BK": 64}


@triton.jit
def matmul(a, b, c, size, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr) -> Any:  # type: ignore[no-untyped-def]  # noqa: N803  # typed by the launch
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    with kscope.region("mainloop"):
        for k in range(0, size, BK):
            with kscope.region("load", value=k):
                x = tl.load(a + rows[:, None] * size + (k + inner)[None, :])
                y = tl.load(b + (k + inner)[:, None] * size + columns[None, :])
            with kscope.region("dot"):
                total = tl.dot(x, y, total)
    with kscope.region("epilogue"):
        tl.store(c + rows[:, None] * size + columns[None, :], total.to(tl.float16))


def obstacle() -> str:
    """Return why the demo cannot run here, or "" if it can."""
    if find_spec("torch") is None:
        return "torch is not installed, which Triton needs to launch kernels"
    if not backends["nvidia"].driver.is_active():
        return "no NVIDIA GPU that Triton can use"
    return ""


def run() -> None:
    """Launch the kernel once."""
    torch: Any = import_module("torch")  # an extra: a type checker may not find it
    a, b, c = (torch.ones(SIZE, SIZE, device="cuda", dtype=torch.float16) for _ in range(3))
    launch: Any = matmul[SIZE // TILE["BM"], SIZE // TILE["BN"]]
    launch(a, b, c, SIZE, **TILE, num_warps=8, num_stages=3)
    torch.cuda.synchronize()
