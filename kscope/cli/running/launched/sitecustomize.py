"""Imported by Python as it starts: a child of a launcher becomes `kscope run` of its script."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_HERE = os.path.dirname(__file__)


def recording_command(command: Sequence[str], flags: Sequence[str]) -> list[str] | None:
    """The command line that records a command line of Python; None for one without a script or module.

    Args:
        command: the interpreter and its arguments.
        flags: `run` and its options.
    """
    at = 1
    while at < len(command) and command[at].startswith("-") and command[at] not in ("-", "-c", "-m"):
        at += 2 if command[at] in _WITH_VALUE else 1
    if at >= len(command) or command[at] in ("-", "-c"):
        return None
    return [sys.executable, *command[1:at], os.path.join(_HERE, "__main__.py"), *flags, *command[at:]]


def _start() -> None:
    flags = json.loads(os.environ.pop("KSCOPE_RUN"))
    path = os.environ.pop("PYTHONPATH", "").split(os.pathsep)
    rest = [folder for folder in path if folder != _HERE]
    if rest:
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)
    if command := recording_command(sys.orig_argv, flags):
        os.execv(sys.executable, command)
    # not a script: continue with the environment's own sitecustomize
    sys.path[:] = [folder for folder in sys.path if folder != _HERE]
    spec = PathFinder.find_spec(__name__, sys.path)
    if spec is not None and spec.loader is not None:
        sys.modules[__name__] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[__name__])


if "KSCOPE_RUN" in os.environ:
    _start()
