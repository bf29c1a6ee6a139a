"""What regions cost a whole Triton kernel: every variant interleaved in one process, timed by Nsight Compute.

    python bench/kernel_overhead.py [--kernels matmul attention persistent] [--rounds 3] [--json FILE]

Needs a GPU and ncu. The script runs itself under ncu (gpu__time_duration, clocks and caches left alone)
and prints, per kernel: microseconds, overhead over off, registers. Variants: off (annotated, plain);
kscope as it ships (Elected), one thread per block (Lane0Warp0), stores in place; clock reads alone (the
floor of any in-kernel profiler: no record, no claim); Proton's instrumentation in its cheapest modes.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import triton
import triton.profiler as proton
import triton.profiler.language as pl
from overhead_kernels import attention, attention_proton, matmul, matmul_proton, persistent, persistent_proton

import kscope
from kscope import fit, plan
from kscope.marks import PREFIX

LAUNCHES, DROPPED = 12, 2
PROTON_LAUNCHES = 5  # its host side takes seconds a launch
PROTON = {
    "Proton shared clock32": {"optimizations": "clock32"},
    "Proton global clock32": {"buffer_type": "global", "buffer_size": 65536, "optimizations": "clock32"},
}


Launch = Callable[[Any, int], object]


def workloads() -> dict[str, tuple[Launch, Any, Any]]:
    """Per kernel: how to launch it with a tag, the annotated kernel, and Proton's."""
    size = 2048
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    heads, length, depth = 32, 2048, 128
    q, k, v = (torch.randn(heads, length, depth, device="cuda", dtype=torch.float16) for _ in range(3))
    o = torch.empty_like(q)
    tiles = {"BM": 128, "BN": 128, "BK": 64}
    sms = torch.cuda.get_device_properties(0).multi_processor_count

    def tiled(grid: tuple[int, ...]) -> Launch:
        return lambda kernel, tag: kernel[grid](a, b, c, size, size, size, **tiles, TAG=tag, num_warps=8, num_stages=3)

    def attend(kernel: Any, tag: int) -> object:
        grid = (length // 128, heads)
        return kernel[grid](q, k, v, o, length, 0.127, D=depth, BM=128, BN=64, TAG=tag, num_warps=8, num_stages=2)

    return {
        "matmul": (tiled((size // 128, size // 128)), matmul, matmul_proton),
        "attention": (attend, attention, attention_proton),
        "persistent": (tiled((sms,)), persistent, persistent_proton),
    }


Lower = Callable[..., plan.Lowered]


@contextmanager
def lowering(change: Callable[[Lower], Lower]) -> Iterator[None]:
    """Within, kernels are lowered by change(plan.lower); launch them with a TAG of their own."""
    true_lower = fit.lower
    fit.lower = change(true_lower)  # type: ignore[assignment]  # same signature, seen as a function
    try:
        yield
    finally:
        fit.lower = true_lower


def in_place(lower: Lower) -> Lower:
    """Every record is stored where its region ends."""
    return lambda text, recording, **more: lower(text, replace(recording, pending=0), **more)


def clocks_alone(lower: Lower) -> Lower:
    """Every mark becomes a clock read that is folded into one register: the floor."""
    read = (
        "{ .reg .b64 ks_c; .reg .b32 ks_z; mov.u64 ks_c, %clock64; cvt.u32.u64 ks_z, ks_c;"
        " xor.b32 ks_sum, ks_sum, ks_z; }"
    )
    keep = "{ .reg .pred ks_q; setp.eq.u32 ks_q, ks_sum, 305419896; @ks_q trap; }\n\tret;"

    def floor(text: str, recording: Any, **more: Any) -> plan.Lowered:
        lowered = lower(text, recording, **more)
        if lowered.text is text:
            return lowered
        body = re.sub(rf"{PREFIX}[^\n]*", read, text)
        body = re.sub(r"(\.entry[^{]*\{)", r"\1 .reg .b32 ks_sum; mov.u32 ks_sum, 0;", body)
        return plan.Lowered(re.sub(r"\bret;", keep, body), lowered.meta)

    return floor


def record(names: list[str], rounds: int, order: Path) -> None:
    """Launches everything in a fixed order, and writes that order down for whoever reads ncu's rows."""
    pl.enable_semantic("triton")
    launched: list[tuple[str, str, int]] = []
    loads = workloads()

    def run(name: str, variant: str, kernel: Any, tag: int, times: int = LAUNCHES) -> None:
        launch = loads[name][0]
        for _ in range(times):
            launch(kernel, tag)
        torch.cuda.synchronize()
        launched.extend((name, variant, i) for i in range(times))

    for _ in range(rounds):
        for name in names:
            _, kernel, protons = loads[name]
            run(name, "off", kernel, 0)
            with kscope.profile():
                run(name, "kscope Elected", kernel, 1)
            with kscope.profile(strategy=kscope.Lane0Warp0()):
                run(name, "kscope Lane0Warp0", kernel, 2)
            with lowering(in_place), kscope.profile():
                run(name, "kscope in place", kernel, 3)
            with lowering(clocks_alone), kscope.profile():
                run(name, "clock reads alone", kernel, 4)
            for i, (variant, options) in enumerate(PROTON.items()):
                with tempfile.TemporaryDirectory() as folder:
                    mode = proton.mode.Default(**options)
                    proton.start(f"{folder}/proton", data="tree", backend="instrumentation", mode=mode)
                    run(name, variant, protons, 5 + i, PROTON_LAUNCHES)
                    proton.finalize()
    order.write_text(json.dumps(launched))


def table(rows: list[dict[str, str]], launched: list[tuple[str, str, int]]) -> list[dict[str, Any]]:
    """Medians of each variant's launches, the first ones of every batch left out."""
    times: dict[tuple[str, str], list[float]] = {}
    registers: dict[tuple[str, str], int] = {}
    duration = [float(r["Metric Value"].replace(",", "")) for r in rows if r["Metric Name"] == "gpu__time_duration.sum"]
    scale = {"ns": 1e-3, "us": 1.0, "usecond": 1.0, "nsecond": 1e-3}[
        next(r["Metric Unit"] for r in rows if r["Metric Name"] == "gpu__time_duration.sum")
    ]
    used = [int(r["Metric Value"]) for r in rows if r["Metric Name"] == "launch__registers_per_thread"]
    if len(duration) != len(launched):
        raise SystemExit(f"ncu saw {len(duration)} launches, {len(launched)} were made")
    for i, (name, variant, at) in enumerate(launched):
        if at >= DROPPED:
            times.setdefault((name, variant), []).append(duration[i] * scale)
            registers[name, variant] = used[i]
    out = []
    for (name, variant), seen in times.items():
        off = statistics.median(times[name, "off"])
        now = statistics.median(seen)
        out.append(
            {
                "kernel": name,
                "variant": variant,
                "us": round(now, 2),
                "least": round(min(seen), 2),
                "overhead_percent": round(100 * (now / off - 1), 2),
                "registers": registers[name, variant],
            }
        )
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", nargs="+", default=["matmul", "attention", "persistent"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--order", type=Path, help=argparse.SUPPRESS)  # set in the run under ncu
    options = parser.parse_args()
    if options.order is not None:
        record(options.kernels, options.rounds, options.order)
        return 0
    with tempfile.TemporaryDirectory() as name:
        order, log = Path(name, "order.json"), Path(name, "ncu.csv")
        command = ["ncu", "--clock-control", "none", "--cache-control", "none", "--csv", "--log-file", str(log)]
        command += ["--metrics", "gpu__time_duration.sum,launch__registers_per_thread"]
        command += ["-k", "regex:^(matmul|attention|persistent)", sys.executable, __file__, "--order", str(order)]
        command += ["--kernels", *options.kernels, "--rounds", str(options.rounds)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows = list(csv.DictReader(line for line in log.read_text().splitlines() if line.startswith('"')))
        result = table(rows, json.loads(order.read_text()))
    print(
        f"{torch.cuda.get_device_name()}, triton {triton.__version__}, ncu gpu__time_duration, {options.rounds} rounds"
    )
    print(f"{'kernel':12} {'variant':24} {'us':>9} {'overhead':>9} {'registers':>9}")
    for row in result:
        numbers = f"{row['us']:9.2f} {row['overhead_percent']:+8.2f}% {row['registers']:9}"
        print(f"{row['kernel']:12} {row['variant']:24} {numbers}")
    if options.json is not None:
        options.json.write_text(json.dumps({"device": torch.cuda.get_device_name(), "rows": result}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
