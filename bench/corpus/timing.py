"""Time of foreign entry points, in CUDA graphs where these can be captured: plain, at rest and recording, in turns."""

from __future__ import annotations

import random
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import torch
from gpu_time import graph, microseconds

import kscope

from . import running
from .checking import PLACEMENTS, options

TURNS, LAUNCHES = 21, 5
SEED = 20_261_126


def measure(work: Any) -> dict[str, Any]:
    """Microseconds of plain, and percent added by placement at rest and recording."""
    warnings.simplefilter("ignore")
    running.forget()
    graphs, how = {"plain": _graph(work)}, "graph"
    for placement in PLACEMENTS:
        running.forget()
        with kscope.profile(**options(placement)):
            graphs[placement] = _graph(work)
    running.forget()
    if any(one is None for one in graphs.values()):
        return {"how": "not captured"}
    rest = _turns(graphs, "rest")
    with kscope.profile(**options("schedule")) as prof:
        recording = _turns(graphs, "recording")
    plain = statistics.median(rest["plain"])
    found: dict[str, Any] = {"how": how, "us": round(plain, 2), "launches": len(prof.trace.launches)}
    for placement in PLACEMENTS:
        found[placement] = {"at rest": _added(rest, placement), "recording": _added(recording, placement)}
    return found


def _added(found: dict[str, list[float]], placement: str) -> float:
    """Percent, by the median of pairs."""
    pairs = zip(found[placement], found["plain"], strict=True)
    return round(100 * statistics.median(one / plain - 1 for one, plain in pairs), 1)


def _graph(work: Any) -> Callable[[], None] | None:
    """Replays a graph of some calls; None if they cannot be captured."""
    try:
        return graph(work, LAUNCHES).replay
    except RuntimeError as error:
        if "captur" not in str(error):
            raise
        torch.cuda.synchronize()
        return None


def _turns(graphs: dict[str, Any], label: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in graphs}
    order = random.Random(f"{SEED} {label}")
    for replay in graphs.values():
        replay()
    torch.cuda.synchronize()
    for _ in range(TURNS):
        for name in order.sample(list(graphs), len(graphs)):
            found[name].append(microseconds(graphs[name]) / LAUNCHES)
    return found
