"""Options for nvcc, for a build that records in place."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Literal

from kscope import cuda_include
from kscope.errors import UnsupportedError
from kscope.instrument.recording import Clock, Fill, Recording
from kscope.marks.strategies import AllThreads, Elected, Lane0Warp0, Strategy, TargetWarp, strategy_of


def flags(
    *,
    strategy: Strategy | str | None = None,
    records: int | Literal["auto"] = "auto",
    fill: Fill = "ring",
    clock: Clock = "cycles",
    open: bool = False,
) -> list[str]:
    """Options for nvcc, or for a build tool that calls it (such as torch's ``extra_cuda_cflags``).

    They set the header's folder and how its macros record: the options of ``kscope.profile()`` have no effect on code
    that nvcc compiled. None needs shell quotes. -DKSCOPE_TAG changes with the header, so that build tools that do not
    track headers build again.

    Args:
        strategy: of kernels that name none; a strategy or its text; None is ``Elected()``.
        records: capacity of a slab; "auto" is 256.
        fill: "ring" keeps a slab's newest records, "stop" its oldest.
        clock: "cycles" or "globaltimer".
        open: every region is stored when a warp enters it, as ``KSCOPE_REGION_OPEN`` is: for kernels that hang.

    Raises:
        UsageError: an option has no such value.
        UnsupportedError: the strategy needs kscope's own lowering.
    """
    strategy = strategy_of(strategy or Elected())
    recording, default = Recording(strategy=strategy, records=records, fill=fill, clock=clock), Recording()
    header = (Path(cuda_include()) / "kscope.cuh").read_bytes()
    warps = strategy.warps if isinstance(strategy, TargetWarp) else ()
    defines = {
        "WARPS": (f"0x{sum(1 << warp for warp in warps):x}", bool(warps)),
        "STRATEGY": (f"kscope::{cpp_strategy(strategy)}", not warps and strategy != default.strategy),
        "RECORDS": (recording.records, recording.records != default.records),
        "FILL": (recording.fill, recording.fill != default.fill),
        "CLOCK": (recording.clock, recording.clock != default.clock),
        "OPEN": (1, open),
    }
    return [
        f"-I{cuda_include()}",
        "-DKSCOPE=1",
        *(f"-DKSCOPE_{name}={value}" for name, (value, differs) in defines.items() if differs),
        f"-DKSCOPE_TAG=0x{sha256(header).hexdigest()[:16]}",
    ]


def cpp_strategy(strategy: Strategy) -> str:
    """The strategy's C++ type. Raises UnsupportedError for one that cannot record in place."""
    if strategy == Elected(any_lane=True):
        raise UnsupportedError(
            "Elected(any_lane=True) needs kscope's own lowering (CuPy, cuda.core, NVRTC), because it reserves a buffer "
            "in the middle of a kernel; nvcc builds record with Elected() or AllThreads()"
        )
    if isinstance(strategy, TargetWarp):
        return f"TargetWarp<{','.join(map(str, strategy.warps))}>"
    types: dict[Strategy, str] = {Lane0Warp0(): "Lane0Warp0", Elected(): "Elected", AllThreads(): "AllThreads"}
    return types[strategy]
