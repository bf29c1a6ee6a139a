"""`kscope doctor`: what this machine has of what kscope needs, one line each.

What lives here: printing. What does not: finding out (kscope/doctor.py).
"""

from __future__ import annotations

import argparse
from typing import Any

from .checkup import examine

_MARK = {"ok": "ok", "missing": "--", "broken": "!!"}


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Adds the command to the grammar."""
    parser = commands.add_parser(
        "doctor", parents=[common], help="what works on this machine, and what a region costs on it", allow_abbrev=False
    )
    parser.set_defaults(command=doctor)


def doctor(options: argparse.Namespace) -> int:
    """Runs the command: 0, or 1 where something is installed and does not work."""
    broken = False
    for finding in examine():
        print(f"{_MARK[finding.state]}  {finding.what:10} {finding.text}", flush=True)
        broken |= finding.state == "broken"
    return int(broken)
