"""`--from flashinfer --names load,dot`: another profiler's buffer or file in the place of a capture.

    --from nuggets:units=132,compact    what the reader takes, after a colon

What lives here: these flags as arguments of a reader. What does not: the readers (kscope/readers).
"""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..trace import Trace

_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None}


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    group = parser.add_argument_group("data of another profiler")
    group.add_argument(
        "--from", dest="reader", metavar="FORMAT",
        help="CAPTURE is its buffer (.npy, or plain bytes) or file: flashinfer, mirage, triton-distributed, "
        "nuggets:units=132,compact, sm-profiler, proton:mhz=1980",
    )  # fmt: skip
    group.add_argument("--names", metavar="LIST", help="of its events, in order of their ids: load,dot,store")


def read(path: Path, options: argparse.Namespace) -> Trace:
    """The trace of the file. Raises UsageError for a format or an option that there is not."""
    from ..readers import READERS  # only for those who ask for it

    name, _, rest = options.reader.partition(":")
    if name not in READERS:
        raise UsageError(f"--from {name}: no such format; known ones are {', '.join(READERS)}")
    taken = {
        key: one.default
        for key, one in inspect.signature(READERS[name]).parameters.items()
        if one.kind == one.KEYWORD_ONLY
    }
    given: dict[str, Any] = {}
    for part in rest.split(",") if rest else ():
        key, equals, value = part.partition("=")
        if key not in taken:
            raise UsageError(f"--from {options.reader}: {name} has no option {key!r}; it has {', '.join(taken)}")
        given[key] = _value(value if equals else "true", taken[key])
        if isinstance(taken[key], (bool, int)) and type(given[key]) is not type(taken[key]):
            kind = "true or false" if isinstance(taken[key], bool) else "a number"
            raise UsageError(f"--from {options.reader}: {key}={value} is not {kind}")
    if options.names is not None:
        if name == "proton":
            raise UsageError("--names: Proton's file has names of its own")
        given["names"] = options.names.split(",")
    trace: Trace = READERS[name](path, **given)
    return trace


def _value(text: str, default: Any) -> Any:
    if isinstance(default, str):
        return text
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
