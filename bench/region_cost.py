"""Cycles that one region adds, in the loop of a CUDA C++ kernel, with the text that kscope/ptx emits.

    python bench/region_cost.py [--json FILE]          needs a GPU, nvcc and ptxas

Each configuration runs the same loop twice in one process, without and with marks; the table shows the
difference of the median block's cycles per iteration. A: 132 blocks of 128 threads, nothing between the
marks. B: the same, 64 dependent FMAs between them. C: 264 blocks of 256 threads, 64 FMAs, so 16 warps
per SM that all record. A loop this short costs up to 12 cycles more or less depending on where it falls
in the instruction cache, so every loop is measured at eight places, 16 bytes apart: the table shows the
best place and the median one. The SASS of the loop is counted, its own three instructions included.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kscope import frontends, plan
from kscope.recording import Recording
from kscope.sampling import Sampling
from kscope.strategies import AllThreads, Elected, Lane0Warp0

REPEATS, PLACES = 9, 8
SOURCE = r"""
#define MARK(text) asm volatile("//kscope " text ::: "memory")
__device__ __forceinline__ long long now() {
  long long t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t) :: "memory");
  return t;
}
template <int WORK> __device__ __forceinline__ float work(float x) {
#pragma unroll
  for (int i = 0; i < WORK; i++) asm volatile("fma.rn.f32 %0, %0, 0f3F800001, 0f3A83126F;" : "+f"(x));
  return x;
}
#define LOOP_AT(name, PLACE, WORK, BEFORE, AFTER) \
extern "C" __global__ void name##_##PLACE(float* out, long long* cycles, int iterations) { \
  float x = work<PLACE>(threadIdx.x); long long begin = now(); \
  _Pragma("unroll 1") for (int i = 0; i < iterations; i++) { BEFORE; x = work<WORK>(x); AFTER; } \
  long long end = now(); \
  if (threadIdx.x == 0) cycles[blockIdx.x] = end - begin; \
  out[blockIdx.x * blockDim.x + threadIdx.x] = x; }
#define LOOP(name, WORK, BEFORE, AFTER) \
  LOOP_AT(name, 0, WORK, BEFORE, AFTER) LOOP_AT(name, 1, WORK, BEFORE, AFTER) LOOP_AT(name, 2, WORK, BEFORE, AFTER) \
  LOOP_AT(name, 3, WORK, BEFORE, AFTER) LOOP_AT(name, 4, WORK, BEFORE, AFTER) LOOP_AT(name, 5, WORK, BEFORE, AFTER) \
  LOOP_AT(name, 6, WORK, BEFORE, AFTER) LOOP_AT(name, 7, WORK, BEFORE, AFTER)
LOOP(plain0, 0, , ) LOOP(plain64, 64, , )
LOOP(marked0, 0, MARK("enter work - - with"), MARK("exit work - - with"))
LOOP(marked64, 64, MARK("enter work - - with"), MARK("exit work - - with"))
"""


@dataclass(frozen=True)
class Config:
    name: str
    grid: int
    block: int
    work: int
    iterations: int


CONFIGS = (Config("A", 132, 128, 0, 2000), Config("B", 132, 128, 64, 2000), Config("C", 264, 256, 64, 1000))
VARIANTS = {
    "Elected cycles ring": Recording(records=256),
    "Elected cycles ring, in place": Recording(records=256, pending=0),
    "Elected cycles stop": Recording(records=256, fill="stop"),
    "Elected globaltimer ring": Recording(records=256, clock="globaltimer"),
    "Lane0Warp0 cycles ring": Recording(records=256, strategy=Lane0Warp0()),
    "AllThreads cycles ring": Recording(records=16, strategy=AllThreads()),
}
assert VARIANTS["Elected cycles ring"].strategy == Elected()


def compiled(source: str, folder: Path, arch: str) -> str:
    """The loops as PTX, marks still comments."""
    (folder / "loop.cu").write_text(source)
    subprocess.run(["nvcc", "-O3", f"-arch={arch}", "-ptx", "-o", folder / "loop.ptx", folder / "loop.cu"], check=True)
    return (folder / "loop.ptx").read_text()


def assembled(text: str, folder: Path, arch: str) -> Path:
    (folder / "lowered.ptx").write_text(text)
    out = folder / "lowered.cubin"
    subprocess.run(["ptxas", f"-arch={arch}", "-o", out, folder / "lowered.ptx"], check=True)
    return out


def loop_sass(cubin: Path, kernel: str) -> list[str]:
    """Instructions of the loop: from the first clock read of the longest backward branch to that branch."""
    text = subprocess.run(
        ["cuobjdump", "-sass", "-fun", kernel, cubin], check=True, capture_output=True, text=True
    ).stdout
    lines = [(int(at, 16), op.strip()) for at, op in re.findall(r"/\*([0-9a-f]{4,})\*/\s+([^;]+);", text)]
    best: list[str] = []
    for at, op in lines:
        target = re.search(r"BRA\S*\s+(?:`\S+|0x([0-9a-f]+))", op)
        if target and target[1] and int(target[1], 16) < at:
            body = [o for a, o in lines if int(target[1], 16) <= a <= at]
            if any("CLOCK" in o or "GLOBALTIMER" in o for o in body) and (not best or len(body) < len(best)):
                best = body
    return best


class Device:
    """One GPU through cuda-bindings: load, launch, read back."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.driver = driver
        self.check(driver.cuInit(0))
        device = self.check(driver.cuDeviceGet(0))
        self.check(driver.cuCtxSetCurrent(self.check(driver.cuDevicePrimaryCtxRetain(device))))
        self.name = self.check(driver.cuDeviceGetName(128, device)).split(b"\0")[0].decode()
        self.out = self.check(driver.cuMemAlloc(264 * 256 * 4))
        self.cycles = self.check(driver.cuMemAlloc(264 * 8))

    @staticmethod
    def check(result: tuple[object, ...]) -> object:
        if int(result[0]) != 0:
            raise RuntimeError(f"driver error {result[0]}")
        return result[1] if len(result) > 1 else None

    def load(self, cubin: Path) -> object:
        return self.check(self.driver.cuModuleLoadData(cubin.read_bytes()))

    def median_cycles(self, module: object, kernel: str, config: Config) -> float:
        """Median over blocks and repeats of the loop's cycles per iteration."""
        function = self.check(self.driver.cuModuleGetFunction(module, kernel.encode()))
        args = [
            np.array([int(self.out)], "u8"),
            np.array([int(self.cycles)], "u8"),
            np.array([config.iterations], "i4"),
        ]
        pointers = np.array([a.ctypes.data for a in args], "u8")
        host, seen = np.zeros(config.grid, "i8"), []
        for _ in range(REPEATS):
            self.check(
                self.driver.cuLaunchKernel(
                    function, config.grid, 1, 1, config.block, 1, 1, 0, 0, pointers.ctypes.data, 0
                )
            )
            self.check(self.driver.cuCtxSynchronize())
            self.check(self.driver.cuMemcpyDtoH(host.ctypes.data, self.cycles, host.nbytes))
            seen.append(float(np.median(host)))
        return statistics.median(seen) / config.iterations


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    device = Device()
    backend = frontends.backend("cuda")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = compiled(SOURCE, folder, options.arch)
        for variant, recording in VARIANTS.items():
            lowered = plan.lower(source, replace(recording), frontend="bench")
            cubin = assembled(lowered.text, folder, options.arch)
            sass = loop_sass(cubin, "marked0_0")
            base = loop_sass(cubin, "plain0_0")
            module = device.load(cubin)
            backend.module_loaded(int(module))
            backend.arm(1, Sampling(), None)
            row: dict[str, object] = {"variant": variant, "sass": len(sass) - len(base)}
            for config in CONFIGS:
                added = sorted(
                    device.median_cycles(module, f"marked{config.work}_{place}", config)
                    - device.median_cycles(module, f"plain{config.work}_{place}", config)
                    for place in range(PLACES)
                )
                row[config.name] = [round(added[0], 1), round(statistics.median(added), 1)]
            backend.disarm()
            backend.collect(wait=True)
            rows.append(row)
            if options.json is None and variant == "Elected cycles ring":
                print("\n".join(sass))
    print(f"{device.name}: cycles added per region (enter + exit)")
    print(f"{'best place, median place':34} {'A':>13} {'B':>13} {'C':>13} {'SASS':>6}")
    for row in rows:
        cells = "".join(f" {row[name][0]:>6} {row[name][1]:>6}" for name in "ABC")  # type: ignore[index]  # pairs
        print(f"{row['variant']:34}{cells} {row['sass']:>6}")
    if options.json is not None:
        options.json.write_text(json.dumps({"device": device.name, "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
