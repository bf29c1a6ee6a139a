"""Writes a trace as a report, piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import IO, Any

import numpy as np

from .._version import __version__
from ..analysis.critical_path import Edge, GivenEdge, as_edges
from ..analysis.pipelines.edges import with_phases
from ..analysis.roles import roles
from ..analysis.summary import Summary, summarize
from ..tracedata.data import TraceData
from ..tracedata.info import info
from ..tracedata.kernel_names import kernel_names
from ..util.json_values import clean
from ..util.parallel import map_ahead
from ..util.progress import Step, no_progress
from ..util.runs import extents
from . import figures, heat, reasons, slices
from .figures import Figures
from .heat import Heat
from .pack import Packed, narrow, pack
from .page import written
from .scene import Scene, gathered, parts, scene
from .tables import tables

_Place = tuple[list[dict[str, Any]], list[heat.Bins], Figures]


def write(trace: TraceData, file: IO[bytes], step: Step = no_progress, *, edges: Iterable[GivenEdge] = ()) -> None:
    """Write the report of a trace. A million records take about half a second, and 4 to 6 bytes each.

    Args:
        trace: the trace.
        file: takes bytes.
        step: takes counts of records.
        edges: signals and the waits that they satisfy, for the critical path.

    Raises:
        UsageError: not an edge.
    """
    for piece in pieces(trace, step, edges):
        file.write(piece.encode())


def pieces(trace: TraceData, step: Step = no_progress, edges: Iterable[GivenEdge] = ()) -> Iterator[str]:
    """The text of the page; arguments as in write()."""
    named = as_edges(edges)
    summary = summarize(trace)
    shown = scene(with_phases(trace)[0], summary)
    about = _about(shown, summary, named)
    return written(about, _payloads(shown, about, step))


def _payloads(shown: Scene, about: dict[str, Any], step: Step) -> Iterator[tuple[str, str]]:
    """(id, text) of everything packed; adds the data that the page needs to read it to `about`."""
    bins = heat.levels(shown)
    axes = figures.axes(shown)
    most = max(int(shown.drawn.row.max(initial=0)) + 1, 1)

    def work(ranges: list[tuple[int, int]]) -> _Place:
        warmth, found, packed = Heat(shown, bins), Figures(shown, axes), []
        for part in gathered(shown, ranges):
            packed.append(slices.packed(shown, part))
            warmth.add(part)
            found.add(part)
        return packed, warmth.bins_of_levels(most), found

    total = Figures(shown, axes)
    binned: list[list[heat.Bins]] = []
    chunks: list[dict[str, Any]] = []
    for packed, warmth, found in map_ahead(work, parts(shown)):
        binned.append(warmth)
        total.merge(found)
        for chunk in packed:
            step(chunk.pop("count"))
            yield f"slices-{len(chunks)}", chunk.pop("text")
            chunks.append(chunk)
    specs: dict[str, Any] = {}
    for name, columns in (("warps", _warps(shown)), ("launches", _launches(shown)), ("figures", _figures(total, axes))):
        one: Packed = pack(columns)
        specs[name] = one.spec
        yield name, one.text
    for level in range(len(bins)):
        planes = {key: [getattr(one[level], key).ravel() for one in binned] for key in heat.PLANES}
        one = pack({key: np.concatenate([np.zeros(0, np.uint8), *plane]) for key, plane in planes.items()})
        specs[f"heat-{level}"] = one.spec
        yield f"heat-{level}", one.text
    about |= {
        "specs": specs, "chunks": chunks, "levels": bins, "rows": most,
        "figures": {"first": axes.first, "bins": axes.bins, "names": total.names, "warps": axes.warps},
    }  # fmt: skip


def _about(shown: Scene, summary: Summary, edges: tuple[Edge, ...]) -> dict[str, Any]:
    """The page's facts about the trace, except columns."""
    trace, drawn, codes = shown.trace, shown.drawn, shown.codes
    typed, of_role = slices.valued_codes(shown), roles(trace)
    alive = sum(one.alive_ns for one in summary.warps)
    waits = reasons.bars(trace)
    wheres = {one.name: clean(one.where) for one in reversed(trace.regions) if one.where}  # the first of a name
    return {
        "version": __version__, "base": drawn.base, "span": drawn.span,
        "tick": trace.tick_ns, "error": float(np.max(trace.warps.error_ns, initial=0.0)), "records": len(trace),
        "idle": sum(one.idle_ns for one in summary.warps) / alive if alive > 0 else None,
        "filtered": trace.filtered, "shares": min(len(shown.names), heat.MOST_SHARES),
        "kernels": [clean(name) for name in kernel_names(trace)], "names": [clean(name) for name in shown.names],
        "where": [wheres.get(name, "") for name in shown.names],
        "devices": list(trace.devices), "places": drawn.places, "far": heat.MOST_NAMES,
        "codes": {"name": codes.name, "kind": codes.kind, "line": codes.line, "valued": typed,
                  "types": np.ascontiguousarray(trace.types[:, codes.region])},
        "table": [
            {key: clean(value) if isinstance(value, str) else value for key, value in asdict(row).items()}
            | {"hint": clean(row.hint), "waits": waits.get((row.kernel, row.region))}
            for row in summary.regions
        ],
        "points": [{key: clean(value) if isinstance(value, str) else value for key, value in asdict(row).items()}
                   for row in summary.points],
        "clock": trace.recorded.clock, "recorded": clean(info(trace).line),
        "roles": [clean(name) for name in of_role.known], "role_names": [clean(name) for name in of_role.names],
        "tables": [asdict(one) for one in tables(trace, edges)],
        "problems": [one.as_dict() for one in trace.problems],
    }  # fmt: skip


def _warps(shown: Scene) -> dict[str, np.ndarray[Any, Any]]:
    drawn, warps = shown.drawn, shown.trace.warps
    rows = drawn.rows
    return {
        "place": narrow(drawn.place), "row": narrow(drawn.row), "launch": narrow(warps.launch[rows]),
        "block": narrow(warps.block[rows]), "warp": warps.warp[rows], "lane": warps.lane[rows],
        "role": narrow(roles(shown.trace).code[rows]),
        "count": narrow(drawn.count), "lost": narrow(np.maximum(warps.written[rows] - warps.records[rows], 0)),
        "done": warps.finished[rows].astype(np.uint8), "timer": warps.timer[rows].astype(np.uint8),
        "start": drawn.start, "end": drawn.end, "pace": warps.tick_ns[rows],
    }  # fmt: skip


def _launches(shown: Scene) -> dict[str, np.ndarray[Any, Any]]:
    """Rows by launch; begin > end if none of its warps is drawn."""
    trace, drawn = shown.trace, shown.drawn
    count = len(trace.launches)
    launch = trace.warps.launch[drawn.rows]
    begin, end = extents(launch, count, drawn.start, drawn.end)
    kernel = np.zeros(count, np.int64)
    kernel[launch] = trace.warps.kernel[drawn.rows]
    grid = np.array([one.grid for one in trace.launches], np.int64).reshape(-1, 3)
    return {
        "begin": begin, "end": end, "kernel": narrow(kernel), "x": narrow(grid[:, 0]), "y": narrow(grid[:, 1]),
        "z": narrow(grid[:, 2]),
    }  # fmt: skip


def _figures(total: Figures, axes: figures.Axes) -> dict[str, np.ndarray[Any, Any]]:
    longest = total.longest()
    return {
        "histogram": narrow(total.histogram.ravel()), "by_place": total.by_place.ravel(),
        "by_warp": total.by_warp.ravel(), "by_block": total.by_block.ravel(),
        "first_block": narrow(axes.first_block), "last_block": narrow(axes.last_block),
        "long_name": narrow(longest.name), "long_warp": narrow(longest.warp), "long_begin": longest.begin_ns,
        "long_ns": longest.dur_ns,
    }  # fmt: skip
