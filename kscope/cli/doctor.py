"""`kscope doctor`: what works on this machine, one line per component."""

from __future__ import annotations

import argparse
from typing import Any

from .checkup import examine

_MARK = {"ok": "ok", "missing": "--", "broken": "!!"}


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "doctor", parents=[common], help="what works on this machine, and what a region costs on it", allow_abbrev=False
    )
    parser.set_defaults(command=doctor)


def doctor(options: argparse.Namespace) -> int:
    """Run the command; returns 1 if a component is installed but broken, else 0."""
    broken = False
    for finding in examine():
        print(f"{_MARK[finding.state]}  {finding.subject:10} {finding.text}", flush=True)
        broken |= finding.state == "broken"
    return int(broken)
