"""kscope shows what happens inside a GPU kernel: marks in the kernel, one exact timeline out.

Everything a user needs stands here, and most is loaded when it is first used: `import kscope` imports
no DSL and no driver. KSCOPE=1 in the environment prepares at import, as kscope.enable() does.
What lives here: the list of public names and where they live. What does not: any of them.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import passes as passes
    from . import readers as readers
    from .binding import bind as bind
    from .capture import Capture as Capture
    from .capture import load as load
    from .device import block_id as block_id
    from .device import clock as clock
    from .device import clock64 as clock64
    from .device import globaltimer as globaltimer
    from .device import lane_id as lane_id
    from .device import smid as smid
    from .device import warp_id as warp_id
    from .errors import DriverError as DriverError
    from .errors import FormatError as FormatError
    from .errors import KscopeError as KscopeError
    from .errors import MissingError as MissingError
    from .errors import PairingError as PairingError
    from .errors import UnsupportedError as UnsupportedError
    from .errors import UsageError as UsageError
    from .including import cuda_include as cuda_include
    from .regions import counter as counter
    from .regions import instant as instant
    from .regions import region as region
    from .regions import scope as scope
    from .session import disable as disable
    from .session import enable as enable
    from .session import profile as profile
    from .strategies import AllThreads as AllThreads
    from .strategies import Elected as Elected
    from .strategies import Lane0Warp0 as Lane0Warp0
    from .strategies import TargetWarp as TargetWarp
    from .trace import Trace as Trace
    from .trace import decode as decode

__version__ = "0.1.0"

__all__ = [
    "AllThreads",
    "Capture",
    "DriverError",
    "Elected",
    "FormatError",
    "KscopeError",
    "Lane0Warp0",
    "MissingError",
    "PairingError",
    "TargetWarp",
    "Trace",
    "UnsupportedError",
    "UsageError",
    "__version__",
    "bind",
    "block_id",
    "clock",
    "clock64",
    "counter",
    "cuda_include",
    "decode",
    "disable",
    "enable",
    "globaltimer",
    "instant",
    "lane_id",
    "load",
    "passes",
    "profile",
    "readers",
    "region",
    "scope",
    "smid",
    "warp_id",
]

_HOME = {
    **dict.fromkeys(("bind",), "binding"),
    **dict.fromkeys(("Capture", "load"), "capture"),
    **dict.fromkeys(("block_id", "clock", "clock64", "globaltimer", "lane_id", "smid", "warp_id"), "device"),
    **dict.fromkeys(("counter", "instant", "region", "scope"), "regions"),
    **dict.fromkeys(("cuda_include",), "including"),
    **dict.fromkeys(("disable", "enable", "profile"), "session"),
    **dict.fromkeys(("AllThreads", "Elected", "Lane0Warp0", "TargetWarp"), "strategies"),
    **dict.fromkeys(("Trace", "decode"), "trace"),
    **{name: name for name in ("passes", "readers")},
    **dict.fromkeys((name for name in __all__ if name.endswith("Error")), "errors"),
}


def __getattr__(name: str) -> Any:
    """Loads a public name on first use (PEP 562); afterwards it is a plain attribute of the module."""
    if name not in _HOME:
        raise AttributeError(f"module 'kscope' has no attribute {name!r}; it has {', '.join(sorted(_HOME))}")
    module = import_module(f".{_HOME[name]}", __name__)
    value = module if name == _HOME[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if os.environ.get("KSCOPE", "0") not in ("", "0"):
    __getattr__("enable")()
