"""Cost of regions in whole Triton kernels: all variants interleaved in one process, timed by Nsight Compute.

Variants: off (annotated, plain); kscope as it ships (Elected), at rest (prepared, not recording), in the kernel's own
machine code (placement="schedule"), one thread per block (Lane0Warp0), stores in place; clock reads alone (the floor
of any in-kernel profiler: no record, no claim), and those that wait for the barrier before them, as kscope's do;
Proton's instrumentation as it ships and with its optimizations. Each repetition runs all variants of a kernel in a new
random order. Beside the times: registers, spilled bytes, instructions and the warps that fit on an SM, read from each
variant's cubin.
"""

from __future__ import annotations

import csv
import json
import os
import random
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import protons
import triton
import triton.profiler.language as pl
import triton_kernels
from driver import resources
from offline import source, without_gpu
from proton_twins import twin
from rows import Row, row
from triton.backends.compiler import GPUTarget

import kscope
from kscope.lowering import barrier_fences, plan, register_budget
from kscope.lowering.lowered import Lowered
from kscope.marks.grammar import PREFIX
from kscope.ptx import cfg

DURATION, REGISTERS = "gpu__time_duration.sum", "launch__registers_per_thread"
"""The metrics that ncu collects."""
FENCE = "fence.mbarrier_init.release.cluster;"
"""kscope's instruction between a barrier and a clock read: a NOP in machine code."""
SEED = 20_261_124
"""Seed of the order of variants."""
REPETITIONS, QUICK = 12, 4
"""Repetitions of all variants of a kernel, in full and with --quick."""
LAUNCHES, DROPPED = 3, 1
"""Launches of a variant in each repetition, and how many of the first are not counted."""
BUFFERS = {
    "matmul": 16384, "attention": 32768, "persistent": 65536, "tasks": 65536, "backward": 32768, "splitk": 8192,
    "grouped": 8192, "layernorm": 512, "softmax": 256,
}  # fmt: skip
"""Bytes that a block records with Proton: its buffer in global memory, and in shared memory up to SHARED."""
SHARED = 4096
"""Larger blocks use the largest buffer in shared memory that Proton itself finds without a loss of occupancy."""


@dataclass(frozen=True)
class Kernel:
    """Parameters, constants and options of a kernel of triton_kernels.py, as workloads() launches it."""

    types: dict[str, str]
    constants: dict[str, int]
    options: dict[str, int]


_PRODUCT = {**dict.fromkeys("abc", "*fp16"), **dict.fromkeys("MNK", "i32")}
_TILES = {"BM": 128, "BN": 128, "BK": 64}
_TILED = Kernel(_PRODUCT, _TILES, {"num_warps": 8, "num_stages": 3})
KERNELS = {
    "matmul": _TILED,
    "attention": Kernel(
        {**dict.fromkeys("qkvo", "*fp16"), "S": "i32", "scale": "fp32"},
        {"D": 128, "BM": 128, "BN": 64},
        {"num_warps": 8, "num_stages": 2},
    ),
    "persistent": _TILED,
    "layernorm": Kernel(
        {"x": "*fp16", "weight": "*fp32", "bias": "*fp32", "y": "*fp16", "N": "i32", "eps": "fp32"},
        {"BLOCK": 1024},
        {"num_warps": 4},
    ),
    "tasks": Kernel(
        {"x": "*fp32", "y": "*fp32", "next_task": "*i32", "count": "i32", "each": "i32"},
        {"BLOCK": 1024},
        {"num_warps": 4},
    ),
    "softmax": Kernel({"x": "*fp32", "y": "*fp32", "N": "i32"}, {"BLOCK": 1024}, {"num_warps": 4}),
    "splitk": Kernel({**_PRODUCT, "c": "*fp32"}, _TILES, {"num_warps": 8, "num_stages": 3}),
    "backward": Kernel(
        {
            **dict.fromkeys(("q", "k", "v", "do", "dk", "dv"), "*fp16"),
            "maxima": "*fp32", "deltas": "*fp32", "S": "i32", "scale": "fp32",
        },
        {"D": 64, "BM": 64, "BN": 128},
        {"num_warps": 8, "num_stages": 2},
    ),
    "grouped": Kernel(
        {
            **dict.fromkeys("xwy", "*fp16"),
            **dict.fromkeys(("experts", "firsts", "ends"), "*i32"),
            **dict.fromkeys("NK", "i32"),
        },
        _TILES,
        {"num_warps": 8, "num_stages": 3},
    ),
}  # fmt: skip
"""By name; each has a twin with Proton's scopes."""


def annotated(name: str, by_proton: bool) -> Any:
    """The kernel with regions of kscope, or with Proton's scopes."""
    kernel = getattr(triton_kernels, name)
    return twin(kernel) if by_proton else kernel


@dataclass(frozen=True)
class Workload:
    """A launch's grid and arguments, the tensors it needs zeroed, its results, and torch's results."""

    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    results: tuple[tuple[Any, Any], ...]
    fresh: tuple[Any, ...] = ()

    def launch(self, name: str, kernel: Any, tag: int) -> Any:
        for one in self.fresh:
            one.zero_()
        return kernel[self.grid](*self.arguments, **KERNELS[name].constants, TAG=tag, **KERNELS[name].options)

    def error(self) -> str:
        """Deviation of the results from torch's, relative to the largest; empty within 1 %. Clears them."""
        worst = 0.0
        for found, expected in self.results:
            difference = float((found.float() - expected.float()).abs().max() / expected.float().abs().max())
            worst = difference if difference != difference else max(worst, difference)
            found.fill_(float("nan"))
        return "" if worst <= 0.01 else f"results differ from torch's by {worst:.2g} of their maximum"


def workloads(names: Iterable[str]) -> dict[str, Workload]:
    """The workloads of these kernels, on the GPU."""
    import torch

    sms = torch.cuda.get_device_properties(0).multi_processor_count
    torch.manual_seed(0)

    def random_halves(count: int, *shape: int) -> tuple[Any, ...]:
        return tuple(torch.randn(*shape, device="cuda", dtype=torch.float16) for _ in range(count))

    def product(persistent: bool) -> Workload:
        size = 2048
        a, b, c = random_halves(3, size, size)
        grid = (sms,) if persistent else (size // 128, size // 128)
        return Workload(grid, (a, b, c, size, size, size), ((c, a @ b),))

    def attention() -> Workload:
        heads, length, scale = 32, 2048, 0.127
        q, k, v, o = random_halves(4, heads, length, 128)
        powers = torch.softmax((q @ k.transpose(1, 2)).float() * (scale * 0.6931471805599453), 2)
        return Workload((length // 128, heads), (q, k, v, o, length, scale), ((o, powers.half() @ v),))

    def layernorm() -> Workload:
        lines, columns = 4096, 4096
        x, y = random_halves(2, lines, columns)
        weight, bias = (torch.randn(columns, device="cuda") for _ in range(2))
        expected = torch.nn.functional.layer_norm(x.float(), (columns,), weight, bias, 1e-5)
        return Workload((lines,), (x, weight, bias, y, columns, 1e-5), ((y, expected),))

    def tasks() -> Workload:
        count, each, block = 4096, 16, 1024
        work, done = torch.randn(count, each, block, device="cuda"), torch.empty(count, block, device="cuda")
        turn = torch.zeros(1, device="cuda", dtype=torch.int32)
        return Workload((sms * 2,), (work, done, turn, count, each), ((done, work.sum(1)),), (turn,))

    def softmax() -> Workload:
        x = torch.randn(16384, 1024, device="cuda")
        y = torch.empty_like(x)
        return Workload((16384,), (x, y, 1024), ((y, torch.softmax(x, 1)),))

    def splitk() -> Workload:
        size, inner, parts = 512, 8192, 8
        (a,), (b,) = random_halves(1, size, inner), random_halves(1, inner, size)
        c = torch.zeros(size, size, device="cuda")
        return Workload((size // 128, size // 128, parts), (a, b, c, size, size, inner), ((c, a @ b),), (c,))

    def backward() -> Workload:
        heads, length, depth, scale = 16, 2048, 64, 0.1803
        q, k, v, gradient, dk, dv = random_halves(6, heads, length, depth)
        wide = [one.float().requires_grad_() for one in (q, k, v)]
        scores = wide[0] @ wide[1].transpose(1, 2) * (scale * 0.6931471805599453)
        out = torch.softmax(scores, 2) @ wide[2]
        _, keys, values = torch.autograd.grad(out, wide, gradient.float())
        maxima = (torch.logsumexp(scores, 2) / 0.6931471805599453).detach()
        deltas = (out * gradient.float()).sum(2).detach()
        arguments = (q, k, v, gradient, dk, dv, maxima, deltas, length, scale)
        return Workload((length // 128, heads), arguments, ((dk, keys), (dv, values)))

    def grouped() -> Workload:
        counts = [900, 130, 512, 64, 1300, 257, 700, 233]
        inner, columns = 1024, 2048
        (x,), (w,) = random_halves(1, sum(counts), inner), random_halves(1, len(counts), inner, columns)
        y = torch.empty(sum(counts), columns, device="cuda", dtype=torch.float16)
        ends = [sum(counts[: at + 1]) for at in range(len(counts))]
        tiles = [(at, first) for at, end in enumerate(ends) for first in range(end - counts[at], end, 128)]
        tables = (zip(*tiles, strict=True), (ends,))
        experts, firsts, last = (
            torch.tensor(one, device="cuda", dtype=torch.int32) for table in tables for one in table
        )
        expected = torch.cat([part @ w[at] for at, part in enumerate(x.split(counts))])
        arguments = (x, w, y, experts, firsts, last, columns, inner)
        return Workload((len(tiles), columns // 128), arguments, ((y, expected),))

    makers: dict[str, Callable[[], Workload]] = {
        "matmul": lambda: product(False), "attention": attention, "persistent": lambda: product(True),
        "layernorm": layernorm, "tasks": tasks, "softmax": softmax, "splitk": splitk, "backward": backward,
        "grouped": grouped,
    }  # fmt: skip
    return {name: makers[name]() for name in names}


Lower = Callable[..., Lowered]


@contextmanager
def lowering(change: Callable[[Lower], Lower]) -> Iterator[None]:
    """A context in which change(plan.lower) lowers kernels; launch them with a separate TAG."""
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
    """The same, but a read waits for the barrier before it, as kscope's does."""

    def floor(text: str, recording: Any, **more: Any) -> Lowered:
        fenced = text
        for function in reversed(cfg.functions(text)):
            behind = barrier_fences.after_barriers(function, cfg.blocks(function))
            for start in sorted((function.statements[i].start for i in behind), reverse=True):
                if fenced.startswith(PREFIX, start):
                    fenced = f"{fenced[:start]}{FENCE}\n{fenced[start:]}"
        return _clocks(lower, text, fenced, recording, more)

    return floor


def _clocks(lower: Lower, text: str, marked: str, recording: Any, more: dict[str, Any]) -> Lowered:
    """The lowered text, with a clock read for every mark in `marked`."""
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
    return Lowered(re.sub(r"\bret;", keep, body), lowered.meta)


@dataclass(frozen=True)
class Variant:
    """A way of recording. within: by the kernel's name, the context of its launches. tag: TAG of its compilation."""

    tag: int
    within: Callable[[str], AbstractContextManager[Any]]
    by_proton: bool = False


@contextmanager
def profiled_after(change: Callable[[Lower], Lower]) -> Iterator[None]:
    with lowering(change), kscope.profile():
        yield


@contextmanager
def at_rest(**options: Any) -> Iterator[None]:
    """Kernels are prepared, and no session records."""
    kscope.enable(**options)
    try:
        yield
    finally:
        kscope.disable()


def instrumented(name: str, options: dict[str, Any]) -> AbstractContextManager[None]:
    """Proton's instrumentation of a kernel."""
    size = BUFFERS[name] if "buffer_type" in options or BUFFERS[name] <= SHARED else 0
    return protons.instrumented(buffer_size=size, **options)


VARIANTS = {
    "off": Variant(0, lambda _: nullcontext()),
    "kscope Elected": Variant(1, lambda _: kscope.profile()),
    "kscope at rest": Variant(1, lambda _: at_rest()),
    "kscope schedule": Variant(20, lambda _: kscope.profile(placement="schedule")),
    "kscope Lane0Warp0": Variant(2, lambda _: kscope.profile(strategy=kscope.Lane0Warp0())),
    "kscope in place": Variant(3, lambda _: profiled_after(in_place)),
    "clock reads alone": Variant(4, lambda _: profiled_after(clocks_alone)),
    "clock reads alone, behind barriers": Variant(5, lambda _: profiled_after(clocks_after_barriers)),
    **{
        name: Variant(6 + at, lambda kernel, options=options: instrumented(kernel, options), True)  # type: ignore[misc]
        for at, (name, options) in enumerate(protons.MODES.items())
    },
}


def order(kernel: str, repetition: int, seed: int = SEED) -> list[str]:
    """All variants, shuffled: the same for the same arguments."""
    return random.Random(f"{seed} {kernel} {repetition}").sample(list(VARIANTS), len(VARIANTS))


def record(repetitions: int, folder: Path, names: Iterable[str], launches: int = LAUNCHES) -> None:
    """Launches every variant in order(), and writes order.json, which names ncu's rows, and cubins."""
    import torch

    pl.enable_semantic("triton")
    launched: list[tuple[str, str, int]] = []
    builds: dict[tuple[str, str], dict[str, Any]] = {}
    wrong: dict[str, dict[str, str]] = {}
    for name, load in workloads(names).items():
        for repetition in range(repetitions):
            for variant in order(name, repetition):
                how = VARIANTS[variant]
                with how.within(name):
                    for _ in range(launches):
                        compiled = load.launch(name, annotated(name, how.by_proton), how.tag)
                    torch.cuda.synchronize()
                launched.extend((name, variant, i) for i in range(launches))
                if (name, variant) not in builds:
                    builds[name, variant] = kept(compiled, folder / f"{len(builds)}.cubin")
                    wrong.setdefault(name, {})[variant] = load.error()
    found = [[name, variant, build] for (name, variant), build in builds.items()]
    (folder / "order.json").write_text(json.dumps({"launched": launched, "builds": found, "wrong": wrong}))


def warmed(folder: Path, names: Iterable[str]) -> None:
    """Compile every variant into Triton's cache in the folder, one process per kernel. Raises RuntimeError with the
    error output of a process."""
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    running = {}
    for name in names:
        own = folder / f"warm-{name}"
        own.mkdir()
        command = [sys.executable, __file__, "1", str(own), "1", name]
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
    """Microseconds of each variant's launches without the first ones of every batch. Raises RuntimeError if ncu saw
    other launches than were made."""
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
    """The time in one of ncu's rows."""
    return float(one["Metric Value"].replace(",", "")) * {"n": 1e-3, "u": 1.0, "m": 1e3}[one["Metric Unit"][0]]


def profiled(script: list[str], kernels: str, folder: Path, names: str = "function") -> list[dict[str, str]]:
    """ncu's rows of a script's kernels whose names match; ncu changes neither clocks nor caches. names: "mangled" for
    the names in machine code."""
    log = folder / "ncu.csv"
    command = ["ncu", "--clock-control", "none", "--cache-control", "none", "--csv", "--log-file", str(log)]
    command += ["--kernel-name-base", names, "--print-kernel-base", names]
    command += ["--metrics", f"{DURATION},{REGISTERS}", "-k", f"regex:{kernels}", sys.executable, *script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not log.exists():
        raise RuntimeError(f"ncu: {(done.stderr or done.stdout)[-2000:]}")
    return list(csv.DictReader(line for line in log.read_text().splitlines() if line.startswith('"')))


def measure(section: str, options: Any) -> Iterator[Row]:
    """Per kernel and variant: the time, the time added to the variant off, and registers, spills and occupancy."""
    names = options.kernels or tuple(KERNELS)
    warmed(options.folder, names)
    script = [__file__, str(QUICK if options.quick else REPETITIONS), str(options.folder), str(LAUNCHES), *names]
    rows = profiled(script, f"^({'|'.join(names)})(_proton)?$", options.folder)
    recorded = json.loads((options.folder / "order.json").read_text())
    seen = times(rows, recorded["launched"])
    for (name, variant), found in ((one, seen[one]) for one in _sorted(seen)):
        off = statistics.median(seen[name, "off"])
        wrong = recorded["wrong"][name][variant]
        yield row(name, variant, "us", found, seed=SEED, **({"doubt": wrong} if wrong else {}))
        yield row(f"{name}, added", variant, "%", [100 * (one / off - 1) for one in found])
    for name, variant, build in recorded["builds"]:
        yield from taken(name, variant, build)


def _sorted(seen: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """In the order of KERNELS and VARIANTS."""
    return sorted(seen, key=lambda one: (list(KERNELS).index(one[0]), list(VARIANTS).index(one[1])))


def missing(section: str, options: Any) -> list[str]:
    """A note below the table on the order of variants."""
    return [f"each repetition ran all variants of a kernel in a random order (seed {SEED})"]


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
    """Without a GPU: each kernel compiled for `arch`: off, with kscope, with clock reads alone, and by Proton."""
    target = GPUTarget("cuda", int(re.sub(r"\D", "", options.arch)), 32)
    pl.enable_semantic("triton")
    with without_gpu(target):
        for name in options.kernels or KERNELS:
            for variant, how in VARIANTS.items():
                if variant in COMPILED or how.by_proton:
                    compiled = compiled_for(target, name, variant)
                    yield from taken(name, variant, kept(compiled, options.folder / f"{name}{how.tag}.cubin"))


COMPILED: dict[str, Callable[[Lower], Lower]] = {
    "off": unchanged, "kscope Elected": unchanged, "kscope in place": in_place, "clock reads alone": clocks_alone,
    "clock reads alone, behind barriers": clocks_after_barriers,
}  # fmt: skip
"""Variants of kscope with different machine code, which need no session."""


def compiled_for(target: GPUTarget, name: str, variant: str) -> Any:
    """A variant of a kernel, compiled for another GPU; call it within without_gpu()."""
    how, kernel = VARIANTS[variant], KERNELS[name]
    made = source(annotated(name, how.by_proton), kernel.types, {**kernel.constants, "TAG": how.tag})
    recording = nullcontext() if how.by_proton or variant == "off" else at_rest()
    with recording, how.within(name) if how.by_proton else lowering(COMPILED[variant]):
        return triton.compile(made, target=target, options=kernel.options)


if __name__ == "__main__":
    record(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[4:], int(sys.argv[3]))
