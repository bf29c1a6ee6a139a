"""Pipelines as text for a terminal."""

from __future__ import annotations

import math

from ...util.terminal import cut, grid, paragraph, part_text, terminal_width, time_text, wrapped
from ...util.text import counted
from .data import KernelPipeline, Pipelines, RingStats

NOTHING = 'no record of a barrier: use kscope run --kinds pipeline, or auto="pipeline"'


def text(found: Pipelines, width: int | None = None) -> str:
    """One part per kernel: findings, a picture, rings, and waits by role.

    Args:
        found: the pipelines.
        width: columns; None for this terminal's.
    """
    width = terminal_width(width)
    lines = paragraph(found.caveat, width)
    if not found.kernels:
        lines += wrapped(NOTHING, width)
    for kernel in found.kernels:
        lines += ["", *_kernel(kernel, width)]
    lines += [""] if found.problems else []
    for problem in found.problems:
        lines += wrapped(f"! {problem.text}", width)
    return "\n".join(lines).strip("\n")


def _kernel(kernel: KernelPipeline, width: int) -> list[str]:
    blocks, launches = counted(kernel.blocks, "block"), counted(kernel.launches, "launch")
    lines = [cut(f"{kernel.kernel}: {blocks} of {launches}", width)]
    for finding in kernel.findings:
        lines += wrapped(f"> {finding}", width)
    lines += ["", *(cut(line, width) for line in kernel.picture), ""] if kernel.picture else [""]
    rings = list(kernel.rings)
    columns = {
        "stages": [str(ring.stages) for ring in rings],
        "needs": ["-" if ring.needed is None else str(ring.needed) for ring in rings],
        "phases": [f"{ring.phases:,}" for ring in rings],
        "in flight": [_number(ring.in_flight) for ring in rings],
        "in use": [_number(ring.in_use) for ring in rings],
        "latency p50": [_latency(ring, 0) for ring in rings],
        "p99": [_latency(ring, 2) for ring in rings],
        "exact": [part_text(ring.exact / ring.phases) for ring in rings],
        "bytes/cycle": [_number(ring.bytes_per_cycle) for ring in rings],
        "bubbles": [time_text(ring.bubble_ns) if ring.bubbles else "-" for ring in rings],
    }
    lines += grid("ring", [ring.name for ring in rings], columns, width, ("exact", "bubbles", "p99", "in flight"))
    rows = [(ring, wait) for ring in rings for wait in ring.waits]
    if rows:
        lines.append("")
        columns = {
            "waits": [f"{wait.count:,}" for _, wait in rows],
            "warp time": [time_text(wait.ns) for _, wait in rows],
            "not issued": [_part(wait.not_issued_ns, wait.ns) for _, wait in rows],
            "in flight": [_part(wait.in_flight_ns, wait.ns) for _, wait in rows],
            "landed": [_part(wait.landed_ns, wait.ns) for _, wait in rows],
        }
        lines += grid("role: ring", [f"{wait.role}: {ring.name}" for ring, wait in rows], columns, width, ("waits",))
    for ring in rings:
        lines += [one for line in _law(ring) for one in wrapped(line, width)]
    return lines


def _law(ring: RingStats) -> list[str]:
    if ring.needed is None:
        return []
    held = f", held for {time_text(ring.held_ns)}" if math.isfinite(ring.held_ns) else ""
    return [
        f"{ring.name}: filled in {time_text(ring.latency_ns[0])}{held}, {time_text(ring.step_ns)} per step: "
        f"{ring.needed} stages needed, {ring.stages} used"
    ]


def _latency(ring: RingStats, at: int) -> str:
    return time_text(ring.latency_ns[at]) if ring.latency_ns else "-"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3g}"


def _part(part: float, whole: float) -> str:
    return part_text(part / whole if whole > 0 else math.nan)
