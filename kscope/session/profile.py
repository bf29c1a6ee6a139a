"""profile(): the options of a session."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, SupportsIndex

from ..capture.blocks import BlockSelection
from ..instrument.options import Options
from ..instrument.recording import Clock, Fill, Placement, Survive
from ..marks.strategies import Strategy
from . import capture_path
from .output_locks import claim
from .outputs import Finish, Paths, Transforms
from .session import Session
from .torch_profiler import TorchProfiler


def profile(
    path: str | os.PathLike[str] | None = None,
    *,
    strategy: Strategy | str | None = None,
    records: int | Literal["auto"] | None = None,
    fill: Fill | None = None,
    clock: Clock | None = None,
    placement: Placement | None = None,
    survive: Survive | None = None,
    block: BlockSelection | None = None,
    warp: SupportsIndex | Iterable[SupportsIndex] | None = None,
    sm: SupportsIndex | Iterable[SupportsIndex] | None = None,
    pool: int | None = None,
    kernel: str | Sequence[str] | None = None,
    auto: str | Sequence[str] | bool | None = None,
    mark: str | Sequence[str] | Mapping[str, str] | None = None,
    stalls: bool | None = None,
    period: int | None = None,
    launch_stacks: bool | None = None,
    then: Transforms | None = None,
    export: Paths | None = None,
    torch: Any = None,
    enabled: bool = True,
) -> Session:
    """Record the kernels launched in the body of ``with kscope.profile(...) as prof:``.

    Options left at None keep what ``kscope.enable()`` set, else their defaults.

    Args:
        path: file for the capture, name.kscope; checked before anything runs. %r is the rank in a job, %p the process
            id. If the body raises, the capture is saved as name.failed.kscope, and an existing `path` is not changed.
        strategy: which threads record: "elected" (lane 0 of every warp, the default), "elected-any", "lane0-warp0",
            "warps:0,4" or "all"; or Elected(), Lane0Warp0(), TargetWarp(0, 4), AllThreads().
        records: records per warp and launch, rounded up to a power of two. "auto" (default) is exact for kernels
            without a region in a loop; for others it is 256 at first, and then follows the records of earlier launches
            (in the simulator, and where kscope does not see the PTX: 256).
        fill: "ring" (default) keeps the newest records, "stop" the oldest; both count all.
        clock: "cycles" (default), or "globaltimer" for ns in steps of 32 ns on an H200.
        placement: "fence" (default) keeps instructions in the order of the marks. "schedule" assembles the kernel
            without marks and inserts the recording into its machine code, whose instructions keep their order. It is
            experimental, for sm_90, and unproved for sm_80, sm_86 and sm_89; other kernels are recorded as with
            "fence", and a problem gives the reason.
        survive: keep the records when the program dies: `kscope watch` and `kscope summary` read them while a kernel
            hangs, and afterwards. "shm": kernels write to a file in memory. "keeper": to GPU memory that a second
            process keeps, for dense records. "auto": one of these, by the expected number of records. Kernels then also
            record when a warp enters a region that waits, or has open=True. The file is removed when the session ends
            normally.
        block: blocks that record, by linear number x + nx * (y + ny * z): 40 (only this block), range(100) or "0:100"
            (the first 100), range(0, 1000, 8). No recompilation.
        warp: warps of a block that record, one number or several. No recompilation.
        sm: SMs that record, one number or several. No recompilation.
        pool: bytes of device memory to record into, per device; by default 1/32 of the free memory, at most 1 GiB.
            Records are drained while kernels run: the pool limits bursts, not the session.
        kernel: kernels to keep: names with * and ?, or hashes such as "0x7fa21c3", one or several. Other kernels also
            record and are removed at the end; `auto` and `mark` do not touch them.
        auto: kinds of operation to mark in kernels without annotations, such as "wait,wgmma,loops"; True for the
            usual ones, False for none.
        mark: lines of source to mark as regions, such as "load=attn.py:41-47".
        stalls: also sample where warps wait and why, marked or not; `kscope stalls` shows it. Needs
            NVIDIA's libcupti (torch brings it, or the extra "stalls") and the permission to profile.
        period: cycles between two samples of an SM sub-partition, a power of two from 32 to 2^31; by default 1024.
        launch_stacks: record the line of Python that makes each launch, for trace.calls and summaries by line. It costs
            usually less than a microsecond per launch. Launches of CuTe DSL and replays of CUDA graphs have no line.
        then: functions from a trace to a trace, applied to prof.trace, see kscope.transforms.
        export: files to export prof.trace to if the body does not raise; checked before anything runs.
        torch: a torch.profiler.profile that records at the same time. When both have ended, prof.merged has the
            capture and torch's trace on one axis; with `path`, name.pftrace is written as one timeline of both.
        enabled: False records, compiles and writes nothing.

    Returns:
        The session, a context manager.

    Raises:
        UsageError: an option has an invalid value, a path cannot be written or belongs to another process of the job,
            or another session is active.
        MissingError: no imported DSL has a GPU or driver to run on.
        DriverError: a driver call failed.
    """
    options = Options.of(locals())
    target = None if path is None else capture_path.check(path)
    finish = Finish.of(export, then)
    if torch is not None and enabled:
        finish = replace(finish, torch=TorchProfiler(torch, target))
    if enabled:
        claim(finish.files if target is None else (target, *finish.files))
    return Session(target, options, finish, enabled)
