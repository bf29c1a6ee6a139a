"""kscope shows what happens inside a GPU kernel: marks in the kernel, one exact timeline out.

Most of the API is loaded on first use; with KSCOPE=1 in the environment, the import prepares as kscope.enable() does.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import readers
    from .capture.capture import Capture, load_capture
    from .errors import DriverError, FormatError, KscopeError, MissingError, PairingError, UnsupportedError, UsageError
    from .language.cuda_header import cuda_include
    from .language.helpers import block_id, clock, clock64, globaltimer, lane_id, smid, warp_id
    from .language.regions import begin, counter, end, instant, region, role, scope
    from .marks.strategies import AllThreads, Elected, Lane0Warp0, TargetWarp
    from .merging.entry import merge
    from .session.bind import bind
    from .session.profile import profile
    from .session.states import disable, enable
    from .trace import Trace, decode, load
    from .tracedata import transforms

from ._version import __version__

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
    "begin",
    "bind",
    "block_id",
    "clock",
    "clock64",
    "counter",
    "cuda_include",
    "decode",
    "disable",
    "enable",
    "end",
    "globaltimer",
    "instant",
    "lane_id",
    "load",
    "load_capture",
    "merge",
    "profile",
    "readers",
    "region",
    "role",
    "scope",
    "smid",
    "transforms",
    "warp_id",
]

_HOME = {
    "Capture": "capture.capture",
    "Trace": "trace",
    "bind": "session.bind",
    "cuda_include": "language.cuda_header",
    "decode": "trace",
    "load": "trace",
    "load_capture": "capture.capture",
    "merge": "merging.entry",
    "readers": "readers:",
    "transforms": "tracedata.transforms:",
    **dict.fromkeys(("AllThreads", "Elected", "Lane0Warp0", "TargetWarp"), "marks.strategies"),
    **dict.fromkeys(("block_id", "clock", "clock64", "globaltimer", "lane_id", "smid", "warp_id"), "language.helpers"),
    **dict.fromkeys(("begin", "counter", "end", "instant", "region", "role", "scope"), "language.regions"),
    "profile": "session.profile",
    **dict.fromkeys(("disable", "enable"), "session.states"),
    **dict.fromkeys((name for name in __all__ if name.endswith("Error")), "errors"),
}
"""Public name -> "module" with it, "module:other name", or "module:" for the module itself."""


def __getattr__(name: str) -> Any:
    """Loads a public name on first use (PEP 562); afterwards it is a plain attribute of the module."""
    if name not in _HOME:
        if os.path.isdir(os.path.join(__path__[0], name)):  # where `from .. import native` looks first
            raise AttributeError(name)
        from .util.text import nearest

        found = nearest(name, _HOME) or f"; it has {', '.join(sorted(_HOME))}"
        raise AttributeError(f"module 'kscope' has no attribute {name!r}{found}")
    home, colon, other = _HOME[name].partition(":")
    module = import_module(f".{home}", __name__)
    value = module if colon and not other else getattr(module, other or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if os.environ.get("KSCOPE", "0") not in ("", "0"):
    __getattr__("enable")()
