"""What regions cost a whole Triton kernel: every variant interleaved in one process, timed by Nsight Compute.

Variants: off (annotated, plain); kscope as it ships (Elected), at rest (prepared, not recording), one thread per block
(Lane0Warp0), stores in place; clock reads alone (the floor of any in-kernel profiler: no record, no claim), and those
that wait for the barrier in front of them, as kscope's do; Proton's instrumentation in its cheapest modes. Beside the
times: registers, spilled bytes, instructions and the warps that fit on an SM, read from each variant's cubin.
"""

from __future__ import annotations

import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import triton
import triton.profiler as proton
import triton.profiler.language as pl
from driver import resources
from rows import Row, row
from triton_kernels import (
    attention,
    attention_proton,
    layernorm,
    layernorm_proton,
    matmul,
    matmul_proton,
    persistent,
    persistent_proton,
    tasks,
    tasks_proton,
)

import kscope
from kscope.lowering import barrier_fences, cfg, plan, register_budget
from kscope.marks.grammar import PREFIX

DURATION, REGISTERS = "gpu__time_duration.sum", "launch__registers_per_thread"
"""The metrics that ncu collects."""
FENCE = "fence.mbarrier_init.release.cluster;"
"""What kscope puts before a clock read behind a barrier: a NOP in machine code."""
LAUNCHES, DROPPED = 12, 2
PROTON_LAUNCHES, PROTON_ROUNDS = 5, 2  # its host side takes seconds a launch
PROTON: dict[str, dict[str, Any]] = {
    "Proton shared clock32": {"optimizations": "clock32"},
    "Proton global clock32": {"buffer_type": "global", "optimizations": "clock32"},
}
BUFFERS = {"matmul": 16384, "attention": 32768, "persistent": 65536, "layernorm": 4096, "tasks": 65536}
"""Of Proton in global memory, bytes of a block: what a block records, and no more, as its host reads all of it."""
KERNELS = {
    "matmul": (matmul, matmul_proton), "attention": (attention, attention_proton),
    "persistent": (persistent, persistent_proton), "layernorm": (layernorm, layernorm_proton),
    "tasks": (tasks, tasks_proton),
}  # fmt: skip
"""As they are annotated for kscope, and for Proton."""
_TILED = (
    {**dict.fromkeys("abc", "*fp16"), **dict.fromkeys("MNK", "i32")},
    {"BM": 128, "BN": 128, "BK": 64},
    {"num_warps": 8, "num_stages": 3},
)
SIGNATURES: dict[str, tuple[dict[str, str], dict[str, int], dict[str, int]]] = {
    "matmul": _TILED,
    "persistent": _TILED,
    "attention": (
        {**dict.fromkeys("qkvo", "*fp16"), "S": "i32", "scale": "fp32"},
        {"D": 128, "BM": 128, "BN": 64},
        {"num_warps": 8, "num_stages": 2},
    ),
    "layernorm": (
        {"x": "*fp16", "weight": "*fp32", "bias": "*fp32", "y": "*fp16", "N": "i32", "eps": "fp32"},
        {"BLOCK": 1024},
        {"num_warps": 4},
    ),
    "tasks": (
        {"x": "*fp32", "y": "*fp32", "next_task": "*i32", "count": "i32", "each": "i32"},
        {"BLOCK": 1024},
        {"num_warps": 4},
    ),
}
"""Parameters, constants and options of each, as workloads() launches it."""

Launch = Callable[[Any, int], Any]


def workloads() -> dict[str, tuple[Launch, Any, Any]]:
    """Per kernel: how to launch it with a tag, the annotated kernel, and Proton's."""
    size = 2048
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    heads, length, depth = 32, 2048, 128
    q, k, v = (torch.randn(heads, length, depth, device="cuda", dtype=torch.float16) for _ in range(3))
    o = torch.empty_like(q)
    rows, columns = 4096, 4096
    x, y = (torch.randn(rows, columns, device="cuda", dtype=torch.float16) for _ in range(2))
    weight, bias = (torch.randn(columns, device="cuda") for _ in range(2))
    count, each, block = 4096, 16, 1024
    work, done = torch.randn(count * each * block, device="cuda"), torch.empty(count * block, device="cuda")
    turn = torch.zeros(1, device="cuda", dtype=torch.int32)
    tiles = {"BM": 128, "BN": 128, "BK": 64}
    sms = torch.cuda.get_device_properties(0).multi_processor_count

    def tiled(grid: tuple[int, ...]) -> Launch:
        return lambda kernel, tag: kernel[grid](a, b, c, size, size, size, **tiles, TAG=tag, num_warps=8, num_stages=3)

    def attend(kernel: Any, tag: int) -> object:
        grid = (length // 128, heads)
        return kernel[grid](q, k, v, o, length, 0.127, D=depth, BM=128, BN=64, TAG=tag, num_warps=8, num_stages=2)

    def normalize(kernel: Any, tag: int) -> object:
        return kernel[(rows,)](x, weight, bias, y, columns, 1e-5, BLOCK=1024, TAG=tag, num_warps=4)

    def loop(kernel: Any, tag: int) -> object:
        turn.zero_()
        return kernel[(sms * 2,)](work, done, turn, count, each, BLOCK=block, TAG=tag, num_warps=4)

    launches: dict[str, Launch] = {
        "matmul": tiled((size // 128, size // 128)), "attention": attend, "persistent": tiled((sms,)),
        "layernorm": normalize, "tasks": loop,
    }  # fmt: skip
    return {name: (launches[name], *KERNELS[name]) for name in KERNELS}


Lower = Callable[..., plan.Lowered]


@contextmanager
def lowering(change: Callable[[Lower], Lower]) -> Iterator[None]:
    """Within, kernels are lowered by change(plan.lower); launch them with a TAG of their own."""
    with patch.object(register_budget, "lower", change(plan.lower)):
        yield


def unchanged(lower: Lower) -> Lower:
    return lower


def in_place(lower: Lower) -> Lower:
    """Every record is stored where its region ends."""
    return lambda text, recording, **more: lower(text, replace(recording, pending=0), **more)


def clocks_alone(lower: Lower) -> Lower:
    """Every mark becomes a clock read that is folded into one register: the floor."""
    return lambda text, recording, **more: _clocks(lower, text, text, recording, more)


def clocks_after_barriers(lower: Lower) -> Lower:
    """The same, and a read waits for the barrier in front of it, where kscope's does."""

    def floor(text: str, recording: Any, **more: Any) -> plan.Lowered:
        fenced = text
        for function in reversed(cfg.functions(text)):
            behind = barrier_fences.after_barriers(function, cfg.blocks(function))
            for start in sorted((function.statements[i].start for i in behind), reverse=True):
                if fenced.startswith(PREFIX, start):
                    fenced = f"{fenced[:start]}{FENCE}\n{fenced[start:]}"
        return _clocks(lower, text, fenced, recording, more)

    return floor


def _clocks(lower: Lower, text: str, marked: str, recording: Any, more: dict[str, Any]) -> plan.Lowered:
    """The text lowered, with a clock read for every mark that stands in `marked`."""
    read = (
        "{ .reg .b64 ks_c; .reg .b32 ks_z; mov.u64 ks_c, %clock64; cvt.u32.u64 ks_z, ks_c;"
        " xor.b32 ks_sum, ks_sum, ks_z; }"
    )
    keep = "{ .reg .pred ks_q; setp.eq.u32 ks_q, ks_sum, 305419896; @ks_q trap; }\n\tret;"
    lowered = lower(text, recording, **more)
    if lowered.text is text:
        return lowered
    body = re.sub(rf"{PREFIX}[^\n]*", read, marked)
    body = re.sub(r"(\.entry[^{]*\{)", r"\1 .reg .b32 ks_sum; mov.u32 ks_sum, 0;", body)
    return plan.Lowered(re.sub(r"\bret;", keep, body), lowered.meta)


def record(rounds: int, folder: Path, kernels: Iterable[str] = KERNELS, launches: int = LAUNCHES) -> None:
    """Launches everything in a fixed order, and writes that order down for whoever reads ncu's rows; and cubins."""
    pl.enable_semantic("triton")
    launched: list[tuple[str, str, int]] = []
    builds: dict[tuple[str, str], dict[str, Any]] = {}
    loads = workloads()

    def run(name: str, variant: str, kernel: Any, tag: int, times: int = launches) -> None:
        for _ in range(times):
            compiled = loads[name][0](kernel, tag)
        torch.cuda.synchronize()
        launched.extend((name, variant, i) for i in range(times))
        if (name, variant) not in builds:
            builds[name, variant] = kept(compiled, folder / f"{len(builds)}.cubin")

    for turn in range(rounds):
        for name in kernels:
            _, kernel, protons = loads[name]
            run(name, "off", kernel, 0)
            with kscope.profile():
                run(name, "kscope Elected", kernel, 1)
            kscope.enable()
            run(name, "kscope at rest", kernel, 1)
            kscope.disable()
            with kscope.profile(strategy=kscope.Lane0Warp0()):
                run(name, "kscope Lane0Warp0", kernel, 2)
            with lowering(in_place), kscope.profile():
                run(name, "kscope in place", kernel, 3)
            with lowering(clocks_alone), kscope.profile():
                run(name, "clock reads alone", kernel, 4)
            with lowering(clocks_after_barriers), kscope.profile():
                run(name, "clock reads alone, behind barriers", kernel, 5)
            for i, (variant, options) in enumerate(PROTON.items() if turn < PROTON_ROUNDS else ()):
                with tempfile.TemporaryDirectory() as place:
                    size = BUFFERS[name] if "buffer_type" in options else 0
                    mode = proton.mode.Default(buffer_size=size, **options)
                    proton.start(f"{place}/proton", data="tree", backend="instrumentation", mode=mode)
                    run(name, variant, protons, 6 + i, min(launches, PROTON_LAUNCHES))
                    proton.finalize()
    found = [[name, variant, build] for (name, variant), build in builds.items()]
    (folder / "order.json").write_text(json.dumps({"launched": launched, "builds": found}))


def warmed(folder: Path) -> None:
    """Every variant of every kernel compiled, the kernels at the same time, into Triton's cache in the folder. Raises
    RuntimeError with the error output of a kernel's process."""
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    running = {}
    for name in KERNELS:
        own = folder / f"warm-{name}"
        own.mkdir()
        command = [sys.executable, __file__, "1", str(own), name]
        running[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    errors = {name: process.communicate()[1] for name, process in running.items()}
    for name, process in running.items():
        if process.returncode:
            raise RuntimeError(f"{name}: {errors[name][-2000:]}")


def kept(compiled: Any, path: Path) -> dict[str, Any]:
    """The cubin of a compiled kernel as a file, and what its occupancy depends on."""
    path.write_bytes(compiled.asm["cubin"])
    about = compiled.metadata
    return {"cubin": str(path), "kernel": about.name, "threads": about.num_warps * 32, "shared": about.shared}


def times(rows: list[dict[str, str]], launched: list[tuple[str, str, int]]) -> dict[tuple[str, str], list[float]]:
    """Microseconds of each variant's launches, the first ones of every batch left out. Raises RuntimeError where ncu
    saw other launches than were made."""
    duration = [one for one in rows if one["Metric Name"] == DURATION]
    if len(duration) != len(launched):
        seen = ", ".join(sorted({one["Kernel Name"][:60] for one in duration}))
        raise RuntimeError(f"ncu saw {len(duration)} launches, {len(launched)} were made; of {seen}")
    found: dict[tuple[str, str], list[float]] = {}
    for (name, variant, at), one in zip(launched, duration, strict=True):
        if at >= DROPPED:
            found.setdefault((name, variant), []).append(microseconds(one))
    return found


def microseconds(one: dict[str, str]) -> float:
    """The time in a row of ncu's."""
    return float(one["Metric Value"].replace(",", "")) * {"n": 1e-3, "u": 1.0, "m": 1e3}[one["Metric Unit"][0]]


def profiled(script: list[str], kernels: str, folder: Path, names: str = "function") -> list[dict[str, str]]:
    """ncu's rows of a script's kernels whose names match, clocks and caches left alone. names: "mangled" for those of
    the machine code."""
    log = folder / "ncu.csv"
    command = ["ncu", "--clock-control", "none", "--cache-control", "none", "--csv", "--log-file", str(log)]
    command += ["--kernel-name-base", names, "--print-kernel-base", names]
    command += ["--metrics", f"{DURATION},{REGISTERS}", "-k", f"regex:{kernels}", sys.executable, *script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not log.exists():
        raise RuntimeError(f"ncu: {(done.stderr or done.stdout)[-2000:]}")
    return list(csv.DictReader(line for line in log.read_text().splitlines() if line.startswith('"')))


def measure(section: str, options: Any) -> Iterator[Row]:
    """Per kernel and variant the time, and what it adds to the kernel that is off; and what the compiler made of it."""
    warmed(options.folder)
    rounds = 1 if options.quick else 3
    rows = profiled([__file__, str(rounds), str(options.folder)], f"^({'|'.join(KERNELS)})", options.folder)
    recorded = json.loads((options.folder / "order.json").read_text())
    seen = times(rows, recorded["launched"])
    for (name, variant), found in seen.items():
        off = statistics.median(seen[name, "off"])
        yield row(name, variant, "us", found)
        yield row(f"{name}, added", variant, "%", [100 * (one / off - 1) for one in found])
    for name, variant, build in recorded["builds"]:
        yield from taken(name, variant, build)


def taken(name: str, variant: str, kept: dict[str, Any]) -> Iterator[Row]:
    """Registers and the like, from a cubin that kept() wrote."""
    one = resources(Path(kept["cubin"]), kept["kernel"], kept["threads"], kept["shared"])
    numbers = {
        "registers": one.registers, "stack bytes": one.stack_bytes, "spill instructions": one.spill_instructions,
        "instructions": one.instructions, "warps on an SM": one.warps_per_sm or 0,
    }  # fmt: skip
    for what, number in numbers.items():
        yield row(f"{name}, {what}", variant, what, [number])


def dry(section: str, options: Any) -> Iterator[Row]:
    """Without a GPU: each kernel compiled for the GPU that `arch` names, off, with kscope, with clock reads alone."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    target = GPUTarget("cuda", int(re.sub(r"\D", "", options.arch)), 32)
    for name, (kernel, _) in KERNELS.items():
        types, constants, launch = SIGNATURES[name]
        changes = (unchanged, unchanged, clocks_alone, clocks_after_barriers)
        variants = ("off", "kscope Elected", "clock reads alone", "clock reads alone, behind barriers")
        for tag, (variant, change) in enumerate(zip(variants, changes, strict=True)):
            kscope.disable() if variant == "off" else kscope.enable()
            aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(types.values()) if kind != "fp32"}
            signature = {**types, **dict.fromkeys((*constants, "TAG"), "constexpr")}
            source = ASTSource(kernel, signature, {**constants, "TAG": tag}, aligned)
            with lowering(change):
                compiled = triton.compile(source, target=target, options=launch)
            yield from taken(name, variant, kept(compiled, options.folder / f"{name}{tag}.cubin"))
    kscope.disable()


if __name__ == "__main__":
    record(int(sys.argv[1]), Path(sys.argv[2]), *([[sys.argv[3]], 1] if len(sys.argv) > 3 else []))
