"""`kscope include`: print the folder of kscope.cuh."""

from __future__ import annotations

import argparse

from ..language.cuda_header import cuda_include
from .common.command_parser import Command


def add(command: Command) -> None:
    """Add the command to the parser."""
    command("include", include)


def include(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    print(cuda_include())
    return 0
