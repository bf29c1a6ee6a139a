"""What nvcc is told of kscope: options for a build that records in place."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Literal

from kscope import cuda_include
from kscope.errors import UnsupportedError
from kscope.instrument.recording import Clock, Fill, Recording
from kscope.marks.strategies import AllThreads, Elected, Lane0Warp0, Strategy, TargetWarp


def flags(
    *,
    strategy: Strategy | None = None,
    records: int | Literal["auto"] = "auto",
    fill: Fill = "ring",
    clock: Clock = "cycles",
) -> list[str]:
    """Options for nvcc, in code that calls it or a build tool (torch's ``extra_cuda_cflags``, say): where the
    header is, that its macros record, and how. The options of kscope.profile() do not reach what nvcc built. None of
    them needs a shell's quotes, which build tools leave out.

    strategy: of the kernels that name none; None = Elected(). records: capacity of a slab; "auto" is 256
    here. -DKSCOPE_TAG differs with every version of the header: build tools that do not look into
    headers build again. Raises UsageError for an option that means nothing.
    """
    wanted, plain = Recording(strategy=strategy or Elected(), records=records, fill=fill, clock=clock), Recording()
    header = (Path(cuda_include()) / "kscope.cuh").read_bytes()
    warps = wanted.strategy.warps if isinstance(wanted.strategy, TargetWarp) else ()
    chosen = {
        "WARPS": (f"0x{sum(1 << warp for warp in warps):x}", bool(warps)),
        "STRATEGY": (f"kscope::{spelling(wanted.strategy)}", not warps and wanted.strategy != plain.strategy),
        "RECORDS": (wanted.records, wanted.records != plain.records),
        "FILL": (wanted.fill, wanted.fill != plain.fill),
        "CLOCK": (wanted.clock, wanted.clock != plain.clock),
    }
    return [
        f"-I{cuda_include()}",
        "-DKSCOPE=1",
        *(f"-DKSCOPE_{name}={value}" for name, (value, differs) in chosen.items() if differs),
        f"-DKSCOPE_TAG=0x{sha256(header).hexdigest()[:16]}",
    ]


def spelling(strategy: Strategy) -> str:
    """The strategy as a C++ type. Raises UnsupportedError for one that records in place cannot have."""
    if strategy == Elected(any_lane=True):
        raise UnsupportedError(
            "Elected(any_lane=True) claims in the midst of a kernel, which only kscope's own lowering can (CuPy, "
            "cuda.core, NVRTC); an nvcc build records with Elected(), or AllThreads()"
        )
    if isinstance(strategy, TargetWarp):
        return f"TargetWarp<{','.join(map(str, strategy.warps))}>"
    words: dict[Strategy, str] = {Lane0Warp0(): "Lane0Warp0", Elected(): "Elected", AllThreads(): "AllThreads"}
    return words[strategy]
