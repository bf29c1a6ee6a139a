"""Speed of report.html: writing it, and opening it in Chromium.

    PYTHONPATH=.:tests python bench/report.py [--records 1_000_000 10_000_000] [--repeat 3]

Prints one table. *write* is trace to file, best of `repeat`; *open* is from the start of the navigation until the
overview, the warps of an SM and all panels are drawn, median of `repeat`, in a headless Chromium with software
drawing; *frame* is one drawing of both canvases; *all* is unpacking the records of every SM, which the page does
only when it is zoomed in far enough to need them. Without Chromium the browser's columns are empty.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from browser.chromium import Page, binary
from host import recorded
from rows import about_host

from kscope.trace import decode

_FRAME = """(() => {
    const times = [];
    for (let i = 0; i < 9; i++) {
        const start = performance.now();
        overview.key = ""; drawOverview(); drawLanes();
        times.push(performance.now() - start);
    }
    return times.sort((a, b) => a - b)[4]; })()"""
_ALL = """(async () => {
    const start = performance.now();
    for (let place = 0; place < model.about.places.length; place++) await placeSlices(place);
    return performance.now() - start; })()"""


@dataclass(frozen=True)
class Row:
    """Seconds; frame in milliseconds; NaN without a browser."""

    records: int
    write: float
    size: int
    open: float = float("nan")
    frame: float = float("nan")
    all: float = float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [measured(count, Path(folder) / "x.html", options.repeat) for count in options.records]
    show(rows)
    print(f"\n{about_host()}, load {os.getloadavg()[0]:.1f}")


def measured(count: int, path: Path, repeat: int) -> Row:
    """One row of the table. Each writing starts from a new trace."""
    times = []
    for _ in range(repeat):
        trace = decode(recorded(count))
        start = time.perf_counter()
        trace.export(path)
        times.append(time.perf_counter() - start)
    row = Row(len(trace), min(times), path.stat().st_size)
    program = binary()
    return row if program is None else opened(row, path, program, repeat)


def opened(row: Row, path: Path, program: str, repeat: int) -> Row:
    """The row with the browser's times."""
    with Page(program) as page:
        times = []
        for _ in range(repeat):
            page.open("about:blank")
            page.open(path)
            page.until("window.report && report.ready", 120)
            times.append(page.run("report.milliseconds") / 1000)
        frame = page.run(_FRAME)
        return Row(row.records, row.write, row.size, statistics.median(times), frame, page.run(_ALL) / 1000)


def show(rows: list[Row]) -> None:
    print("| records | write, s | MB | bytes each | open, s | frame, ms | all, s |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for row in rows:
        size = f"{row.size / 1e6:.1f} | {row.size / row.records:.1f}"
        print(f"| {row.records:,} | {row.write:.2f} | {size} | {row.open:.2f} | {row.frame:.1f} | {row.all:.2f} |")


if __name__ == "__main__":
    main()
