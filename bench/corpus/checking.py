"""Foreign entry points on a device: plain, then recorded with both placements; are results and records right?"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import torch

import kscope

from . import running

PLACEMENTS = ("fence", "schedule")
PLAIN, RECORDED = 10, 3
"""Runs."""
RECORDS, POOL = ("auto", 4096), 2 << 30
"""Records of a warp: the second number is tried if records are lost with the first one; bytes of device memory."""
EXPECTED = frozenset({"clock", "rate", "occupancy", "placement", "registers", "overwritten"})
"""Problems that are counted by kind, or are about how a kernel was recorded. Others are printed."""
Tensors = list[torch.Tensor]


def options(placement: str, records: int | str = "auto") -> dict[str, Any]:
    """The options of a session."""
    return {"auto": True, "placement": placement, "records": records, "pool": POOL}


def check(work: Any) -> dict[str, Any]:
    """Check if plain results repeat, and compare those of both placements with them."""
    warnings.simplefilter("ignore")
    running.forget()
    plain = [running.results(work)]
    for _ in range(PLAIN - 1):
        again = running.results(work)
        plain += [] if same(plain[0], again) else [again]
    repeats = len(plain) == 1
    found: dict[str, Any] = {"repeats": repeats, "bytes": sum(one.nbytes for one in plain[0])}
    for placement in PLACEMENTS:
        for records in RECORDS:
            found[placement] = _recorded(work, placement, records, plain, repeats)
            if not found[placement]["lost"]:
                break
    running.forget()
    found["plain again"] = _equal(plain, [running.results(work)], repeats)
    counts = [found[one].pop("counts") for one in PLACEMENTS]
    found["same counts"] = counts[0] == counts[1]
    if counts[0] != counts[1]:
        differ = [(*key, counts[0][key], counts[1][key]) for key in {**counts[0], **counts[1]}]
        found["differ"] = [one for one in differ if one[2] != one[3]][:4]
    return found


def _recorded(work: Any, placement: str, size: int | str, plain: list[Tensors], repeats: bool) -> dict[str, Any]:
    running.forget()
    with kscope.profile(**options(placement, size)) as prof:
        outs = [running.results(work) for _ in range(RECORDED)]
    trace = prof.trace
    problems = Counter(one.kind for one in trace.problems)
    lost = sum(one.count for one in trace.problems if one.kind == "overwritten")
    runs = _by_run(trace)
    return {
        "equal": _equal(plain, outs, repeats),
        "launches": len(trace.launches),
        "records": len(trace),
        "lost": lost,
        "ring": size,
        "negative": int((trace.dur_ns < 0).sum()),
        "runs agree": runs is not None and all(one == runs[0] for one in runs),
        "problems": dict(problems),
        "why": sorted({one.text for one in trace.problems if one.kind == "placement"}),
        "other": sorted({f"{one.kind}: {one.text}" for one in trace.problems if one.kind not in EXPECTED}),
        "kernels": dict(Counter(one.kernel for one in trace.launches)),
        "counts": _counts(trace),
    }


def _counts(trace: kscope.Trace) -> Counter[tuple[str, str]]:
    """Records by kernel and region."""
    found, names = Counter[tuple[str, str]](), trace.region_names()
    regions = max(len(names), 1)
    for number, count in zip(
        *np.unique(trace.launch.astype(np.int64) * regions + trace.region, return_counts=True), strict=True
    ):
        found[trace.launches[number // regions].kernel, names[number % regions]] += int(count)
    return found


def _by_run(trace: kscope.Trace) -> list[list[Any]] | None:
    """For each run, its launches in order: kernel, and records by region. None if the launches are no multiple."""
    each, rest = divmod(len(trace.launches), RECORDED)
    if rest or not each:
        return None
    regions = max(len(trace.region_names()), 1)
    table = np.bincount(trace.launch.astype(np.int64) * regions + trace.region, minlength=len(trace.launches) * regions)
    rows = table.reshape(len(trace.launches), regions)
    order = sorted(range(len(trace.launches)), key=lambda i: (trace.launches[i].grid_id, trace.launches[i].replay))
    made = [(trace.launches[i].kernel, rows[i].tolist()) for i in order]
    return [made[i : i + each] for i in range(0, len(made), each)]


def same(one: Tensors, other: Tensors) -> bool:
    """True if all bits agree."""
    return len(one) == len(other) and all(
        a.shape == b.shape
        and torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))
        for a, b in zip(one, other, strict=True)
    )


def _equal(plain: list[Tensors], found: list[Tensors], repeats: bool) -> str:
    """ "bits", "within" plain's own spread, or what differs."""
    if all(same(plain[0], one) for one in found):
        return "bits"
    for number, part in enumerate(plain[0]):
        low = high = part.double()
        for one in plain[1:]:
            low, high = torch.minimum(low, one[number].double()), torch.maximum(high, one[number].double())
        spread = (high - low).nan_to_num(0).max().item() if part.numel() else 0
        for one in found:
            away = torch.maximum(low - one[number].double(), one[number].double() - high).nan_to_num(0).max().item()
            if away > spread or (repeats and not same([part], [one[number]])):
                return f"output {number} is {away:.3g} away, plain's spread {spread:.3g}"
    return "within"
