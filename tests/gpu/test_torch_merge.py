"""torch.profiler and kscope in one process: pairs are right, and times stay within the printed bound.

Every launch writes a tag. CUPTI numbers launches in the order in which the host makes them (correlation), so the tags
of the kernels of one name, in that order, are known without any clock.

make gpu PYTEST_ARGS='-k torch_merge'
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import orjson
import pytest

import kscope
from kscope.merging import kineto
from kscope.merging.axis import clocks, readings
from kscope.merging.launch_times import launch_times
from kscope.merging.torch import Merged
from kscope.trace import Trace

from .checks import doubts, sync

Table = Callable[[str, str], None]
pytestmark = pytest.mark.filterwarnings("ignore:.*Profiler clears events at the end of each cycle")
BLOCK, BLOCKS = 1024, 132


@pytest.fixture
def k() -> Iterator[ModuleType]:
    """The kernels' module, imported late because Triton may be missing; prepared."""
    import torch

    kscope.enable()
    from . import merge_kernels

    with torch.profiler.profile():  # the first profile of a process initializes CUPTI
        sync()
    yield merge_kernels
    kscope.disable()


@contextmanager
def both(found: dict[str, Any], folder: Path, **options: Any) -> Iterator[None]:
    """Record with both; found["merged"] and found["trace"] after it."""
    import torch

    with torch.profiler.profile(with_stack=True, **options) as p, kscope.profile(torch=p) as prof:
        yield
        sync()
    p.export_chrome_trace(str(folder / "t.json"))
    found["trace"] = prof.trace
    found["merged"] = kscope.merge(prof.trace, folder / "t.json")


def tags(trace: Trace) -> np.ndarray:
    """The tag of each launch, which all its records share."""
    found = np.full(len(trace.launches), -1.0)
    valued = np.flatnonzero(~np.isnan(trace.value))
    found[trace.launch[valued]] = trace.value[valued]
    assert (found[trace.launch[valued]] == trace.value[valued]).all()
    return found.astype(np.int64)


def check(found: dict[str, Any], folder: Path, table: Table, what: str, expected: dict[str, list[int]]) -> Merged:
    """All pairs are right, and launches that the fit did not use agree with it.

    Args:
        found: of both().
        folder: has t.json.
        table: of the measurements.
        what: the case's name.
        expected: tags in the order of correlation and time, by kernel.
    """
    merged: Merged = found["merged"]
    trace: Trace = merged.trace
    assert not doubts(trace)
    tag, names = tags(trace), [launch.kernel for launch in trace.launches]
    assert merged.pairs.unsure == 0
    wrong = 0
    for name, order in expected.items():
        mine = [at for at, one in enumerate(names) if one == name]
        slices = merged.pairs.kernel[mine]
        rank = np.lexsort((merged.kernels.begin[slices], merged.kernels.correlation[slices]))
        assert len(mine) == len(order)
        wrong += int((tag[mine][rank] != np.array(order)).sum())
    assert wrong == 0
    violations = _held_out(found["trace"], merged)
    assert violations == 0
    [bound] = merged.bounds
    latency, drain = _rest(merged)
    table(f"torch merge, {what}", f"{bound}; latency {latency}, drain {drain}")
    alone = kscope.merge(_without_readings(found["trace"]), folder / "t.json").bounds[0]
    table(f"torch merge, {what}", f"by launches alone: within \N{PLUS-MINUS SIGN}{alone.half_ns:,.0f} ns")
    assert bound.readings == 128
    assert bound.half_ns <= 500
    _files(merged, folder)
    return merged


def _without_readings(trace: Trace) -> Trace:
    gpus = tuple(replace(one, readings=()) for one in trace.recorded.gpus)
    return replace(trace, recorded=replace(trace.recorded, gpus=gpus))


def _held_out(trace: Trace, merged: Merged) -> int:
    """How many launches contradict the bounds that every second one of the others gives."""
    times, kernel = launch_times(trace), merged.pairs.kernel
    shift = merged.kineto.base - trace.origin
    begin, end = merged.kernels.begin + shift, merged.kernels.end + shift
    used = np.where(np.arange(len(kernel)) % 2 == 0, kernel, -1)
    [clock] = clocks(times, used, begin, end, readings(trace, merged.kernels, shift)).values()
    at = np.flatnonzero((used < 0) & (kernel >= 0))
    first, last = clock.at(times.first_by[at]), clock.at(times.last_from[at])
    early = begin[kernel[at]] - (times.first_by[at] + first.base) > first.high + 1
    late = end[kernel[at]] - (times.last_from[at] + last.base) < last.low - 1
    return int((early | late).sum())


def _rest(merged: Merged) -> tuple[str, str]:
    """Medians of launch latency and drain, ns."""
    trace, warps = merged.trace, merged.trace.warps
    first, last = np.full(len(trace.launches), np.inf), np.full(len(trace.launches), -np.inf)
    np.minimum.at(first, warps.launch, warps.start_ns)
    np.maximum.at(last, warps.launch, warps.end_ns)
    begin, end = (np.array([getattr(call, name) for call in trace.calls]) for name in ("begin_ns", "end_ns"))
    return f"{np.median(first - begin):.0f} ns", f"{np.median(end - last):.0f} ns"


def _files(merged: Merged, folder: Path) -> None:
    """torch's bytes are in the JSON as they were; calls are known."""
    merged.write(folder / "m.json")
    merged.write(folder / "m.pftrace")
    was, now = (folder / "t.json").read_bytes(), (folder / "m.json").read_bytes()
    end = kineto.parse("t.json", was).end
    assert now[:end] == was[:end]
    assert now.endswith(was[end:])
    assert len(orjson.loads(now)["traceEvents"]) > len(merged.kineto.events)
    assert all(call.correlation >= 0 and call.cpu_ns >= 0 for call in merged.trace.calls)


def test_eager_launches_over_two_seconds(k: ModuleType, tmp_path: Path, table: Table) -> None:
    import torch

    x = torch.rand(BLOCKS * BLOCK, device="cuda")
    y = torch.empty_like(x)

    def step(at: int) -> None:
        k.scale[(BLOCKS if at % 3 else 1,)](x, y, x.numel(), 2 * at, TURNS=16, BLOCK=BLOCK)
        k.shift[(BLOCKS,)](x, y, x.numel(), 2 * at + 1, BLOCK=BLOCK)
        y.add_(1)

    step(1)
    sync()
    found: dict[str, Any] = {}
    with both(found, tmp_path):
        for at in range(300):
            step(at)
            if at % 20 == 19:
                sync()
            if at in (100, 200):
                sync()
                time.sleep(1.0)
    expected = {"scale": list(range(0, 600, 2)), "shift": list(range(1, 600, 2))}
    merged = check(found, tmp_path, table, "eager", expected)
    assert all("test_torch_merge.py" in call.line for call in merged.trace.calls)


def test_a_compiled_function(k: ModuleType, tmp_path: Path, table: Table) -> None:
    import torch

    torch.compiler.reset()

    @torch.compile
    def compiled(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        k.counted[(BLOCKS,)](x, out, x.numel(), turn, NODE=1, BLOCK=BLOCK)
        turn.add_(1)
        return out + 1

    x, turn = torch.rand(BLOCKS * BLOCK, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    for _ in range(3):
        compiled(x, turn)
    turn.zero_()
    sync()
    found: dict[str, Any] = {}
    with both(found, tmp_path):
        for _ in range(200):
            compiled(x, turn)
    torch.compiler.reset()
    names = {launch.kernel for launch in found["trace"].launches}
    [name] = [one for one in names if "counted" in one]
    check(found, tmp_path, table, "torch.compile", {name: [10 * at + 1 for at in range(200)]})


def test_a_graph_of_three_nodes_with_a_thousand_replays(k: ModuleType, tmp_path: Path, table: Table) -> None:
    import torch

    x, turn = torch.rand(16 * BLOCK, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    y = torch.empty_like(x)

    def body() -> None:
        for node in range(3):
            k.counted[(16,)](x, y, x.numel(), turn, NODE=node, BLOCK=BLOCK)
        turn.add_(1)

    body()
    sync()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    graph.replay()
    turn.zero_()
    sync()
    found: dict[str, Any] = {}
    with both(found, tmp_path):
        for _ in range(1000):
            graph.replay()
    expected = [10 * turn + node for turn in range(1000) for node in range(3)]
    check(found, tmp_path, table, "graph, 1,000 replays", {"counted": expected})


def test_dependent_launches_that_overlap(k: ModuleType, tmp_path: Path, table: Table) -> None:
    import torch

    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("programmatic dependent launch needs sm_90")
    x = torch.rand(16 * BLOCK, device="cuda")
    out = torch.empty_like(x)

    def step(at: int) -> None:
        k.chained[(16,)](x, out, x.numel(), at, TURNS=1 << 12, BLOCK=BLOCK, launch_pdl=True)

    step(0)
    sync()
    found: dict[str, Any] = {}
    with both(found, tmp_path):
        for at in range(1000):
            step(at)
    merged = check(found, tmp_path, table, "dependent launches", {"chained": list(range(1000))})
    kernels = merged.kernels
    mine = np.sort(merged.pairs.kernel)
    overlapped = int((kernels.begin[mine][1:] < kernels.end[mine][:-1]).sum())
    table("torch merge, dependent launches", f"{overlapped} of 999 began before the one in front of them had ended")


def test_two_streams_that_overlap(k: ModuleType, tmp_path: Path, table: Table) -> None:
    import torch

    streams = [torch.cuda.Stream() for _ in range(2)]
    x = torch.rand(16 * BLOCK, device="cuda")
    outs = [torch.empty_like(x) for _ in streams]

    def step(at: int) -> None:
        with torch.cuda.stream(streams[at % 2]):
            k.scale[(16,)](
                x, outs[at % 2], x.numel(), at, TURNS=1 << 16, BLOCK=BLOCK
            )  # 0.1 ms: longer than a launch takes the host

    step(0)
    step(1)
    k.shift[(16,)](x, outs[0], x.numel(), 0, BLOCK=BLOCK)
    sync()
    found: dict[str, Any] = {}
    with both(found, tmp_path):
        for at in range(400):
            step(at)
            if at % 40 == 39:  # launches that do not overlap confirm that %gridid rises as launches are enqueued
                sync()
                k.shift[(16,)](x, outs[0], x.numel(), at, BLOCK=BLOCK)
                sync()
    expected = {"scale": list(range(400)), "shift": list(range(39, 400, 40))}
    merged = check(found, tmp_path, table, "two streams", expected)
    assert len({call.stream for call in merged.trace.calls}) == 3
    assert merged.pairs.by_order_of_enqueue > 200
    table("torch merge, two streams", f"{merged.pairs.by_order_of_enqueue} launches overlapped")


def test_lines_of_launches_without_torch_profiler_are_those_that_torch_profiler_has(
    k: ModuleType, tmp_path: Path, table: Table
) -> None:
    import torch

    x = torch.rand(BLOCKS * BLOCK, device="cuda")
    y = torch.empty_like(x)
    streams = [torch.cuda.Stream() for _ in range(2)]

    def here(at: int) -> None:
        k.scale[(16,)](x, y, 16 * BLOCK, at, TURNS=1 << 12, BLOCK=BLOCK)

    def there(at: int) -> None:
        with torch.cuda.stream(streams[at % 2]):
            k.scale[(16,)](x, y, 16 * BLOCK, at, TURNS=1 << 16 if at % 3 else 16, BLOCK=BLOCK)

    here(0)
    there(0)
    there(1)
    sync()
    with kscope.profile(tmp_path / "s.kscope", launch_stacks=True) as prof:
        for at in range(500):
            (there if at % 3 else here)(at)
    trace = prof.trace
    assert not doubts(trace)
    assert len(trace.calls) == 500
    wrong = [
        tag for tag, call in zip(tags(trace), trace.calls, strict=True)
        if not call.line.endswith("there" if tag % 3 else "here")
    ]  # fmt: skip
    assert wrong == []
