"""`kscope include`: where the header of CUDA C++ is.

What lives here: printing. What does not: finding it (kscope/including.py).
"""

from __future__ import annotations

import argparse
from typing import Any

from ..language.cuda_header import cuda_include


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Adds the command to the grammar."""
    parser = commands.add_parser(
        "include", parents=[common], help="the folder of kscope.cuh: nvcc -I$(kscope include)", allow_abbrev=False
    )
    parser.set_defaults(command=include)


def include(options: argparse.Namespace) -> int:
    """Runs the command."""
    print(cuda_include())
    return 0
