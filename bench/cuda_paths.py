"""What regions cost in CUDA C++ by the two ways that they are compiled: stores sunk by the pass, and stores in place.

    python bench/cuda_paths.py [--json FILE]        on a GPU, with CuPy and nvcc; less than a minute

The kernels are those of examples/cupy_gemm.py and examples/cupy_pipeline.py. Each is compiled

    plain      by NVRTC and by nvcc, with the macros off
    sunk       by NVRTC, through kscope's pass on the PTX, as CuPy kernels are
    in place   by nvcc, with the header's own stores, as libraries are

and timed resting (prepared, no session) and armed. A number is the median over rounds of the time of a launch in a
row of launches, by CUDA events, in microseconds; within a round every variant has its turn.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import compiler, function

import kscope
import kscope_cuda
from kscope import frontends
from kscope.layout import CTL_SYMBOL

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ROUNDS, ROW = 15, 10
POOL = 2 << 30


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gemm() -> tuple[Any, Callable[[Any], None]]:
    """The example, and how a function of its kernel is launched."""
    it = example("cupy_gemm")
    a, b, c = (cupy.ones((it.SIZE, it.SIZE), np.float32) for _ in range(3))
    grid, block = (it.SIZE // it.TILE,) * 2, (it.TILE // it.EACH,) * 2
    return it, lambda kernel: kernel(grid, block, (a, b, c, np.int32(it.SIZE)))


def pipeline() -> tuple[Any, Callable[[Any], None]]:
    it = example("cupy_pipeline")
    x, total = cupy.ones(it.COUNT, np.float32), cupy.zeros(1, np.float64)
    return it, lambda kernel: kernel((it.BLOCKS,), (it.THREADS,), (x, total, np.int32(it.STEPS)))


def by_nvcc(it: Any, name: str, flags: tuple[str, ...]) -> tuple[Any, bytes]:
    """A function that nvcc compiled, and its cubin."""
    cubin = compiler.compile_using_nvcc(it.SOURCE, (*it.OPTIONS, *flags), filename=f"{name}.cu")
    module = function.Module()
    module.load(cubin)
    return module.get_function(name), cubin


def variants(it: Any, name: str) -> dict[str, Any]:
    """Functions by how they were compiled. Leaves recording enabled."""
    kscope.disable()
    made = {"plain nvrtc": cupy.RawModule(code=it.SOURCE, options=it.OPTIONS).module.get_function(name)}
    made["plain nvcc"], _ = by_nvcc(it, name, ())
    made["in place"], cubin = by_nvcc(it, name, tuple(kscope_cuda.flags(records=512)))
    control = int(made["in place"].module.get_global_var(CTL_SYMBOL))
    frontends.backend("cuda").control_found(control, kscope_cuda.describe(cubin))
    kscope.enable(records=512)
    made["sunk"] = cupy.RawModule(code=it.SOURCE, options=it.OPTIONS).module.get_function(name)
    return made


def measure(launch: Callable[[Any], None], kernel: Any) -> float:
    """Microseconds of a launch in a row of launches."""
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    launch(kernel)
    begin.record()
    for _ in range(ROW):
        launch(kernel)
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(begin, end)) * 1000 / ROW


def compare(name: str, it: Any, launch: Callable[[Any], None]) -> dict[str, Any]:
    """Medians of every variant, resting and armed, and what the recording held."""
    made = variants(it, name)
    times: dict[str, list[float]] = {}
    records = {}
    for _ in range(ROUNDS):
        for what, kernel in made.items():
            times.setdefault(what, []).append(measure(launch, kernel))
    with kscope.profile(records=512, pool=POOL) as prof:
        for kept in range(ROUNDS):
            for what in ("sunk", "in place"):
                prof.reset()
                times.setdefault(f"{what}, armed", []).append(measure(launch, made[what]))
                if kept == 0:
                    records[what] = len(prof.trace) // (ROW + 1)
    kscope.disable()
    medians = {what: round(statistics.median(found), 3) for what, found in times.items()}
    base = {"sunk": medians["plain nvrtc"], "in place": medians["plain nvcc"]}
    added = {
        what: round(100 * (medians[what] / base[what.split(",")[0]] - 1), 2) for what in medians if "plain" not in what
    }
    return {"microseconds": medians, "added_percent": added, "records_of_a_launch": records}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the numbers go as well")
    output = parser.parse_args().json
    if not cupy.is_available():
        raise SystemExit("bench/cuda_paths.py needs an NVIDIA GPU")
    found: dict[str, Any] = {
        "command": "python bench/cuda_paths.py",
        "device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "nvrtc": list(compiler._get_nvrtc_version()),
        "rounds": ROUNDS,
        "launches_of_a_round": ROW,
    }
    for name, prepare in (("gemm", gemm), ("pipeline", pipeline)):
        it, launch = prepare()
        found[name] = compare(name, it, launch)
        print(name)
        for what, time in found[name]["microseconds"].items():
            more = found[name]["added_percent"].get(what)
            print(f"  {what:<16} {time:9.2f} us" + (f"  {more:+6.2f} %" if more is not None else ""))
    if output is not None:
        output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
