"""Programs of a launcher, such as torchrun, under `kscope run`: each child of the launcher is recorded as its own run.

The children find this folder on PYTHONPATH, and import sitecustomize.py as they start, which runs `kscope run`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

LAUNCHERS = {
    "torch.distributed.run", "torch.distributed.launch", "torchrun", "accelerate.commands.launch", "accelerate",
    "deepspeed", "deepspeed.launcher.runner", "deepspeed.launcher.launch",
}  # fmt: skip
"""Modules, and names of scripts, that start programs and launch no kernels."""
FLAGS = "KSCOPE_RUN"
"""The environment variable that carries the options of `kscope run`, as JSON."""


def is_launcher(script: str, module: bool) -> bool:
    """True for a launcher of the programs to record."""
    return (script if module else Path(script).name) in LAUNCHERS


def environment(typed: Sequence[str], args: Sequence[str]) -> dict[str, str]:
    """The variables that make the launcher's children record.

    Args:
        typed: the command line of `kscope run`, without the program's name.
        args: the script's own arguments, the end of the command line.
    """
    flags = [flag for flag in typed[: len(typed) - len(args) - 1] if not re.fullmatch("-q*m|--", flag)]
    path = os.environ.get("PYTHONPATH")
    return {
        FLAGS: json.dumps(flags),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *([path] if path else [])]),
    }
