"""`kscope doctor`: what works on this machine, one line per component."""

from __future__ import annotations

import argparse

from .checkup import examine
from .command import Command

_MARK = {"ok": "ok", "missing": "--", "broken": "!!"}


def add(command: Command) -> None:
    """Add the command to the parser."""
    command("doctor", doctor, "what works on this machine, and what a region costs on it")


def doctor(options: argparse.Namespace) -> int:
    """Run the command; returns 1 if a component is installed but broken, else 0."""
    broken = False
    for finding in examine():
        print(f"{_MARK[finding.state]}  {finding.subject:10} {finding.text}", flush=True)
        broken |= finding.state == "broken"
    return int(broken)
