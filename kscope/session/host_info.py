"""What a capture says of the process that recorded it.

What lives here: versions and the command. What does not: devices (backends say what they are).
"""

from __future__ import annotations

import platform
import sys
import time
from typing import Any

import numpy as np

from .._version import __version__
from ..instrument import registry


def facts(started: int) -> dict[str, Any]:
    """Versions of kscope, Python, numpy and the imported DSLs, the command, and when (unix ns)."""
    versions = {"kscope": __version__, "python": platform.python_version(), "numpy": np.__version__}
    for entry in registry.table().values():
        version = getattr(sys.modules.get(entry.dsl), "__version__", None)
        if isinstance(version, str):
            versions[entry.dsl] = version
    return {
        "versions": versions,
        "machine": f"{platform.system()} {platform.machine()}",
        "command": list(sys.argv),
        "started": started,
        "ended": time.time_ns(),
    }
