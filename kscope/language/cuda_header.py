"""kscope.cuh, the CUDA C++ header: its folder, and which sources use it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import MissingError
from ..instrument import registry

HEADER, MACRO = "kscope.cuh", "KSCOPE_"
"""The header's name, and how its macros begin."""
_INCLUDE = re.compile(r"""^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]""", re.M)


def cuda_include() -> str:
    """The folder of kscope.cuh, for a compiler's -I: ``nvcc -I$(python -m kscope include)``.

    Raises:
        MissingError: the installation lacks the header.
    """
    package = registry.folder("cuda")
    if package is None or not (package / "include" / HEADER).is_file():
        raise MissingError("the frontend of CUDA C++ has no kscope.cuh: reinstall kscope")
    return str(package / "include")


def source_uses_header(source: str, folders: Iterable[str]) -> bool:
    """True if CUDA C++ source, or a user's header that it includes, names kscope's header or a macro of it.

    Args:
        source: its text.
        folders: where headers are, besides the current folder and that of the including file.
    """
    return any(MACRO in text or HEADER in text for text in with_headers(source, folders))


def with_headers(source: str, folders: Iterable[str]) -> Iterator[str]:
    """The source, and the text of each user's header that it includes, also indirectly.

    Args:
        source: its text.
        folders: where headers are, besides the current folder and that of the including file.
    """
    found, read, places = [(source, Path())], set[Path](), [Path(), *map(Path, folders)]
    while found:
        text, folder = found.pop()
        yield text
        for name in _INCLUDE.findall(text):
            path = next((path for one in (folder, *places) if (path := one / name).is_file()), None)
            if path is not None and path.name != HEADER and (path := path.resolve()) not in read:
                read.add(path)
                found.append((path.read_text(errors="replace"), path.parent))
