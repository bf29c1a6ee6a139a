"""Cost of regions in CUDA C++, compiled in two ways: stores sunk by the pass, and stores in place.

The kernels are those of examples/cupy_gemm.py and examples/cupy_pipeline.py. Each is compiled

    plain      by NVRTC and by nvcc, with the macros off
    sunk       by NVRTC, through kscope's pass on the PTX, as CuPy kernels are
    in place   by nvcc, with the header's own stores, as libraries are

and timed at rest (prepared, no session) and armed. CUDA events time a launch within a row of launches; variants take
turns within a round.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import cupy
import cupy_gemm
import cupy_pipeline
import numpy as np
from cupy.cuda import compiler, function
from rows import Row, row

import kscope
import kscope_cuda
from kscope.capture.wire import CTL_SYMBOL
from kscope.instrument import registry

ROUNDS, ROW = 15, 10
POOL = 2 << 30


def gemm() -> tuple[Any, Callable[[Any], None]]:
    """The example, and how a function of its kernel is launched."""
    it = cupy_gemm
    a, b, c = (cupy.ones((it.SIZE, it.SIZE), np.float32) for _ in range(3))
    grid, block = (it.SIZE // it.TILE,) * 2, (it.TILE // it.EACH,) * 2
    return it, lambda kernel: kernel(grid, block, (a, b, c, np.int32(it.SIZE)))


def pipeline() -> tuple[Any, Callable[[Any], None]]:
    it = cupy_pipeline
    x, total = cupy.ones(it.COUNT, np.float32), cupy.zeros(1, np.float64)
    return it, lambda kernel: kernel((it.BLOCKS,), (it.THREADS,), (x, total, np.int32(it.STEPS)))


def by_nvcc(it: Any, name: str, flags: tuple[str, ...]) -> tuple[Any, bytes]:
    """A function that nvcc compiled, and its cubin."""
    cubin = compiler.compile_using_nvcc(it.SOURCE, (*it.OPTIONS, *flags), filename=f"{name}.cu")
    module = function.Module()
    module.load(cubin)
    return module.get_function(name), cubin


def variants(it: Any, name: str) -> dict[str, Any]:
    """Functions by compilation: plain, sunk, in place. Leaves recording enabled."""
    kscope.disable()
    made = {"plain nvrtc": cupy.RawModule(code=it.SOURCE, options=it.OPTIONS).module.get_function(name)}
    made["plain nvcc"], _ = by_nvcc(it, name, ())
    made["in place"], cubin = by_nvcc(it, name, tuple(kscope_cuda.flags(records=512)))
    control = int(made["in place"].module.get_global_var(CTL_SYMBOL))
    registry.backend("cuda").arm_control_block(control, kscope_cuda.describe(cubin))
    kscope.enable(records=512)
    made["sunk"] = cupy.RawModule(code=it.SOURCE, options=it.OPTIONS).module.get_function(name)
    return made


def timed(launch: Callable[[Any], None], kernel: Any) -> float:
    """Microseconds per launch within a row of launches."""
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    launch(kernel)
    begin.record()
    for _ in range(ROW):
        launch(kernel)
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(begin, end)) * 1000 / ROW


def times(
    name: str, it: Any, launch: Callable[[Any], None], rounds: int
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Microseconds of every variant, resting and armed, and the records of a launch."""
    made = variants(it, name)
    found: dict[str, list[float]] = {}
    records = {}
    for _ in range(rounds):
        for what, kernel in made.items():
            found.setdefault(what, []).append(timed(launch, kernel))
    with kscope.profile(records=512, pool=POOL) as prof:
        for kept in range(rounds):
            for what in ("sunk", "in place"):
                prof.reset()
                found.setdefault(f"{what}, armed", []).append(timed(launch, made[what]))
                if kept == 0:
                    records[what] = len(prof.trace) // (ROW + 1)
    kscope.disable()
    return found, records


def measure(section: str, options: Any) -> Iterator[Row]:
    """Per kernel and variant: the time, and the time added to the plain kernel of the same compiler."""
    for name, prepare in (("gemm", gemm), ("pipeline", pipeline)):
        it, launch = prepare()
        found, records = times(name, it, launch, 5 if options.quick else ROUNDS)
        base = {
            "sunk": statistics.median(found["plain nvrtc"]),
            "in place": statistics.median(found["plain nvcc"]),
        }
        for what, seen in found.items():
            way = what.partition(",")[0]
            yield row(name, what, "us", seen, **({"records": records[way]} if way in records else {}))
            if way in base:
                yield row(f"{name}, added", what, "%", [100 * (one / base[way] - 1) for one in seen])
