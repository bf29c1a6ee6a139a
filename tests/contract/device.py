"""A program in a session on a device: prepared and launched once before, so that graphs can be captured."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from contract.programs import Program

import kscope
from kscope.capture.capture import Capture

Launch = Callable[[], None]
_COMPILED = ("strategy", "records", "fill", "clock", "placement")


def no_gpu() -> str | None:
    """Reason why nothing can run on a device here; None if it can."""
    try:
        return None if ctypes.CDLL("libcuda.so.1").cuInit(0) == 0 else "needs an NVIDIA GPU"
    except OSError:
        return "needs an NVIDIA GPU"


def record(program: Program, ready: Callable[[Program], Launch]) -> Capture:
    """The program's recording. One that is not armed is launched before the session, while it is paused, and after it;
    a plain one before it is ever prepared, and not within."""
    recording, subset = program.recording, program.subset
    compiled = {name: getattr(recording, name) for name in _COMPILED}
    chosen = {"block": subset.block, "warp": subset.warp, "sm": subset.sm, "pool": program.pool}
    if program.state != "plain":
        kscope.enable(**compiled)
    try:
        go = ready(program)
        if program.state != "armed":
            go()
        with kscope.profile(**compiled, **chosen) as prof:
            if program.state == "armed":
                go()
            elif program.state == "prepared":
                with prof.paused():
                    go()
        if program.state != "armed":
            go()
    finally:
        kscope.disable()
    return prof.capture


def with_torch(launch: Launch, replays: int) -> Launch:
    """Launch once now, and then as often as the program requires, as graph replays beyond that."""
    import torch

    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph() if replays > 1 else None
    if graph is not None:
        with torch.cuda.graph(graph):
            launch()

    def go() -> None:
        for _ in range(replays):
            if graph is None:
                launch()
            else:
                graph.replay()
        torch.cuda.synchronize()

    return go


def with_stream(launch: Launch, stream: int, replays: int) -> Launch:
    """The same through the driver API, for launches in this stream of the current context."""
    from cuda.bindings import driver

    def call(name: str, *arguments: object) -> Any:
        error, *found = getattr(driver, name)(*arguments)
        assert error == driver.CUresult.CUDA_SUCCESS, f"{name}: {error}"
        return found[0] if found else None

    launch()
    call("cuStreamSynchronize", stream)
    graph = None
    if replays > 1:
        call("cuStreamBeginCapture", stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        launch()
        graph = call("cuGraphInstantiate", call("cuStreamEndCapture", stream), 0)

    def go() -> None:
        for _ in range(replays):
            if graph is None:
                launch()
            else:
                call("cuGraphLaunch", graph, stream)
        call("cuStreamSynchronize", stream)

    return go
