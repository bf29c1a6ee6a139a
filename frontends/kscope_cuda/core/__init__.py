"""cuda.core: programs compiled at run time that record.

    from kscope_cuda import core

    code = core.compile(source, ProgramOptions(std="c++17", arch="sm_90"))
    kernel = code.get_kernel("kernel")
    core.arm(code)

cuda.core's classes are compiled code without hook points, so compile() replaces
``Program(source, "c++", options).compile("cubin")``, and arm() the hook on loading.
"""

from .frontend import CoreFrontend
from .program import arm, compile

__all__ = ["CoreFrontend", "arm", "compile"]
