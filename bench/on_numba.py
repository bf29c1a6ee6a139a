"""Cycles that one region adds in the loop of a Numba kernel, compared with CUDA C++: the same loop of 64 dependent
FMAs, the same options. The C++ row is compiled by nvcc and lowered by kscope, as B and C of on_regions.py are; Numba's
rows go through its own compiler, with link-time optimization and without. Loops are measured at four places in the
instruction cache; the best and the median one are shown.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from driver import Device, nvcc, ptxas
from numba import cuda, float32, int32, int64, void
from numba.cuda.extending import intrinsic
from on_regions import GLOBAL, SECTIONS, SOURCE, WORK, Config, Loops, doubt, doubted, per_iteration
from rows import Row, row
from scheduled import Loop, loops

import kscope
import kscope_numba
from kscope.instrument.recording import Recording
from kscope.lowering import plan

CONFIGS = tuple(config for config in SECTIONS["regions"] if config.loop == "fmas")
PLACES, REPEATS, FMAS = 4, 9, 64
RECORDING = Recording(records=256)
SIGNATURE = void(float32[::1], int64[::1], int32)
Measure = Callable[[Config, int], list[float]]
"""Cycles that a region adds at one place, by run."""
Code = dict[tuple[bool, int], Loop]
"""Machine code by (marked, place)."""


@dataclass(frozen=True)
class Way:
    """How a loop is compiled. language: numba or cuda; lto: with link-time optimization; bits: width of the counter."""

    name: str
    language: str = "numba"
    lto: bool = True
    bits: int = 32


WAYS = (
    Way("Numba, link-time optimization"),
    Way("Numba, without", lto=False),
    Way("Numba, 64-bit counter", bits=64),
    Way("CUDA C++ (nvcc, lowered)", "cuda"),
    Way("CUDA C++, 64-bit counter", "cuda", bits=64),
)


def _assembly(text: str, constraints: str, kind: Any) -> Any:
    """An intrinsic of one volatile line of assembly, so that both compilers get the same instructions."""
    from llvmlite import ir
    from numba.cuda.typing import signature

    def typed(context: Any, *given: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            types = [argument.type for argument in arguments]
            result = ir.FloatType() if kind is float32 else ir.IntType(kind.bitwidth)
            shape = ir.FunctionType(result, types)
            return builder.call(ir.InlineAsm(shape, text, constraints, side_effect=True), arguments)

        return signature(kind, *given), emit

    return typed


@intrinsic
def now(context: Any) -> Any:
    return _assembly("mov.u64 $0, %clock64;", "=l,~{memory}", int64)(context)


@intrinsic
def fma(context: Any, x: Any) -> Any:
    return _assembly("fma.rn.f32 $0, $1, 0fBA83126F, $1;", "=f,f", float32)(context, x)


@intrinsic
def after(context: Any, i: Any) -> Any:
    """The next number, so that the compiler cannot unroll the loop; nvcc has a pragma for it."""
    long = i.bitwidth == 64
    return _assembly(f"add.s{i.bitwidth} $0, $1, 1;", "=l,l" if long else "=r,r", int64 if long else int32)(context, i)


def source(marked: bool, place: int, bits: int) -> str:
    """The loop in Python; `place` FMAs before it move it in the instruction cache.

    Two effects that are not the region's cost are kept out. Counters have 32 bits in both languages, and 64 in separate
    rows: comparing Numba's plain integers of 64 bits takes ten cycles longer, which the plain loop hides among its FMAs
    and the marked one cannot, because no instruction moves across a clock read. The FMAs have one constant: of two, one
    needs a register, which the assembler sets inside some loops, for 4 or 10 cycles an iteration, and before others.
    """
    before = "\n".join("    x = fma(x)" for _ in range(place))
    work = "\n".join(f"{'    ' * (3 if marked else 2)}x = fma(x)" for _ in range(FMAS))
    body = f'        with kscope.region("work"):\n{work}' if marked else work
    return f"""
def loop(out, cycles, iterations):
    x = float32(cuda.threadIdx.x)
{before}
    begin = now()
    i = int{bits}(0)
    while i < iterations:
{body}
        i = after(i)
    end = now()
    if cuda.threadIdx.x == 0:
        cycles[cuda.blockIdx.x] = end - begin
    out[cuda.grid(1)] = x
"""


def function(folder: Path, marked: bool, place: int, bits: int) -> FunctionType:
    path = folder / f"loop{bits}_{int(marked)}_{place}.py"
    path.write_text(source(marked, place, bits))
    words = (cuda, float32, int32, int64, now, fma, after, kscope)
    names = ("cuda", "float32", "int32", "int64", "now", "fma", "after", "kscope")
    space = dict(zip(names, words, strict=True))
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), space)
    made: FunctionType = space["loop"]  # type: ignore[assignment]  # the source defines it
    return made


def kernels_of(folder: Path, way: Way) -> dict[tuple[bool, int], Any]:
    """Numba's loops by (marked, place)."""
    return {
        (marked, place): cuda.jit(function(folder, marked, place, way.bits), lto=way.lto)
        for marked in (False, True)
        for place in range(PLACES)
    }


def beside(folder: Path, way: Way, arch: str) -> Path:
    """The loops in CUDA C++ as a cubin."""
    own = folder / f"cuda{way.bits}"
    own.mkdir(exist_ok=True)
    counter = {32: "int", 64: "long long"}[way.bits]
    options = ["-DPEER=0", "-DKSCOPE_BENCH_MARKS", f"-DCOUNTER={counter}"]
    text = nvcc(SOURCE, own / "loops.ptx", arch, *options).read_text()
    return ptxas(plan.lower(text, RECORDING, frontend="bench").text, own / "loops.cubin", arch)


def numba_loops(kernels: dict[tuple[bool, int], Any]) -> Measure:
    """A function that measures one place of Numba's loop."""
    out, cycles = cuda.device_array(264 * 256, np.float32), cuda.device_array(264, np.int64)

    def added(config: Config, place: int) -> list[float]:
        grid = config.blocks * 132

        def block(marked: bool, iterations: int) -> float:
            kernels[marked, place][grid, config.block](out, cycles, np.int32(iterations))
            return float(np.median(cycles.copy_to_host()[:grid]))

        plain, marked = (per_iteration(partial(block, m), config.iterations, REPEATS) for m in (False, True))
        base = statistics.median(plain)
        return [one - base for one in marked]

    return added


def numba_code(folder: Path, cubins: dict[tuple[bool, int], bytes]) -> Code:
    """Numba's loops in their cubins."""
    path, code = folder / "loop.cubin", {}
    for key, cubin in cubins.items():
        path.write_bytes(cubin)
        (code[key],) = loops(path, WORK["fmas"]).values()
    return code


def cuda_code(cubin: Path) -> Code:
    """nvcc's loops in their cubin."""
    found = loops(cubin, WORK["fmas"])
    kinds = {False: "plain", True: "marked"}
    return {(marked, place): found[f"{kind}_fmas_{place}"] for marked, kind in kinds.items() for place in range(PLACES)}


def added_by(code: Code) -> list[tuple[int, int]]:
    """Instructions and planned cycles that marks add, by place."""
    pairs = [(code[True, place], code[False, place]) for place in range(PLACES)]
    return [(len(one.instructions) - len(base.instructions), one.cycles - base.cycles) for one, base in pairs]


def noted(code: Code) -> dict[str, Any]:
    """Notes of rows about the machine code. doubt: the work is not between the marks."""
    found = (doubt(list(code[True, place].instructions), WORK["fmas"]) for place in range(PLACES))
    doubts = "; ".join(f"place {place}: {text}" for place, text in enumerate(found) if text)
    sass, cycles = added_by(code)[0]
    return {"records": GLOBAL, "sass": sass, "planned": cycles, **({"doubt": doubts} if doubts else {})}


def rows_of(name: str, measure: Measure, code: Callable[[], Code]) -> Iterator[Row]:
    """The best place and the median one, in every configuration. code: called after all runs."""
    measured = {
        config.where: sorted((measure(config, place) for place in range(PLACES)), key=statistics.median)
        for config in CONFIGS
    }
    notes = noted(code())
    for where, places in measured.items():
        yield row(name, where, "cycles", places[0], **notes)
        yield row(name, f"{where}, median place", "cycles", places[len(places) // 2], **notes)


def measure(section: str, options: Any) -> Iterator[Row]:
    """The rows of both languages."""
    kscope_numba.teach()
    for way in (one for one in WAYS if one.language == "numba"):
        kernels = kernels_of(options.folder, way)

        def code(kernels: dict[tuple[bool, int], Any] = kernels) -> Code:
            made = {key: next(iter(kernel.overloads.values())) for key, kernel in kernels.items()}
            return numba_code(options.folder, {key: one._codelibrary.get_cubin().code for key, one in made.items()})

        with kscope.profile(records=RECORDING.records) as recorded:
            rows = list(rows_of(way.name, numba_loops(kernels), code))
        yield from doubted(rows, sum(one.lost for one in recorded.capture.devices))
    device = Device()
    for way in (one for one in WAYS if one.language == "cuda"):
        cubin = beside(options.folder, way, options.arch)
        loaded = Loops(device, cubin)
        try:
            rows = list(rows_of(way.name, loaded.added_at, partial(cuda_code, cubin)))
        finally:
            lost = loaded.close()
        yield from doubted(rows, lost)


def planned(folder: Path, way: Way, arch: str = "sm_90a") -> Code:
    """The machine code of the loops, without a GPU; recording must be enabled."""
    from contract import numba_offline

    if way.language == "cuda":
        return cuda_code(beside(folder, way, arch))
    cubins = {}
    for key, kernel in kernels_of(folder, way).items():
        with numba_offline.device(numba_offline.CC):
            built = numba_offline.built(kernel, SIGNATURE, lto=way.lto)
            cubins[key] = built.get_cubin(cc=numba_offline.CC).code
    return numba_code(folder, cubins)


def dry(section: str, options: Any) -> Iterator[Row]:
    """Without a GPU: the loops are compiled, and their code is checked. Rows are instructions that marks add, and the
    cycles that the assembler plans for them."""
    kscope.enable(records=RECORDING.records)
    for way in WAYS:
        code = planned(options.folder, way, options.arch)
        instructions, cycles = zip(*added_by(code), strict=True)
        yield row(way.name, "B", "instructions", instructions, **noted(code))
        yield row(way.name, "B", "cycles, planned", cycles, **noted(code))
