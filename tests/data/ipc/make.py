"""Regenerates the sample data of `kscope trust ipc` and its golden outputs.

    PYTHONPATH=.:frontends:runtime:tests python tests/data/ipc/make.py

A kernel of 3 blocks of 2 warps with two regions each, in the three files that CUTracer's script joins; and a capture
of the same shape with the histogram that CUTracer would write of it (kscope's own two clock pairs are counted too).
The golden files are the output of `kscope trust ipc`; tests/unit/analysis/test_ipc.py checks their numbers by hand.
"""

from __future__ import annotations

import json
from pathlib import Path

import synth
from synth import Rec

from kscope.cli import main

HERE = Path(__file__).parent
BLOCKS, WARPS = 3, 2
OPCODES = ("LDG.E.64", "FADD", "IMAD")
CYCLES = {"load_ops": 120, "store_ops": 80}
LOG = """\
[2025-06-15 14:32:03.610] [CUTracer] CTX 0x563a1b200000 - LAUNCH kernel hash 0x11 grid size 1,1,1 block size 32,1,1
[2025-06-15 14:32:03.611] [CUTracer] CTX 0x563a1b200000 - LAUNCH kernel hash 0x7fa21c3 grid size 3,1,1 block size 64,1,1
CUTracer: CTX 0x0000563a1b200000 - LAUNCH - Kernel pc 0x00007f - Kernel name add_kernel - kernel hash 0x0fa21c3 - \
kernel launch id 2 - grid size 3,1,1 - block size 128,1,1 - nregs 16 - shmem 0 - cuda stream id 0
CUTracer: CTX 0x0000563a1b200000 - LAUNCH - Kernel pc 0x00007f - Kernel name graph_node - grid launch id 3 - \
grid size 1,1,1 - block size 32,1,1
nothing of interest
"""


def count(warp: int, region: int, opcode: int) -> int:
    """Instructions of one opcode in one region of one warp."""
    return (region + 1) * (3 + opcode) + warp


def histogram(warps: int, first: int, regions: int) -> str:
    """Counts of three opcodes; `first` and as many at the end are clock pairs of a profiler's own."""
    lines = ["warp_id,region_id,instruction,count"]
    for warp in range(warps):
        for region in range(regions + 2 * first):
            lines += [f'{warp},{region},"{name}",{count(warp, region, n)}' for n, name in enumerate(OPCODES)]
    return "\n".join(lines) + "\n"


def chrome() -> str:
    """A trace as Proton writes it: dur is cycles / 1000, ts is ns / 1000."""
    numbered: dict[str, object] = {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "no place in it"}}
    events = [numbered]
    for block in range(BLOCKS):
        for warp in range(WARPS):
            at = 16.0 + 1024 * block
            for name, cycles in CYCLES.items():
                events.append({
                    "name": name, "cat": "add_kernel", "ph": "X", "ts": at / 1000, "dur": cycles / 1000,
                    "pid": f"add_kernel Core{block * 4} CTA{block}", "tid": f"warp {warp} (line 0)",
                })  # fmt: skip
                at += cycles
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}, indent=1) + "\n"


def capture() -> None:
    slabs = []
    for block in range(BLOCKS):
        for warp in range(4):
            start = 10_000 * (block + 1)
            records = [Rec("load", start + 100, start + 220), Rec("dot", start + 230, start + 330 + warp)]
            place = {"block": (block, 0, 0), "grid": (BLOCKS, 1, 1), "warp": warp, "sm": block}
            slabs.append(synth.slab(records, start=start, end=start + 2000, **place))  # type: ignore[arg-type]  # mixed
    synth.capture(*slabs).save(HERE / "capture.kscope")


def run(*argv: str) -> None:
    code = main(["trust", "ipc", *(str(HERE / one) if "." in one else one for one in argv)])
    assert code == 0, (argv, code)


if __name__ == "__main__":
    (HERE / "cutracer.log").write_text(LOG)
    (HERE / "kernel_7fa21c3_add_kernel_hist.csv").write_text(histogram(BLOCKS * WARPS, 0, len(CYCLES)))
    (HERE / "kernel_abc_matmul_hist.csv").write_text(histogram(BLOCKS * 4, 1, 2))
    (HERE / "chrome.json").write_text(chrome())
    capture()
    counts = "kernel_7fa21c3_add_kernel_hist.csv"
    run(
        "--chrome-trace",
        "chrome.json",
        "--cutracer-trace",
        counts,
        "--cutracer-log",
        "cutracer.log",
        "-o",
        "merged.csv",
    )
    run("--chrome-trace", "chrome.json", "-o", "chrome.csv")
    run("--cutracer-trace", counts, "-o", "hist.csv")
    run("capture.kscope", "--cutracer-trace", "kernel_abc_matmul_hist.csv", "-o", "capture.csv")
    run("capture.kscope", "--cutracer-trace", "kernel_abc_matmul_hist.csv", "--json", "-o", "capture.json")
