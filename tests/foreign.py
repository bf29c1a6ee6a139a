"""Buffers and files as other profilers write them, for tests of kscope/readers: from their documented layouts alone."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Mark = tuple[str, int, int]
"""("begin", "end", "point" or "last"; event; ns)"""
LOW = 0xFFFFFFFF


@dataclass
class Group:
    """A group of a block that recorded: marks in the order in which it made them."""

    block: int
    group: int = 0
    sm: int = 0
    marks: list[Mark] = field(default_factory=list)

    @staticmethod
    def of(spans: Sequence[tuple[int, int, int]], block: int, group: int = 0, sm: int = 0) -> Group:
        """From spans (event, start, end) that nest, given in order of end."""
        made = Group(block, group, sm)
        starts = sorted(((start, -end, event) for event, start, end in spans))
        open_: list[tuple[int, int]] = []
        for start, negative, event in starts:
            while open_ and open_[-1][0] <= start:
                end, inner = open_.pop()
                made.marks.append(("end", inner, end))
            made.marks.append(("begin", event, start))
            open_.append((-negative, event))
        while open_:
            end, inner = open_.pop()
            made.marks.append(("end", inner, end))
        return made


def strided(
    groups: Sequence[Group], blocks: int, per_block: int, tag: Any, *, slots: int = 64, before: Sequence[int] = (),
    empty: int = 0,
) -> np.ndarray:  # fmt: skip
    """{blocks, groups}, `before`, then record k of lane l at k * lanes + l: its tag and the low half of its time."""
    lanes = blocks * per_block
    out = np.full(1 + len(before) + slots * lanes, empty, np.uint64)
    out[0] = blocks | per_block << 32
    out[1 : 1 + len(before)] = before
    for one in groups:
        lane = one.block * per_block + one.group
        for number, mark in enumerate(one.marks):
            out[1 + len(before) + number * lanes + lane] = tag(lane, one, mark, number) | (mark[2] & LOW) << 32
    return out


_KIND = {"begin": 0, "end": 1, "point": 2, "last": 3}


def flashinfer(groups: Sequence[Group], blocks: int, per_block: int = 1, **how: Any) -> np.ndarray:
    """FlashInfer's first layout, TVM's and warpscope's."""
    return strided(groups, blocks, per_block, lambda lane, _, m, n: lane << 12 | m[1] << 2 | _KIND[m[0]], **how)


def flashinfer_sm(groups: Sequence[Group], blocks: int, per_block: int = 1, **how: Any) -> np.ndarray:
    """FlashInfer's layout with SM ids: eight bits of SM, twelve of the block."""

    def tag(lane: int, one: Group, mark: Mark, number: int) -> int:
        return one.sm << 24 | (one.block & 0xFFF) << 12 | mark[1] << 2 | _KIND[mark[0]]

    return strided(groups, blocks, per_block, tag, **how)


def mirage(groups: Sequence[Group], blocks: int, per_block: int = 1, **how: Any) -> np.ndarray:
    """Mirage: a running number, eight bits of the lane, nine of the event."""
    return strided(
        groups, blocks, per_block, lambda lane, _, m, n: n << 19 | (lane & 0xFF) << 11 | m[1] << 2 | _KIND[m[0]], **how
    )


def triton_distributed(
    groups: Sequence[Group], blocks: int, per_block: int = 1, empty: int = (1 << 63) - 1
) -> np.ndarray:
    """Triton-distributed: a table of blocks and their SMs, then the records."""
    sms = {one.block: one.sm for one in groups}
    table = [block | sms[block] << 32 if block in sms else empty for block in range(blocks)]
    return strided(
        groups, blocks, per_block, lambda lane, _, m, n: lane << 12 | m[1] << 1 | (m[0] == "begin"), before=table,
        empty=empty,
    )  # fmt: skip


Event = tuple[int, int, int, int]
"""(start, duration, tag, tid)"""


def nuggets(units: Sequence[Sequence[Event]], most: int, counts: Sequence[int] | None = None) -> np.ndarray:
    """transformer_nuggets: per unit a count, then four words per event."""
    out = np.zeros((len(units), 1 + 4 * most), np.int64)
    for unit, events in enumerate(units):
        out[unit, 0] = len(events) if counts is None else counts[unit]
        for slot, event in enumerate(events[:most]):
            out[unit, 1 + 4 * slot : 5 + 4 * slot] = event
    return out.reshape(-1)


def nuggets_compact(units: Sequence[Sequence[Event]], most: int, anchors: Sequence[int]) -> np.ndarray:
    """transformer_nuggets, compact: per unit an anchor, then tag, duration and start in one word."""
    out = np.zeros((len(units), 1 + most), np.uint64)
    for unit, events in enumerate(units):
        out[unit, 0] = anchors[unit]
        for slot, (start, duration, tag, _) in enumerate(events):
            out[unit, 1 + slot] = tag << 56 | (duration & 0xFFFFFF) << 32 | start & LOW
    return out.view(np.int64).reshape(-1)


def sm_profiler(
    groups: Sequence[Group], blocks: int, per_block: int = 1, most: int = 32, *, enabled: int = 1,
    counts: dict[int, int] | None = None,
) -> bytes:  # fmt: skip
    """sm-profiler: header, counters, active events, and 40 bytes per event."""
    lanes = blocks * per_block
    events = [bytes(40)] * (lanes * most)
    counters = [0] * (lanes + lanes % 2)
    active = [0] * (lanes * 32)
    for one in groups:
        lane = one.block * per_block + one.group
        rows: list[list[int]] = []
        open_: dict[int, int] = {}
        for what, event, time in one.marks:
            if what == "point":
                rows.append([event, 1, time, time])
            elif what == "begin":
                open_[event] = len(rows)
                rows.append([event, 0, time, 0])
            else:
                rows[open_.pop(event)][3] = time
        counters[lane] = len(rows)
        for number, (event, kind, start, end) in enumerate(rows[:most]):
            packed = struct.pack("<6I2Q", number + 1, event, one.block, one.group, one.sm, kind, start, end)
            events[lane * most + number] = packed
    for lane, count in (counts or {}).items():
        counters[lane] = count
    head = struct.pack("<2Q", blocks << 32 | per_block, most << 32 | enabled)
    return (
        head
        + struct.pack(f"<{len(counters)}I", *counters)
        + struct.pack(f"<{len(active)}I", *active)
        + b"".join(events)
    )


def proton(
    blocks: Sequence[tuple[str, int, int, int, int, list[tuple[int, str, int, int]]]], mhz: float | None = None,
    **more: Any,
) -> bytes:  # fmt: skip
    """Proton's Chrome trace: (kernel, SM, block, start ns, end ns, [(warp, scope, first cycle, cycles)])."""
    least = min((block[3] for block in blocks), default=0)
    rate = mhz or 1000.0
    events: list[dict[str, Any]] = []
    for kernel, sm, block, init, final, scopes in blocks:
        zero = min((scope[2] for scope in scopes), default=0)
        for warp, name, first, cycles in scopes:
            args: dict[str, float] = {"Init Time (ns)": init, "Post Final Time (ns)": final + 40}
            args |= {"Finalization Time (ns)": 40}
            args |= {"Frequency (MHz)": mhz} if mhz else {}
            events.append(
                {
                    "cname": "good", "name": name, "cat": kernel, "ph": "X", "pid": f"{kernel} Core{sm} CTA{block}",
                    "tid": f"warp {warp} (line 0)", "ts": (init - least) / 1000 + (first - zero) / rate,
                    "dur": cycles / rate, "args": {**args, "call_stack": ["main", kernel]},
                }
            )  # fmt: skip
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events, **more}).encode()
