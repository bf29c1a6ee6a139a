"""`--from flashinfer --names load,dot`: read another profiler's buffer or file instead of a capture.

--from nuggets:units=132,compact    options of the reader follow a colon
"""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...session.capture_path import SUFFIX
from ...trace import Trace

_LITERALS: dict[str, Any] = {"true": True, "false": False, "none": None}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    group = parser.add_argument_group("data of another profiler")
    group.add_argument(
        "--from", dest="reader", metavar="FORMAT",
        help="CAPTURE is its buffer (.npy, or plain bytes) or file: flashinfer, mirage, triton-distributed, "
        "nuggets:units=132,compact, sm-profiler, proton:mhz=1980",
    )  # fmt: skip
    group.add_argument("--names", metavar="LIST", help="names of its events, in order of their ids: load,dot,store")


def read(path: Path, options: argparse.Namespace) -> Trace:
    """Read another profiler's data.

    Args:
        path: its buffer or file.
        options: the namespace with the flags of add().

    Returns:
        The trace.

    Raises:
        UsageError: unknown format or option, or an option's value has the wrong type.
    """
    from ...readers import READERS  # not needed by most commands

    name, _, rest = options.reader.partition(":")
    if name not in READERS:
        raise UsageError(f"--from {name}: unknown format; expected one of {', '.join(READERS)}")
    if path.suffix == SUFFIX:
        raise UsageError(f"--from {options.reader}: {path} is a capture of kscope; leave out --from")
    defaults = {
        key: one.default
        for key, one in inspect.signature(READERS[name]).parameters.items()
        if one.kind == one.KEYWORD_ONLY
    }
    given: dict[str, Any] = {}
    for part in rest.split(",") if rest else ():
        key, equals, value = part.partition("=")
        if key not in defaults:
            raise UsageError(
                f"--from {options.reader}: {name} has no option {key!r}; expected one of {', '.join(defaults)}"
            )
        given[key] = _value(value if equals else "true", defaults[key])
        if isinstance(defaults[key], (bool, int)) and type(given[key]) is not type(defaults[key]):
            kind = "true or false" if isinstance(defaults[key], bool) else "a number"
            raise UsageError(f"--from {options.reader}: {key}={value}: expected {kind}")
    if options.names is not None:
        if name == "proton":
            raise UsageError("--names: a Proton file already has names; drop the flag")
        given["names"] = options.names.split(",")
    trace: Trace = READERS[name](path, **given)
    return trace


def _value(text: str, default: Any) -> Any:
    if isinstance(default, str):
        return text
    if text.lower() in _LITERALS:
        return _LITERALS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
