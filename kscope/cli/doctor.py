"""`kscope doctor`: what works on this machine, one line per component."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..instrument import registry
from .common import outputs
from .common.command_parser import Command
from .doctor_checks import examine

_MARK = {"ok": "ok", "missing": "--", "broken": "!!"}


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command("doctor", doctor)
    about = "measure the peak rates of the first GPU instead, and write them for kscope rates --peaks FILE"
    parser.add_argument("--peaks", metavar="FILE", type=Path, help=about)


def doctor(options: argparse.Namespace) -> int:
    """Run the command; returns 1 if a component is installed but broken, else 0."""
    if options.peaks is not None:
        found = registry.backend("cuda").peaks()
        outputs.text("--peaks", options.peaks, found.to_json().decode())
        print(f"{found.gpu}: {found}")
        return 0
    broken = False
    for finding in examine():
        print(f"{_MARK[finding.state]}  {finding.subject:10} {finding.text}", flush=True)
        broken |= finding.state == "broken"
    return int(broken)
