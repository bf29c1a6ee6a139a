"""The calls that launched the kernels of a Kineto file: correlation -> call -> operator, module and Python frames."""

from __future__ import annotations

import numpy as np

from ..tracedata.calls import Call
from ..tracedata.nesting import parents
from ..util.arrays import Int64
from ..util.json_values import clean
from .kineto import CALLS, Kernels, Kineto

_FRAME, _OP = "python_function", "cpu_op"
_MODULE = "nn.Module: "


def call_events(kineto: Kineto, kernels: Kernels, kernel: Int64) -> list[int]:
    """Index of the event of the call that made each launch, or -1. Arguments are those of calls()."""
    by_correlation = {}
    for at in kineto.of(*CALLS).tolist():
        args = kineto.events[at].get("args")
        number = args.get("correlation") if isinstance(args, dict) else None
        if isinstance(number, int):
            by_correlation[number] = at
    return [by_correlation.get(int(kernels.correlation[at]), -1) if at >= 0 else -1 for at in kernel.tolist()]


def calls(kineto: Kineto, kernels: Kernels, kernel: Int64, origin: int) -> tuple[Call, ...]:
    """A row per launch.

    Args:
        kineto: the file.
        kernels: its kernels.
        kernel: (l,) the kernel of each launch, or -1.
        origin: UNIX ns of the trace's time 0.
    """
    shift, made_by = kineto.base - origin, call_events(kineto, kernels, kernel)
    above = _above(kineto, sorted({at for at in made_by if at >= 0}))
    rows = []
    for launch, (at, event) in enumerate(zip(kernel.tolist(), made_by, strict=True)):
        if at < 0:
            rows.append(Call(launch))
            continue
        enqueued, took = -1, -1
        if event >= 0:
            enqueued, took = int(kineto.begin[event]) + shift, int(kineto.end_ns[event] - kineto.begin[event])
        rows.append(Call(
            launch, *_named(kineto, above, event), int(kernels.stream[at]), int(kernels.correlation[at]), enqueued,
            took, int(kernels.begin[at]) + shift, int(kernels.end[at]) + shift,
        ))  # fmt: skip
    return tuple(rows)


def _above(kineto: Kineto, events: list[int]) -> dict[int, int]:
    """The event that encloses each frame, operator and call of a thread, by index; absent for none."""
    at = np.concatenate([kineto.of(_FRAME, _OP), np.array(events, np.int64)])
    if not len(at):
        return {}
    thread = kineto.thread[at].astype(np.int32)
    # a call is inside an event that begins and ends with it
    rank = np.isin(at, np.array(events, np.int64)).astype(np.int64)
    begin, end = kineto.begin[at], kineto.end_ns[at]
    order = np.lexsort((-rank, -begin, end, thread))  # in order of end; of equal ends, the inner one first
    at, begin, end, thread = at[order], begin[order], end[order], thread[order]
    parent = parents(begin, end, thread)
    inside = np.flatnonzero(parent >= 0)
    return dict(zip(at[inside].tolist(), at[parent[inside]].tolist(), strict=True))


def _named(kineto: Kineto, above: dict[int, int], event: int) -> tuple[str, str, tuple[str, ...]]:
    """The operator, the module and the frames around an event."""
    op, module, stack = "", "", list[str]()
    while (event := above.get(event, -1)) >= 0:
        one = kineto.events[event]
        name = clean(str(one.get("name", "")))
        if one.get("cat") == _OP:
            op = op or name
        elif name.startswith(_MODULE):
            module = module or name.removeprefix(_MODULE)
        else:
            stack.append(name)
    return op, module, tuple(reversed(stack))
