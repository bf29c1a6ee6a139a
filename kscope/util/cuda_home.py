"""The CUDA toolkits in the environment's variables."""

from __future__ import annotations

import os


def cuda_folders() -> list[str]:
    """Folders with programs of the toolkits in CUDA_HOME and CUDA_PATH."""
    return [os.path.join(home, "bin") for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]
