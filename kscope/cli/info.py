"""`kscope info FILE`: how and where a capture was recorded."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..tracedata.info import Info, info
from ..tracedata.recording_facts import CLOCKS
from ..util.terminal import cut, wrapped
from ..util.terminal import terminal_width as columns
from ..util.text import counted
from .common import filters, json_output
from .common.command_parser import Command


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command("info", show)
    parser.add_argument("capture", metavar="CAPTURE", type=Path, help="a .kscope file")
    json_output.add(parser)
    filters.add_opening(parser)


def show(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    trace = filters.open_trace(options.capture, options)
    found = info(trace)
    if options.json:
        problems = [one.as_dict() for one in trace.problems]
        print(json_output.answer(options, {"file": str(options.capture), "problems": problems}, trace))
        return 0
    rows = _rows(found)
    width = max(len(name) for name, _ in rows)
    print("\n".join(cut(f"{name.ljust(width)}  {text}", columns()) for name, text in rows))
    for one in trace.problems:
        print("\n".join(wrapped(f"! {one.text}", columns())))
    return 0


def _rows(found: Info) -> list[tuple[str, str]]:
    """The known facts as (name, text)."""
    gpus = [f"{one.name}{one.uuid and f', {one.uuid}'}" for one in found.gpus]
    every = f"one per SM sub-partition and {found.stall_period:,} cycles"
    rows = [
        ("recorded by", found.source),
        *((f"device {one.device}", text) for one, text in zip(found.gpus, gpus, strict=True)),
        ("driver", found.driver),
        ("versions", ", ".join(f"{name} {version}" for name, version in found.versions.items())),
        ("date", found.date),
        ("command", found.command),
        ("process", found.process),
        ("strategy", found.strategy),
        ("placement", found.placement_text),
        ("recorded", ", ".join(f"{name} {text}" for name, text in found.subset.items()) or "all blocks, warps and SMs"),
        *((f"survive, {name}", place) for name, place in found.survive.items()),
        ("clock", CLOCKS[found.clock]),
        ("kernels", ", ".join(found.kernels)),
        ("launches", f"{found.launches:,}"),
        ("blocks", found.blocks_text),
        ("warps", f"{found.warps:,}"),
        ("lanes", f"{found.lanes:,}" if found.lanes else ""),
        ("records", f"{found.records:,}"),
        ("stalls", f"{counted(found.stall_samples, 'sample')}, {every}" if found.stall_period else ""),
    ]
    return [(name, text) for name, text in rows if text]
