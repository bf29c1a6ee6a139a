"""`kscope trust`: whether a recording can be trusted. Each of its commands uses another method.

kscope trust overhead CAPTURE    what recording cost, computed from the capture
kscope trust perturb SCRIPT      the kernels' builds and times with marks and without
kscope trust ipc CAPTURE         instructions that another tool counted, or those in the machine code
"""

from __future__ import annotations

import argparse

from ..common.command_parser import Command, commands, listing, no_command
from . import ipc, overhead, perturb

CHECKS = {
    "overhead": "what recording cost, per region",
    "perturb": "a kernel with marks and without: registers, spills, occupancy, time",
    "ipc": "instructions per cycle of warps and regions, with CUTracer's counts or a cubin",
}
"""The commands and their help."""


def add(command: Command) -> None:
    """Add the command and its own commands to the parser."""
    parser = command(
        "trust", no_command,
        description="Can I trust this recording? Three checks by different methods.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    check = commands(parser, CHECKS, metavar="HOW")
    for one in (overhead, perturb, ipc):
        one.add(check)
    parser.epilog = listing({"how": CHECKS})
