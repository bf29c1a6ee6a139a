"""A file as a module that nothing else has imported."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def fresh(path: Path) -> ModuleType:
    """The module of a file, executed anew. Its functions are found in the file, where compilers read their source."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = sys.modules[path.stem] = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
