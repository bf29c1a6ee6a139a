"""A megakernel in Triton: one launch, a queue of tasks of three kinds, and persistent blocks that take tasks.

    python examples/triton_megakernel.py

A layer of a network, out = x + normalized(x) @ w, as one task list, in which a task waits for the tasks whose results
it reads. `value=task` stores the task in every record, so the timeline shows which block ran which task, which waited
for which, and idle blocks at the end of the list. On a GPU: checks the result against torch, writes megakernel.kscope,
and prints one line per region. Without one: compiles the kernel for sm_90.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from shared import triton_on_gpu
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import kscope

ROWS, WIDTH, TILE, WARPS = 2048, 1024, 64, 8
NORMALIZE, MULTIPLY, ADD = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def megakernel(
    tasks, count, queue, done, x, w, normal, product, out,
    WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """tasks: (count, 3) int32: kind, row, and column of a tile. done: finished tasks per row, by kind."""
    inner = tl.arange(0, TILE)
    with kscope.region("fetch"):
        task = tl.atomic_add(queue, 1)
    while task < count:
        kind = tl.load(tasks + 3 * task)
        row = tl.load(tasks + 3 * task + 1)
        column = tl.load(tasks + 3 * task + 2)
        at = (row * TILE + inner)[:, None] * WIDTH + inner[None, :]
        if kind == NORMALIZE:
            with kscope.region("normalize", value=task):
                squares = tl.zeros((TILE,), tl.float32)
                for start in range(0, WIDTH, TILE):
                    values = tl.load(x + at + start).to(tl.float32)
                    squares += tl.sum(values * values, 1)
                factor = tl.rsqrt(squares / WIDTH)
                for start in range(0, WIDTH, TILE):
                    values = tl.load(x + at + start).to(tl.float32) * factor[:, None]
                    tl.store(normal + at + start, values.to(tl.float16))
        else:
            with kscope.region("wait", value=task):
                needed = tl.where(kind == ADD, WIDTH // TILE, 1)
                ready = tl.atomic_add(done + 2 * row + kind - 1, 0)
                while ready < needed:
                    ready = tl.atomic_add(done + 2 * row + kind - 1, 0)
            if kind == MULTIPLY:
                with kscope.region("multiply", value=task):
                    total = tl.zeros((TILE, TILE), tl.float32)
                    for k in range(0, WIDTH, TILE):
                        left = tl.load(normal + at + k)
                        right = tl.load(w + (k + inner)[:, None] * WIDTH + (column * TILE + inner)[None, :])
                        total = tl.dot(left, right, total)
                    tl.store(product + at + column * TILE, total.to(tl.float16))
            else:
                with kscope.region("add", value=task):
                    for start in range(0, WIDTH, TILE):
                        result = tl.load(x + at + start) + tl.load(product + at + start)
                        tl.store(out + at + start, result)
        tl.debug_barrier()  # all warps have stored before one thread signals it
        if kind != ADD:
            tl.atomic_add(done + 2 * row + kind, 1)
        with kscope.region("fetch"):
            task = tl.atomic_add(queue, 1)


def task_list(rows: int) -> list[tuple[int, int, int]]:
    """Tasks in dependency order: a block only waits for tasks that another block has begun."""
    across = range(WIDTH // TILE)
    found = [(NORMALIZE.value, row, 0) for row in range(rows // TILE)]
    for row in range(rows // TILE):
        found += [(MULTIPLY.value, row, column) for column in across]
        found += [(ADD.value, row, 0)]
    return found


def compile_only(arch: int = 90) -> Any:
    """Without a GPU: compile the kernel, with its regions, for a given target."""
    types = dict.fromkeys(("tasks", "count", "queue", "done"), "*i32") | {"count": "i32"}
    types |= dict.fromkeys(("x", "w", "normal", "product", "out"), "*fp16") | {
        "WIDTH": "constexpr",
        "TILE": "constexpr",
    }
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(9)}
    kscope.enable()
    source = ASTSource(megakernel, types, {"WIDTH": WIDTH, "TILE": TILE}, aligned)
    kernel = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": WARPS})
    kscope.disable()
    print(f"no GPU here: {kernel.name} compiled for sm_{arch} with its regions, {len(kernel.asm['cubin'])} bytes")
    return kernel


def run(rows: int = ROWS, blocks: int = 0, device: str = "cuda") -> int:
    """Launch once and check the result; returns the records of one warp per block."""
    import torch

    numbers = torch.Generator().manual_seed(0)
    x = torch.randn(rows, WIDTH, generator=numbers).half().to(device)
    w = (torch.randn(WIDTH, WIDTH, generator=numbers) * WIDTH**-0.5).half().to(device)
    normal, product, out = (torch.empty_like(x) for _ in range(3))
    tasks = torch.tensor(task_list(rows), dtype=torch.int32, device=device)
    queue = torch.zeros(1, dtype=torch.int32, device=device)
    done = torch.zeros(rows // TILE, 2, dtype=torch.int32, device=device)
    blocks = blocks or torch.cuda.get_device_properties(x.device).multi_processor_count
    megakernel[(blocks,)](tasks, len(tasks), queue, done, x, w, normal, product, out, WIDTH, TILE, num_warps=WARPS)
    exact = x.double()
    exact = exact + exact * exact.square().mean(1, keepdim=True).rsqrt() @ w.double()
    torch.testing.assert_close(out.double(), exact, rtol=1e-2, atol=1e-2)
    # a task is fetched and run, and its inputs waited for except in the first kind; each block's last fetch finds none
    return 3 * len(tasks) - rows // TILE + blocks


def main() -> None:
    if not triton_on_gpu():
        compile_only()
        return
    # One warp per block suffices: all its warps take the same tasks.
    with kscope.profile("megakernel.kscope", strategy=kscope.Lane0Warp0()) as prof:
        expected = run()
    trace = prof.trace
    assert len(trace) == expected, f"{len(trace)} records, expected {expected}"
    seen = sorted(trace.filter(region=("normalize", "multiply", "add")).value.tolist())
    assert seen == list(range(len(task_list(ROWS)))), "every task was run once"
    print(trace.summary())
    print("megakernel.kscope: kscope export megakernel.kscope -o megakernel.pftrace, for ui.perfetto.dev")


if __name__ == "__main__":
    main()
