"""Two ranks, each on a separate GPU, that compute and meet in STEPS steps, for tests/gpu/test_two_gpus_ranks.py.

    python -m gpu.ranks_process FOLDER

Rank 1's `delayed` takes DELAY_NS longer in every second step. All steps are launched before the first one begins, so no
host delays a rank; WARMUP steps before them are recorded, too. Each rank writes saw.RANK.npy: for each of the STEPS,
True if the other one's signal was there directly after it had sent its own: that rank came last, or, if both or none
saw it, they came within the time that a signal takes.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as mp
import triton
import triton.language as tl

import kscope
from kscope_runtime.driver import CudaDriver

from .clocks_process import _link

WARMUP, STEPS, DELAY_NS = 3, 200, 50_000


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


@triton.jit(do_not_specialize=["flag"])
def gate(flag):
    """Wait for the host to set a flag, at most 10 s."""
    word = tl.cast(flag, tl.pointer_type(tl.int32))
    begin = kscope.globaltimer()
    while (tl.load(word, volatile=True) == 0) & (kscope.globaltimer() - begin < 10_000_000_000):
        pass


@triton.jit(do_not_specialize=["mine", "peer", "turn", "rank"])
def peer_barrier(mine, peer, turn, rank, saw):
    """mine, peer: addresses. Triton refuses tensors in another GPU's memory."""
    here, there = tl.cast(mine, tl.pointer_type(tl.int32)), tl.cast(peer, tl.pointer_type(tl.int32))
    with kscope.region("signal", value=rank):
        tl.atomic_xchg(there, turn, sem="release", scope="sys")
    with kscope.region("wait", value=rank):
        seen = tl.atomic_add(here, 0, sem="acquire", scope="sys")
        tl.store(saw + turn, seen >= turn)
        while seen < turn:
            seen = tl.atomic_add(here, 0, sem="acquire", scope="sys")


def main(rank: int, folder: str, barrier: Any) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    torch.cuda.set_device(rank)
    kscope.enable()
    mine, peer = _shared(rank, f"kscope-ranks-{Path(folder).name}-{os.getppid()}")
    out = torch.zeros(2, device=f"cuda:{rank}")
    saw = torch.zeros(WARMUP + STEPS + 1, dtype=torch.int32, device=f"cuda:{rank}")
    flag = torch.ones(1, dtype=torch.int32, pin_memory=True)
    turn = 0

    def step(delay: int) -> None:
        nonlocal turn
        turn += 1
        compute[(1,)](out, delay)
        peer_barrier[(1,)](mine, peer, turn, 1 - rank, saw)

    gate[(1,)](flag.data_ptr())
    barrier.wait()
    with kscope.profile(f"{folder}/step.%r.kscope"):
        for _ in range(WARMUP):
            step(0)
        torch.cuda.synchronize()
        flag.zero_()
        gate[(1,)](flag.data_ptr())
        for at in range(STEPS):
            step(DELAY_NS if rank == 1 and at % 2 else 0)
        barrier.wait()
        flag.fill_(1)
        torch.cuda.synchronize()
    np.save(f"{folder}/saw.{rank}.npy", saw[-STEPS:].cpu().numpy())
    barrier.wait()


def _shared(rank: int, name: str) -> tuple[int, int]:
    """Addresses of a cleared page of this GPU's memory, and of the other one's."""
    torch.zeros(1, device=f"cuda:{rank}")  # makes the GPU's context current
    driver = CudaDriver()
    memory, stream = driver.allocate(2 << 20), driver.stream()
    driver.write(memory.address, np.zeros(4096, np.uint8), stream)
    driver.synchronize(stream)
    with _link(name, rank) as link:
        socket.send_fds(link, [b"+"], [memory.file])
        _, files, _, _ = socket.recv_fds(link, 1, 1)
        return memory.address, driver.map(files[0], memory.size)


if __name__ == "__main__":
    context = mp.get_context("spawn")
    shared = context.Barrier(2)
    processes = [context.Process(target=main, args=(rank, sys.argv[1], shared)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(100)
        if process.exitcode is None:
            process.kill()
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(list(Path(sys.argv[1]).glob("*.kscope"))) == 2
