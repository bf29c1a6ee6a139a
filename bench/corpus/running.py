"""A checkout's packages, imported to run as they are, but for packages that their kernels do not need."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton

from .loading import Nothing

PROJECTS = ("liger", "fla", "gems", "unsloth")

GATHERED = ("unsloth", "unsloth.kernels")
"""Packages whose own code is not run: it imports transformers and more."""
MISSING = frozenset({"unsloth_zoo", "transformers"})
"""Packages that these import, and that are not installed."""
_NEWEST = 5
"""Triton 3.x from here on is launched as this one: FlagGems leaves out constants for versions that it does not know."""


class _Finder:
    """Finds a stand-in for a package that a gathered one imports."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, Nothing(), is_package=True) if name.partition(".")[0] in MISSING else None


def serve(folder: Path, project: str) -> None:
    """From here on the project's packages are imported from this folder."""
    sys.path.insert(0, str(folder))
    if project == "gems":
        os.environ.setdefault("GEMS_VENDOR", "nvidia")
    if project == "unsloth":
        sys.meta_path.append(_Finder())
        for name in GATHERED:
            module = ModuleType(name)
            module.__path__ = [str(folder.joinpath(*name.split(".")))]
            sys.modules[name] = module
        import_module("unsloth_zoo.utils").__dict__["Version"] = import_module("packaging.version").Version
    if project == "gems":
        entry = import_module("flag_gems.utils.libentry")
        entry.__dict__["minor_version"] = min(entry.minor_version, _NEWEST)


def with_few_configurations(most: int) -> None:
    """Autotuners try at most so many configurations: the first ones."""
    original = triton.runtime.Autotuner.__init__

    def init(self: Any, *given: Any, **named: Any) -> None:
        original(self, *given, **named)
        self.configs = self.configs[:most]

    triton.runtime.Autotuner.__init__ = init  # type: ignore[method-assign]


def forget() -> None:
    """FlagGems keeps compiled kernels by arguments, and launches these: their form is that of their first launch."""
    if (entry := sys.modules.get("flag_gems.utils.libentry")) is None:
        return
    for one in gc.get_objects():
        if type(one) is entry.LibEntry:
            for cache in one.kernel_cache:
                cache.clear()


def results(work: Any) -> list[torch.Tensor]:
    """Copies of what a work returns."""
    found = [one.detach().clone() for one in work()]
    if found and found[0].is_cuda:
        torch.cuda.synchronize()
    return found
