"""The machine code of kernels with marks that frontends have loaded, for reading samples of stalls.

A library that samples shows only the modules that are loaded after its first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_MOST = 1 << 12
"""Files that are kept."""
_files: dict[Path, None] = {}


def keep(path: Path) -> None:
    """Remember the file of a cubin that was loaded. It is read when it is needed."""
    _files.pop(path, None)
    _files[path] = None
    if len(_files) > _MOST:
        _files.pop(next(iter(_files)))


def kept() -> Iterator[bytes]:
    """The cubins whose files still exist, newest first."""
    for path in reversed(list(_files)):
        with suppress(OSError):
            yield path.read_bytes()
