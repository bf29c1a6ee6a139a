"""Cycles that one region adds in CUDA C++: the shipped header, and what other profilers execute, in the same loop.

    python bench/cuda_header_cost.py [--flashinfer FOLDER] [--json FILE]      needs a GPU, nvcc; under a minute

Configurations, loops and places are those of region_cost.py (cuda_header_cost.cu has the loops): A nothing between the
marks, B 64 dependent FMAs, C the same with 16 warps per SM; the best and the median of eight places. The header is
measured in both of its modes: in place, as nvcc compiles it, and as marks that kscope's pass lowers. --flashinfer
names a folder with profiler.cuh of the package flashinfer-python (flashinfer/data/include/flashinfer): it is
compiled as it ships. The other peers' instructions are restated in cuda_header_cost.cu.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from region_cost import CONFIGS, PLACES, Device, assembled, loop_sass

import kscope_cuda
from kscope import frontends, plan
from kscope.layout import CTL_SYMBOL
from kscope.recording import Clock, Fill, Recording
from kscope.sampling import Sampling
from kscope.strategies import Lane0Warp0, Strategy

SOURCE = Path(__file__).with_suffix(".cu")
GLOBAL, SHARED = "global memory", "shared memory"


@dataclass(frozen=True)
class Variant:
    """One profiler. peer: its number in the source; lowered: marks that the pass lowers, else in place."""

    name: str
    peer: int = 0
    where: str = GLOBAL
    strategy: Strategy | None = None
    clock: Clock = "cycles"
    fill: Fill = "ring"
    lowered: bool = False


VARIANTS = (
    Variant("kscope.cuh, in place"),
    Variant("kscope.cuh, marks lowered", lowered=True),
    Variant("kscope.cuh, in place, stop", fill="stop"),
    Variant("kscope.cuh, in place, globaltimer", clock="globaltimer"),
    Variant("kscope.cuh, in place, Lane0Warp0", strategy=Lane0Warp0()),
    Variant("flashinfer profiler.cuh, as shipped", 11),
    Variant("Proton global clock32, restated", 3),
    Variant("Proton global clock64, restated", 4),
    Variant("nuggets compact, restated", 7),
    Variant("nuggets static, restated", 8),
    Variant("nuggets atomic, restated", 9),
    Variant("cutedsl-trace, restated", 10),
    Variant("Proton shared clock32, restated", 1, SHARED),
    Variant("Proton shared clock64, restated", 2, SHARED),
    Variant("Mosaic GPU, restated", 5, SHARED),
    Variant("IKET, restated", 6, SHARED),
)


def build(variant: Variant, folder: Path, arch: str, flashinfer: Path | None) -> Path:
    """The variant's loops as a cubin."""
    own = folder / variant.name.replace(" ", "-")
    own.mkdir()
    out = own / ("loops.ptx" if variant.lowered else "loops.cubin")
    command = ["nvcc", "-O3", "-std=c++17", f"-arch={arch}", f"-DPEER={variant.peer}", f"-{out.suffix[1:]}"]
    command += kscope_cuda.flags(strategy=variant.strategy, fill=variant.fill, clock=variant.clock)
    command += ["-DKSCOPE_MARKS=1"] * variant.lowered + [f"-I{flashinfer}"] * (flashinfer is not None)
    subprocess.run([*command, str(SOURCE), "-o", str(out)], check=True)
    if not variant.lowered:
        return out
    return assembled(plan.lower(out.read_text(), Recording(records=256), frontend="bench").text, own, arch)


def measured(device: Device, cubin: Path) -> dict[str, list[float]]:
    """Per configuration: cycles added at the best and at the median place."""
    module = device.load(cubin)
    found, address, _ = device.driver.cuModuleGetGlobal(module, CTL_SYMBOL.encode())
    backend = frontends.backend("cuda")
    if int(found) == 0:
        backend.control_found(int(address), kscope_cuda.describe(cubin.read_bytes()))
        backend.arm(1, Sampling(), None)
    row = {}
    for config in CONFIGS:
        added = sorted(
            device.median_cycles(module, f"marked{config.work}_{place}", config)
            - device.median_cycles(module, f"plain{config.work}_{place}", config)
            for place in range(PLACES)
        )
        row[config.name] = [round(added[0], 1), round(statistics.median(added), 1)]
    if int(found) == 0:
        backend.disarm()
        backend.collect(wait=True)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flashinfer", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    options = parser.parse_args()
    chosen = [one for one in VARIANTS if one.peer != 11 or options.flashinfer is not None]
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(8) as pool:
        folder = Path(name)
        cubins = list(pool.map(lambda one: build(one, folder, options.arch, options.flashinfer), chosen))
        device = Device()
        rows = [
            {
                "variant": one.name,
                "where": one.where,
                "sass": len(loop_sass(cubin, "marked0_0")),
                **measured(device, cubin),
            }
            for one, cubin in zip(chosen, cubins, strict=True)
        ]
    print(f"{device.name}: cycles added per region (begin + end); best place, median place")
    print(f"{'':36} {'A':>13} {'B':>13} {'C':>13} {'SASS':>5}  records in")
    for row in rows:
        cells = "".join(f" {row[config][0]:>6} {row[config][1]:>6}" for config in "ABC")
        print(f"{row['variant']:36}{cells} {row['sass']:>5}  {row['where']}")
    if options.json is not None:
        options.json.write_text(json.dumps({"device": device.name, "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
