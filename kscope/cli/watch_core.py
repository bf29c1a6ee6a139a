"""`kscope watch --core`: requests a dump of a program's GPU, which ends it, or reads a dump: where every warp was."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from ..core_dumps import request, text
from ..core_dumps.verdict import verdict
from ..errors import UsageError
from .common import dumped_modules, json_output


def show(options: argparse.Namespace) -> int:
    """Run the command with --core; returns the exit code."""
    if options.serve is not None or options.program is None:
        raise UsageError("--core: expected a process or a core dump, and no --serve: kscope watch --core PID|FILE")
    for path in _dumps(options.program):
        found = verdict(path, dumped_modules.describe)
        if options.json:
            print(json_output.answer(options, {"schema": "kscope.watch.core", **asdict(found)}, indent=False))
        else:
            print("\n".join(text.lines(found)), end="\n\n")
    return 0


def _dumps(program: str) -> list[Path]:
    if not program.isdecimal() or Path(program).exists():
        return [Path(program)]
    found = []
    for target in request.targets(int(program)):
        print(f"kscope: dumping the GPU of process {target.pid}, which ends it", file=sys.stderr, flush=True)
        found.append(request.dump(target))
    return found
