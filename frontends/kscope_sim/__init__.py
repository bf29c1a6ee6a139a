"""A simulated GPU in Python: kernels are functions, and warps run one at a time.

It is the reference for the wire layout and the claim protocol: except for times, every frontend must record what the
simulator records.

    def kernel(warp):
        with kscope.region("load"):
            warp.work(400)

    with kscope.profile() as prof:
        kscope_sim.launch(kernel, grid=8, block=128)
"""

from .backend import SimBackend
from .barriers import Barrier
from .frontend import SimFrontend
from .launch import launch
from .machine import Machine
from .warp import Warp

__all__ = ["Barrier", "Machine", "SimBackend", "SimFrontend", "Warp", "launch"]
