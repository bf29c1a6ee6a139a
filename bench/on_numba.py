"""Cycles that one region adds in the loop of a Numba kernel, beside CUDA C++: the same loop, the same options.

Both loops are 64 dependent FMAs; each runs without and with `with kscope.region("work"):` around them, and a row is the
difference of the median block's cycles per iteration. The C++ row is compiled by nvcc and lowered by kscope, as
on_regions.py does it (its B and C); Numba's rows go through its own compiler, with link-time optimization and without.
Loops are measured at four places, as their cost depends on where they fall in the instruction cache: the best place and
the median one are shown.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from driver import Device
from numba import cuda, float32, int32, int64, void
from numba.cuda.extending import intrinsic
from on_regions import SECTIONS, WORK, Config, Loops, Variant, build, checked, disassembled, doubt, loop_of
from rows import Row, row

import kscope
import kscope_numba
from kscope.recording import Recording

CONFIGS = tuple(config for config in SECTIONS["regions"] if config.loop == "fmas")
PLACES, REPEATS, FMAS = 4, 9, 64
WAYS = {"Numba, link-time optimization": True, "Numba, without": False}
"""Whether link-time optimization is on."""
RECORDING = Recording(records=256)
BESIDE = Variant("CUDA C++ (nvcc, lowered)", lowered=RECORDING)
Measure = Callable[[Config, int], list[float]]
"""Cycles that a region adds at one place, of each run."""


def _assembly(text: str, constraints: str, kind: Any) -> Any:
    """An intrinsic of one volatile line of assembly, so that both compilers get the same instructions."""
    from llvmlite import ir
    from numba.cuda.typing import signature

    def typed(context: Any, *given: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            types = [argument.type for argument in arguments]
            result = ir.FloatType() if kind is float32 else ir.IntType(64)
            shape = ir.FunctionType(result, types)
            return builder.call(ir.InlineAsm(shape, text, constraints, side_effect=True), arguments)

        return signature(kind, *given), emit

    return typed


@intrinsic
def now(context: Any) -> Any:
    return _assembly("mov.u64 $0, %clock64;", "=l,~{memory}", int64)(context)


@intrinsic
def fma(context: Any, x: Any) -> Any:
    return _assembly("fma.rn.f32 $0, $1, 0f3F800001, 0f3A83126F;", "=f,f", float32)(context, x)


@intrinsic
def after(context: Any, i: Any) -> Any:
    """The next number, so that the compiler cannot count the iterations and unroll them, which nvcc is told not to."""
    return _assembly("add.s64 $0, $1, 1;", "=l,l", int64)(context, i)


def source(marked: bool, place: int) -> str:
    """The loop in Python; `place` FMAs before it move it in the instruction cache."""
    before = "\n".join("    x = fma(x)" for _ in range(place))
    work = "\n".join(f"{'    ' * (3 if marked else 2)}x = fma(x)" for _ in range(FMAS))
    body = f'        with kscope.region("work"):\n{work}' if marked else work
    return f"""
def loop(out, cycles, iterations):
    x = float32(cuda.threadIdx.x)
{before}
    begin = now()
    i = int64(0)
    while i < iterations:
{body}
        i = after(i)
    end = now()
    if cuda.threadIdx.x == 0:
        cycles[cuda.blockIdx.x] = end - begin
    out[cuda.grid(1)] = x
"""


def function(folder: Path, marked: bool, place: int) -> FunctionType:
    path = folder / f"loop_{int(marked)}_{place}.py"
    path.write_text(source(marked, place))
    space = {"cuda": cuda, "float32": float32, "int64": int64, "now": now, "fma": fma, "after": after, "kscope": kscope}
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), space)
    made: FunctionType = space["loop"]  # type: ignore[assignment]  # the source defines it
    return made


def kernels_of(folder: Path, lto: bool) -> dict[tuple[bool, int], Any]:
    """Numba's loops by (marked, place)."""
    return {
        (marked, place): cuda.jit(function(folder, marked, place), lto=lto)
        for marked in (False, True)
        for place in range(PLACES)
    }


def numba_loops(folder: Path, lto: bool) -> Measure:
    """How a place of Numba's loop is measured."""
    kernels = kernels_of(folder, lto)
    out, cycles = cuda.device_array(264 * 256, np.float32), cuda.device_array(264, np.int64)

    def added(config: Config, place: int) -> list[float]:
        seen: dict[bool, list[float]] = {False: [], True: []}
        grid = config.blocks * 132
        for marked in (False, True):
            for _ in range(REPEATS):
                kernels[marked, place][grid, config.block](out, cycles, np.int32(config.iterations))
                seen[marked].append(float(np.median(cycles.copy_to_host()[:grid])) / config.iterations)
        base = statistics.median(seen[False])
        return [one - base for one in seen[True]]

    return added


def rows_of(name: str, measure: Measure) -> Iterator[Row]:
    """The best place and the median one, in every configuration."""
    for config in CONFIGS:
        places = sorted((measure(config, place) for place in range(PLACES)), key=statistics.median)
        yield row(name, config.where, "cycles", places[0])
        yield row(name, f"{config.where}, median place", "cycles", places[len(places) // 2])


def measure(section: str, options: Any) -> Iterator[Row]:
    """The rows of both of Numba's ways, and of CUDA C++."""
    kscope_numba.teach()
    for name, lto in WAYS.items():
        with kscope.profile(records=RECORDING.records):
            yield from rows_of(name, numba_loops(options.folder, lto))
    loops = Loops(Device(), build(BESIDE, options.folder, options.arch, options.headers))
    try:
        yield from rows_of(BESIDE.name, loops.added_at)
    finally:
        loops.close()


def dry(section: str, options: Any) -> Iterator[Row]:
    """Without a GPU: Numba's loops are compiled, and their code is checked. Rows are instructions that marks add."""
    from contract import numba_offline

    kscope.enable(records=RECORDING.records)
    signature, cc = void(float32[::1], int64[::1], int32), numba_offline.CC
    for name, lto in WAYS.items():
        code = {}
        for (marked, place), kernel in kernels_of(options.folder, lto).items():
            cubin = options.folder / f"loop_{int(marked)}_{place}.cubin"
            with numba_offline.device(cc):
                cubin.write_bytes(numba_offline.built(kernel, signature, cc, lto=lto).get_cubin(cc=cc).code)
            (found,) = disassembled(cubin).values()
            code[marked, place] = loop_of(found, WORK["fmas"])
        doubts = {place: text for place in range(PLACES) if (text := doubt(code[True, place], WORK["fmas"]))}
        said = "; ".join(f"place {place}: {text}" for place, text in doubts.items())
        added = [len(code[True, place]) - len(code[False, place]) for place in range(PLACES)]
        yield row(name, "B", "instructions", added, **({"doubt": said} if said else {}))
    beside, said = checked(build(BESIDE, options.folder, options.arch, options.headers), CONFIGS)["fmas"]
    yield row(BESIDE.name, "B", "instructions", [beside], **({"doubt": said} if said else {}))
