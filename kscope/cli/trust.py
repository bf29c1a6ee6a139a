"""`kscope trust`: whether a recording can be trusted. Each of its commands uses another method.

kscope trust overhead CAPTURE    what recording cost, computed from the capture
kscope trust perturb SCRIPT      the kernels' builds and times with marks and without
kscope trust ipc CAPTURE         against the instructions that another tool counted, or that the code has
"""

from __future__ import annotations

import argparse

from . import ipc, overhead, perturb
from .command import Command, Listed, commands, no_command


def add(command: Command) -> None:
    """Add the command and its own commands to the parser."""
    parser = command(
        "trust", no_command, "the cost of recording, kernels with marks and without, instruction counts",
        description="Can I trust this recording? Three checks by different methods.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    listed = Listed(commands(parser, metavar="HOW"))
    listed.group("how")
    for one in (overhead, perturb, ipc):
        one.add(listed)
    parser.epilog = listed.text()
