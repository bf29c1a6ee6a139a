"""One rank of tests/gpu/test_two_gpus_ranks.py: computes and meets the other one, on a separate GPU.

    python -m gpu.ranks_process FOLDER

Starts both ranks. The last one's `delayed` takes DELAY_NS longer in every second step.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
import triton
import triton.language as tl

import kscope

STEPS, DELAY_NS = 200, 50_000


@triton.jit(do_not_specialize=["delay"])
def compute(out, delay):
    with kscope.region("usual"):
        tl.store(out, 1.0)
    with kscope.region("delayed"):
        begin = kscope.globaltimer()
        now = begin
        while now - begin < delay:
            now = kscope.globaltimer()
        tl.store(out + 1, 2.0)


@triton.jit(do_not_specialize=["turn"])
def peer_barrier(mine, peer, turn):
    with kscope.region("signal"):
        tl.atomic_xchg(peer, turn, sem="release", scope="sys")
    with kscope.region("wait"):
        seen = tl.atomic_add(mine, 0, sem="acquire", scope="sys")
        while seen < turn:
            seen = tl.atomic_add(mine, 0, sem="acquire", scope="sys")


def main(rank: int, folder: str, send: Any, receive: Any, barrier: Any) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    torch.cuda.set_device(rank)
    kscope.enable()
    mine = torch.zeros(1, dtype=torch.int32, device=f"cuda:{rank}")
    send[rank].put(mine)
    peer = receive[rank].get()
    _let_access(1 - rank)
    out = torch.zeros(2, device=f"cuda:{rank}")
    turn = 0

    def step(delay: int) -> None:
        nonlocal turn
        turn += 1
        compute[(1,)](out, delay)
        peer_barrier[(1,)](mine, peer, turn)

    barrier.wait()
    for _ in range(3):
        step(0)
    torch.cuda.synchronize()
    barrier.wait()
    with kscope.profile(f"{folder}/step.%r.kscope"):
        barrier.wait()
        for at in range(STEPS):
            step(DELAY_NS if rank == 1 and at % 2 else 0)
        torch.cuda.synchronize()
    barrier.wait()


def _let_access(other: int) -> None:
    """Let kernels of the current GPU use the memory of another one."""
    from cuda.bindings import driver

    error, context = driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(other)[1])
    assert error == driver.CUresult.CUDA_SUCCESS, error
    (error,) = driver.cuCtxEnablePeerAccess(context, 0)
    known = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
    assert error in known, error


if __name__ == "__main__":
    context = mp.get_context("spawn")
    queues = [context.Queue(), context.Queue()]
    shared = context.Barrier(2)
    processes = [
        context.Process(target=main, args=(rank, sys.argv[1], queues, queues[::-1], shared)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(100)
        if process.exitcode is None:
            process.kill()
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(list(Path(sys.argv[1]).glob("*.kscope"))) == 2
