"""Cycles that one region adds in the loop of a Numba kernel, beside CUDA C++: the same loop, the same options.

    python bench/numba_cost.py [--json FILE]          needs a GPU, numba-cuda, nvcc and ptxas; seconds

Both loops are 64 dependent FMAs; each runs without and with `with kscope.region("work"):` around them, and the table
shows the difference of the median block's cycles per iteration. The C++ row is compiled by nvcc and lowered by
kscope.plan as bench/region_cost.py does it (its configuration B and C); Numba's rows go through its own compiler, with
link-time optimization and without. Loops are measured at four places, as their cost depends on where they fall in the
instruction cache: the best place and the median one are shown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import region_cost
from numba import cuda, float32, int64
from numba.cuda.extending import intrinsic

import kscope
import kscope_numba
from kscope import plan
from kscope.recording import Recording

CONFIGS = tuple(config for config in region_cost.CONFIGS if config.work)
PLACES, REPEATS, WORK = 4, 9, 64
RECORDING = Recording(records=256)


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
def now(context):
    return _assembly("mov.u64 $0, %clock64;", "=l,~{memory}", int64)(context)


@intrinsic
def fma(context, x):
    return _assembly("fma.rn.f32 $0, $1, 0f3F800001, 0f3A83126F;", "=f,f", float32)(context, x)


def source(marked: bool, place: int) -> str:
    """The loop in Python; `place` FMAs before it move it in the instruction cache."""
    before = "\n".join("    x = fma(x)" for _ in range(place))
    work = "\n".join(f"{'    ' * (3 if marked else 2)}x = fma(x)" for _ in range(WORK))
    body = f'        with kscope.region("work"):\n{work}' if marked else work
    return f"""
def loop(out, cycles, iterations):
    x = float32(cuda.threadIdx.x)
{before}
    begin = now()
    for i in range(iterations):
{body}
    end = now()
    if cuda.threadIdx.x == 0:
        cycles[cuda.blockIdx.x] = end - begin
    out[cuda.grid(1)] = x
"""


def function(folder: Path, marked: bool, place: int) -> FunctionType:
    path = folder / f"loop_{int(marked)}_{place}.py"
    path.write_text(source(marked, place))
    space = {"cuda": cuda, "float32": float32, "now": now, "fma": fma, "kscope": kscope}
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), space)
    made: FunctionType = space["loop"]  # type: ignore[assignment]  # the source defines it
    return made


def numba_row(folder: Path, lto: bool) -> dict[str, Any]:
    """Cycles added, by configuration."""
    kernels = {
        (marked, place): cuda.jit(function(folder, marked, place), lto=lto)
        for marked in (False, True)
        for place in range(PLACES)
    }
    out, cycles = cuda.device_array(264 * 256, np.float32), cuda.device_array(264, np.int64)

    def median(kernel: Any, config: Any) -> float:
        seen = []
        for _ in range(REPEATS):
            kernel[config.grid, config.block](out, cycles, np.int32(config.iterations))
            seen.append(float(np.median(cycles.copy_to_host()[: config.grid])))
        return statistics.median(seen) / config.iterations

    with kscope.profile(records=RECORDING.records):
        return _added(
            lambda config, place: median(kernels[True, place], config) - median(kernels[False, place], config)
        )


def cpp_row(folder: Path, arch: str) -> dict[str, Any]:
    """The same of CUDA C++."""
    device = region_cost.Device()
    lowered = plan.lower(region_cost.compiled(region_cost.SOURCE, folder, arch), RECORDING, frontend="bench")
    module = device.load(region_cost.assembled(lowered.text, folder, arch))
    backend = kscope.frontends.backend("cuda")
    with kscope.profile(records=RECORDING.records):
        backend.module_loaded(int(module))  # type: ignore[call-overload]  # a handle
        return _added(
            lambda config, place: (
                device.median_cycles(module, f"marked{WORK}_{place}", config)
                - device.median_cycles(module, f"plain{WORK}_{place}", config)
            )
        )


def _added(measure: Callable[[Any, int], float]) -> dict[str, Any]:
    row = {}
    for config in CONFIGS:
        found = sorted(measure(config, place) for place in range(PLACES))
        row[config.name] = [round(found[0], 1), round(statistics.median(found), 1)]
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    options = parser.parse_args()
    kscope_numba.teach()
    name = str(cuda.get_current_device().name.decode())
    with tempfile.TemporaryDirectory() as folder:
        rows = {
            "CUDA C++ (nvcc, lowered)": cpp_row(Path(folder), options.arch),
            "Numba, link-time optimization": numba_row(Path(folder), lto=True),
            "Numba, without": numba_row(Path(folder), lto=False),
        }
    print(f"{name}: cycles added per region (enter + exit), {WORK} FMAs between")
    print(f"{'best place, median place':32}" + "".join(f"{config.name:>16}" for config in CONFIGS))
    for what, row in rows.items():
        print(f"{what:32}" + "".join(f"{row[config.name][0]:>9}{row[config.name][1]:>7}" for config in CONFIGS))
    if options.json is not None:
        options.json.write_text(json.dumps({"device": name, "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
