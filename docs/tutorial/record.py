"""Records the tutorial's captures, slow.kscope and fast.kscope, on a GPU; then `make pictures` renews the page.

    python docs/tutorial/record.py [FOLDER]               needs an NVIDIA GPU, PyTorch and Triton 3.6 or later
    python docs/tutorial/record.py --simulate [FOLDER]    in the simulator; the page states it

One thread of each block records: three launches of 256 blocks, 54,000 records, 500 KB. A kernel is recorded again
while its trace has problems, such as SM clocks that changed as the GPU woke up.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import attention  # noqa: E402  # in this script's folder, which need not be the current one

import kscope  # noqa: E402
from kscope.capture.capture import Capture  # noqa: E402

TILES = sum((block + 1) * 2 for block in range(16)) * 16
"""Tiles of keys of all blocks of all heads: four regions each, and two regions a block."""
TRIES, WARM_UP = 40, 20
"""Recordings of a kernel on a GPU at most, and runs before each: a GPU that wakes up changes its clocks."""


def portable(capture: Capture) -> Capture:
    """The same capture without this machine's name, its process and its folders."""

    def line(where: str | None) -> str | None:
        return where and where.replace(f"{HERE}/", "")

    modules = tuple(
        replace(module, regions=tuple(replace(region, where=line(region.where)) for region in module.regions))
        for module in capture.modules
    )
    host = {name: value for name, value in capture.host.items() if name not in ("hostname", "pid", "command")}
    return replace(capture, modules=modules, host=host)


def record(folder: Path, simulate: bool) -> None:
    """Write both captures; refuse a lossy or unexpected one."""
    if not simulate and not attention.has_gpu():
        raise SystemExit("no GPU, or no PyTorch or Triton: nothing recorded; --simulate uses the simulator")
    for name, heavy_first in (("slow", False), ("fast", True)):
        path = folder / f"{name}.kscope"
        if simulate:
            from model import simulate as launch
        else:
            launch = attention.on_gpu
        for _ in range(1 if simulate else TRIES):
            with kscope.profile(strategy="lane0-warp0") as prof:
                if not simulate:
                    with prof.paused():
                        for _ in range(WARM_UP):
                            launch(heavy_first)
                launch(heavy_first)
            if not prof.trace.problems:
                break
        expected = attention.LAUNCHES * (4 * TILES + 2 * 256)
        if len(prof.trace) != expected:
            raise SystemExit(f"{path}: {len(prof.trace)} records, expected {expected}\n{prof.trace.summary()}")
        portable(prof.capture).save(path)
        print(f"{path}: {path.stat().st_size} bytes\n{prof.trace.summary()}\n")


if __name__ == "__main__":
    words = sys.argv[1:]
    places = [Path(word) for word in words if word != "--simulate"]
    record(places[0] if places else HERE, "--simulate" in words)
