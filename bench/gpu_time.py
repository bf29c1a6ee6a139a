"""Time on the GPU, by CUDA events, and launches as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import torch


def microseconds(work: Callable[[], object], times: int = 1, asleep: int = 0) -> float:
    """The time of one call, of `times` in a row. asleep: cycles that the GPU waits before, while the host launches."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if asleep:
        torch.cuda.synchronize()
        torch.cuda._sleep(asleep)
    begin.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1000 / times


def graph(work: Callable[[], object], launches: int) -> torch.cuda.CUDAGraph:
    """So many calls as one graph, after three that compile and warm up."""
    made, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
        stream.synchronize()
    with torch.cuda.graph(made, stream=stream):
        for _ in range(launches):
            work()
    torch.cuda.synchronize()
    return made
