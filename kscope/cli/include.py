"""`kscope include`: print the folder of kscope.cuh."""

from __future__ import annotations

import argparse
from typing import Any

from ..language.cuda_header import cuda_include


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "include", parents=[common], help="the folder of kscope.cuh: nvcc -I$(kscope include)", allow_abbrev=False
    )
    parser.set_defaults(command=include)


def include(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    print(cuda_include())
    return 0
