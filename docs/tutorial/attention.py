"""Causal attention in Triton, with regions: the kernel of the tutorial.

    kscope run attention.py                  blocks in the order of their rows: the short ones start first
    kscope run attention.py --heavy-first    the long ones start first

Without a GPU, model.py plays the kernel's schedule in the simulator.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

HEADS, LENGTH, WIDTH = 16, 2048, 128
TILE = {"D": WIDTH, "BM": 128, "BN": 64}
OPTIONS = {"num_warps": 8, "num_stages": 2}
SCALE = WIDTH**-0.5
LAUNCHES = 3


def on_gpu(heavy_first: bool) -> None:
    """Launch the kernel, and compare its result with PyTorch's."""
    import torch
    from kernel import attention

    torch.manual_seed(0)
    q, k, v = (torch.randn(HEADS, LENGTH, WIDTH, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    # exp2 in the kernel: the logarithm's base goes into the scale
    for _ in range(LAUNCHES):
        attention[(HEADS, LENGTH // TILE["BM"])](
            q, k, v, out, LENGTH, SCALE * 1.4426950408889634, **TILE, HEAVY_FIRST=heavy_first, **OPTIONS
        )
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=SCALE)
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-2)


def has_gpu() -> bool:
    """True if Triton and PyTorch can launch the kernel here."""
    if find_spec("triton") is None or find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def run(heavy_first: bool) -> None:
    """On the GPU if there is one, else in the simulator."""
    if has_gpu():
        on_gpu(heavy_first)
        return
    from model import simulate

    print("no GPU here: model.py plays the kernel's schedule in the simulator", file=sys.stderr)
    simulate(heavy_first)


if __name__ == "__main__":
    run("--heavy-first" in sys.argv[1:])
