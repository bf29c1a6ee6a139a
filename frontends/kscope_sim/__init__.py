"""A GPU that is a Python program: kernels are functions, warps are called one after the other.

It is the reference for the wire layout and the claim protocol: apart from times, every frontend's kernel must write
what the simulator writes.

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
