"""Shared parts of tests of the report: recordings, and queries to its page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import synth
from browser.chromium import Page
from synth import Rec, instant

from kscope.capture.capture import Capture, load_capture
from kscope.capture.layout import Kind
from kscope.trace import Trace, decode

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FRAME = "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => drawn(true))))"
Show = Callable[[Trace], Page]


def golden(name: str) -> Trace:
    """A recording of an H200."""
    return decode(load_capture(GOLDEN / f"{name}.kscope"))


def bulk(slabs: int = 400, records: int = 90) -> Trace:
    """Blocks of eight warps in five waves on 50 SMs."""
    lines = synth.bulk(slabs, records, waves=5)
    return decode(Capture(synth.EPOCH, (synth.device(lines, tick_ns=32),), (synth.module(("load", "dot", "tile")),)))


def odd() -> Trace:
    """Points, counters, values, crossing spans, an unfinished warp, lost records."""
    records = [
        Rec("load", 2000, 2300),
        Rec("dot", 2100, 2400, Kind.SPAN_VALUE, -5),
        instant("mark", 2500),
        *(Rec("queue", at, at, Kind.COUNTER, at % 7) for at in range(2600, 3600, 50)),
        Rec("tile", 1990, 4600),
    ]
    names = ("load", ("dot", "i32"), "mark", ("queue", "u32"), "tile")
    slabs = [synth.slab(records, log2=5, sm=3, warp=warp, end=5000 if warp else None) for warp in range(3)]
    return decode(synth.capture(*slabs, names=names, lost=2))


def window(page: Page) -> tuple[float, float]:
    """[begin, end] that is shown, ns."""
    begin, end = page.run(f"{FRAME}.then(() => [view.begin, view.end])")
    return begin, end


def corner(page: Page, which: str) -> tuple[float, float, float, float]:
    """x, y, width, height of a canvas."""
    box = f"document.querySelector('{which} canvas').getBoundingClientRect()"
    x, y, width, height = page.run(f"(({{ x, y, width, height }}) => [x, y, width, height])({box})")
    return x, y, width, height


def middle(page: Page, which: str) -> tuple[float, float]:
    """The middle of a canvas, right of the labels."""
    x, y, width, height = corner(page, which)
    return x + (width + 118) / 2, y + height / 2


def text(page: Page, selector: str) -> str:
    """The text of an element."""
    found: str = page.run(f"{FRAME}.then(() => document.querySelector({selector!r}).textContent)")
    return found


def painted(page: Page, which: str) -> int:
    """How many pixels of a canvas, right of the labels, are not empty."""
    code = f"""{FRAME}.then(() => {{
        const canvas = document.querySelector('{which} canvas');
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', {{ willReadFrequently: true }});
        copy.drawImage(canvas, 0, 0);
        const {{ data }} = copy.getImageData(118, 0, canvas.width - 118, canvas.height);
        let count = 0;
        for (let i = 3; i < data.length; i += 4) count += data[i] > 0;
        return count; }})"""
    found: int = page.run(code)
    return found
