"""Samples as arguments of launches in a timeline. They carry no time: a launch shows those of its whole kernel."""

from __future__ import annotations

from ..analysis.samples.stalls import stalls
from ..analysis.samples.stalls_text import reasons_text
from ..tracedata.data import TraceData
from ..util.terminal import part_text

_MOST = 20
"""Most regions, those with the most samples."""


def notes(trace: TraceData) -> dict[int, dict[str, str | int]]:
    """By kernel id: the samples of all its launches, and for each region their share and their main reasons."""
    found: dict[int, dict[str, str | int]] = {}
    for number, function in enumerate(trace.samples.functions if trace.samples is not None else ()):
        if function.kernel is None or trace.samples is None:
            continue
        rows = stalls(trace.samples.of([number])).rows
        if not rows:
            continue
        about = found.setdefault(function.kernel, {"samples of all launches": 0})
        about["samples of all launches"] = int(about["samples of all launches"]) + sum(row.samples for row in rows)
        for row in rows[:_MOST]:
            waits = reasons_text(row)
            text = f"{part_text(row.share)} of samples, {part_text(row.issued)} of them issued"
            about.setdefault(f"waits in {row.name}", f"{text}; {waits}" if waits else text)
    return found
