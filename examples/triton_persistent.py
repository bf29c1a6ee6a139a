"""A persistent matmul in Triton: one block per SM, each computing tile after tile.

    python examples/triton_persistent.py

`value=tile` stores the tile in every record: the timeline shows how tiles are distributed, and the cost of
the last, half-full wave. On a GPU: checks the product against torch, writes
persistent.kscope, prints one line per region. Without one: compiles the kernel for sm_90.
"""

from __future__ import annotations

import triton
import triton.language as tl
from shared import triton_on_gpu
from triton_matmul import OPTIONS, TILE, compile_only

import kscope

M, N, K = 4096, 2048, 1024


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    across = N // BN
    inner = tl.arange(0, BK)
    for tile in range(tl.program_id(0), (M // BM) * across, tl.num_programs(0)):
        with kscope.region("tile", value=tile):
            rows = (tile // across) * BM + tl.arange(0, BM)
            columns = (tile % across) * BN + tl.arange(0, BN)
            total = tl.zeros((BM, BN), tl.float32)
            with kscope.region("mainloop", value=tile):
                for k in range(0, K, BK):
                    x = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
                    y = tl.load(b + (k + inner)[:, None] * N + columns[None, :])
                    total = tl.dot(x, y, total)
            with kscope.region("store", value=tile):
                tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))


def main() -> None:
    if not triton_on_gpu():
        compile_only(matmul)
        return
    import torch

    torch.manual_seed(0)
    a = torch.randn(M, K, device="cuda", dtype=torch.float16)
    b = torch.randn(K, N, device="cuda", dtype=torch.float16)
    c = torch.empty(M, N, device="cuda", dtype=torch.float16)
    blocks = torch.cuda.get_device_properties(a.device).multi_processor_count
    # One warp per block suffices: all its warps take the same tiles.
    with kscope.profile("persistent.kscope", strategy=kscope.Lane0Warp0()) as prof:
        matmul[(blocks,)](a, b, c, M, N, K, **TILE, **OPTIONS)
    torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
    tiles = (M // TILE["BM"]) * (N // TILE["BN"])
    assert len(prof.trace) == 3 * tiles, f"{len(prof.trace)} records, expected {3 * tiles}"
    seen = sorted(prof.trace.filter(region="tile").value.tolist())
    assert seen == list(range(tiles)), "every tile was recorded once"
    print(prof.trace.summary())
    print("persistent.kscope: kscope export persistent.kscope -o persistent.pftrace, for ui.perfetto.dev")


if __name__ == "__main__":
    main()
