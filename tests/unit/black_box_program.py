"""A program whose simulated kernel hangs or dies: python black_box_program.py FAULT. The faults are those of
bench/faults_program.py. One that hangs makes the file `hangs` once no warp moves."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

import kscope
import kscope_sim
from kscope_sim import Warp

TILES, STAGES = 12, 3
DIES = ("kill", "crash", "python")
STUCK_AT = {"arrive": 10, **dict.fromkeys(("signal", *DIES), 7)}
"""Fault -> the tile that consumers wait for in the end; the producer waits for room for tile 10."""
waits_for: dict[int, int] = {}
"""Warp of the launch with the fault -> the tile that it waits for, or waited for last."""


def pipeline(warp: Warp, fault: str) -> None:
    """One warp loads tiles into a ring of three, three warps multiply what is in it."""
    kscope.role("producer" if warp.index == 0 else "consumer")
    for tile in range(TILES):
        if warp.index == 0:
            if tile >= STAGES:
                with kscope.region("wait_empty", value=tile):
                    note_wait(warp, fault, tile)
                    warp.wait(("empty", tile - STAGES), arrivals=3)
            with kscope.region("load", value=tile):
                warp.work(700)
            if not (fault in ("signal", *DIES) and tile == 7):
                warp.arrive(("full", tile))
            continue
        with kscope.region("wait_full", value=tile):
            note_wait(warp, fault, tile)
            warp.wait(("full", tile))
        with kscope.region("multiply", value=tile):
            warp.work(900)
            if warp.index == 2 and tile == 7 and fault == "trap":
                raise RuntimeError("the kernel trapped")
            if warp.index == 2 and tile == 7 and fault == "address":
                raise IndexError("illegal memory access at 0x10")
        if not (warp.index == 2 and tile == 7 and fault == "arrive"):
            warp.arrive(("empty", tile))


def note_wait(warp: Warp, fault: str, tile: int) -> None:
    if fault != "none":
        waits_for[warp.index] = tile


def end(fault: str) -> None:
    while waits_for != {0: 10, **dict.fromkeys((1, 2, 3), STUCK_AT[fault])}:
        time.sleep(0.01)
    if fault not in DIES:
        Path("hangs").touch()
        return
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "crash":
        ctypes.string_at(0)
    os._exit(1)  # as after an error of the interpreter: nothing is closed


def train(fault: str) -> None:
    kscope_sim.launch(pipeline, grid=2, block=128, args=("none",))
    kscope_sim.launch(pipeline, grid=1, block=128, args=(fault,), hangs=True)


if __name__ == "__main__":
    if sys.argv[1] in STUCK_AT:
        threading.Thread(target=end, args=sys.argv[1:], daemon=True).start()
    train(sys.argv[1])
