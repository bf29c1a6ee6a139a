"""The source texts of sampled functions, which a capture keeps so that `kscope annotate` works elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ..capture.samples import SampledFunction
from ..instrument import source_texts

_MOST_FILE, _MOST_SOURCE = 1 << 20, 8 << 20
"""Most bytes of a source, and of all, in a capture."""
_KERNEL = re.compile(r"__global__[^;{(]*?\b(\w+)\s*\(")
_BOUNDS = re.compile(r"__launch_bounds__\s*\([^)]*\)")


def with_sources(functions: Iterable[SampledFunction]) -> tuple[tuple[SampledFunction, ...], dict[str, str]]:
    """The functions, and the texts of their files by path.

    Texts without a file share the name that they were compiled under. The second one is named kern.cu#2, in the places
    of its functions, too.
    """
    found, left, kept = dict[str, str](), _MOST_SOURCE, list[SampledFunction]()
    for function in functions:
        renamed = dict[str, str]()
        for file in sorted({file for chain in function.places for file, _ in chain}):
            text = _on_disk(file) if Path(file).is_absolute() else _compiled(file, function.name)
            if text is None:
                continue
            name = _free_name(file, text, found)
            if name not in found and len(text) > min(left, _MOST_FILE):
                continue
            left -= 0 if name in found else len(text)
            found[name], renamed[file] = text, name
        kept.append(_renamed(function, renamed) if any(old != new for old, new in renamed.items()) else function)
    return tuple(kept), found


def _on_disk(file: str) -> str | None:
    try:
        path = Path(file)
        if path.is_file() and path.stat().st_size <= _MOST_FILE:
            return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        pass
    return None


def _compiled(file: str, function: str) -> str | None:
    """The text that was compiled under this name; of several the only one with the kernel."""
    texts = source_texts.kept_texts(file)
    if len(texts) > 1:
        texts = [text for text in texts if any(_is(name, function) for name in _KERNEL.findall(_BOUNDS.sub("", text)))]
    return texts[0] if len(texts) == 1 else None


def _is(name: str, function: str) -> bool:
    """True if the function is the kernel of this name, mangled or not."""
    return name == function or (function.startswith("_Z") and f"{len(name)}{name}" in function)


def _free_name(file: str, text: str, found: dict[str, str]) -> str:
    name, number = file, 1
    while found.get(name, text) != text:
        number += 1
        name = f"{file}#{number}"
    return name


def _renamed(function: SampledFunction, names: dict[str, str]) -> SampledFunction:
    places = tuple(tuple((names.get(file, file), line) for file, line in chain) for chain in function.places)
    regions = tuple(replace(region, file=names.get(region.file, region.file)) for region in function.regions)
    return replace(function, places=places, regions=regions)
