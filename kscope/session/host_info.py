"""Facts about the process in a capture: versions, machine, place in a job, command and times."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..instrument import registry
from .launcher import place


def facts(started: int) -> dict[str, Any]:
    """The facts, ready for JSON. started: when the session began, UNIX ns."""
    versions = {"kscope": __version__, "python": platform.python_version(), "numpy": np.__version__}
    versions |= dict(registry.version(one) for one in registry.table().values() if one.dsl in sys.modules)
    if isinstance(torch := getattr(sys.modules.get("torch"), "__version__", None), str):
        versions["torch"] = torch  # its compiler writes kernels
    versions.pop("", None)
    here = place()
    return {
        "versions": versions,
        "hostname": os.uname().nodename,
        "pid": os.getpid(),
        "rank": here.rank,
        "world": here.world,
        **({"driver": driver} if (driver := _driver()) else {}),
        "machine": f"{platform.system()} {platform.machine()}",
        "command": list(sys.argv),
        "started": started,
        "ended": time.time_ns(),
    }


def _driver() -> str:
    """The version of NVIDIA's driver according to Linux; empty without one."""
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return ""
