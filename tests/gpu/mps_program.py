"""A kernel of which one block waits until the parent writes a line: python mps_program.py shm|keeper."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from core_kernels import BLOCKS, marked

import kscope


def run(survive: Any) -> None:
    flags, out = (torch.zeros(size, device="cuda", dtype=torch.int32) for size in (1, 1 << 16))
    out.fill_(1)  # loads the code that ends the wait
    other = torch.cuda.Stream()
    torch.cuda.synchronize()
    with kscope.profile(survive=survive, pool=8 << 20) as session:
        marked[(BLOCKS,)](flags, out, num_warps=4)
        print("launched", flush=True)
        sys.stdin.readline()
        with torch.cuda.stream(other):
            flags.fill_(1)
        torch.cuda.synchronize()
    print(f"{len(session.trace)} records; {[one.kind for one in session.trace.problems]}", flush=True)


if __name__ == "__main__":
    run(sys.argv[1])
