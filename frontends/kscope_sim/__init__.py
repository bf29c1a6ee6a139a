"""A GPU that is a Python program: kernels are functions, warps are called one after the other.

It records through the same layout and the same protocol as a GPU does, and is their definition: what
a frontend's kernel writes must equal, but for time, what the simulator writes.

    def kernel(warp):
        with kscope.region("load"):
            warp.work(400)

    with kscope.profile() as prof:
        kscope_sim.launch(kernel, grid=8, block=128)
"""

from __future__ import annotations

from .backend import SimBackend
from .frontend import SimFrontend
from .launch import launch
from .machine import Machine
from .warp import Warp

__all__ = ["Machine", "SimBackend", "SimFrontend", "Warp", "launch"]
