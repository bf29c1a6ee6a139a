"""The handler "kscope" of torch's worker server (torch.distributed's control plane and debug server): reports where the
warps of sessions with survive= are. torch calls it in a thread of the server, while a kernel hangs and the other
threads wait for it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

from ..capture.pools import pool_folder
from ..capture.pools.pool_reading import open_pool
from ..errors import KscopeError
from ..watching import text
from ..watching.verdict import verdict

NAME = "kscope"
_MODULE = "torch._C._distributed_c10d"
_SERVERS = "TORCH_WORKER_SERVER_SOCKET", "torch.distributed.debug"
"""The variable of torchelastic's server, the module of the debug server: programs with neither have no server."""


def register() -> None:
    """Add the handler to torch, if the program may have a server. Idempotent."""
    torch = sys.modules.get(_MODULE)
    if torch is None or not (_SERVERS[0] in os.environ or _SERVERS[1] in sys.modules):
        return
    add, names = getattr(torch, "_register_handler", None), getattr(torch, "_get_handler_names", None)
    if add is not None and names is not None and NAME not in names():
        # torch drops its reference after Python has ended, where the last one must not go: this one stays
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_answer))
        add(NAME, _answer)


def words() -> str:
    """A report of where this process's warps are; one line of explanation if no session of it has survive=."""
    found = []
    for path in pool_folder.of_process(os.getpid()):
        try:
            found += [*text.lines(verdict(open_pool(path)))]
        except (KscopeError, OSError) as error:
            found.append(str(error))
    return "\n".join([*(found or ["no session with survive= records in this process"]), ""])


def _answer(request: Any, response: Any) -> None:
    response.set_content(words(), "text/plain")
    response.set_status(200)
