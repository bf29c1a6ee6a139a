"""Kernels by name or hash: `profile(kernel="attn_*")`, applied to the recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np

from ..capture import layout
from ..capture.capture import Capture
from ..capture.capture_data import DeviceCapture
from ..capture.model import ModuleMeta, Problem
from ..decoding import slabs
from ..errors import UsageError
from ..instrument import registry
from ..instrument.selection.auto import Selection, unmatched
from ..marks.operations import PIPELINE
from ..tracedata.kernel_names import hashed
from .used_devices import used_devices


@dataclass(frozen=True)
class Patterns:
    """Shell patterns of kernel names, and kernels' hashes; none = all."""

    globs: tuple[str, ...] = ()

    @staticmethod
    def of(kernels: str | Sequence[str] | None) -> Patterns:
        """Parse a user's argument: one pattern or several. Raises UsageError."""
        if kernels is None:
            return Patterns()
        globs = (kernels,) if isinstance(kernels, str) else tuple(kernels) if isinstance(kernels, Sequence) else ()
        if not globs or not all(isinstance(glob, str) and glob for glob in globs):
            raise UsageError(f"kernel={kernels!r}: expected a pattern of names such as 'attn_*', or several")
        return Patterns(globs)

    @property
    def names(self) -> tuple[str, ...]:
        """The name patterns, for selection at compile time; empty if one is a hash, which is unknown then."""
        return () if any(hashed(glob) is not None for glob in self.globs) else self.globs

    def match(self, name: str, number: int) -> bool:
        """True if the kernel of that name and hash is kept."""
        return not self.globs or any(fnmatchcase(name, glob) or hashed(glob) == number for glob in self.globs)


def only(capture: Capture, patterns: Patterns) -> Capture:
    """The capture with the matching kernels only, without problems of the other kernels' regions, and with a problem if
    none matches or none of them recorded.

    Lost warps stay counted: their kernels are unknown."""
    if not patterns.globs:
        return capture
    modules, kept = [], set[int]()
    for module in capture.modules:
        kernels = tuple(kernel for kernel in module.kernels if patterns.match(kernel.name, kernel.id))
        kept.update(kernel.id for kernel in kernels)
        if kernels:
            modules.append(replace(module, kernels=kernels))
    recorded = {number for device in capture.devices for number in _kernels(device, capture.epoch)}
    devices = tuple(_lines(device, capture.epoch, kept) for device in capture.devices)
    known = {kernel.id: kernel.name for module in capture.modules for kernel in module.kernels}
    others = {*known.values()} - {known[number] for number in kept}
    problems = tuple(one for one in capture.problems if not (one.region and one.kernel in others))
    globs = ", ".join(patterns.globs)
    if known and not kept:
        marked = ", ".join(sorted({*known.values()}))
        problems += (Problem("nothing", f"kernel={globs} matches no kernel; kernels with marks: {marked}"),)
    elif recorded and not recorded & kept:
        did = ", ".join(sorted({known.get(number, f"0x{number:x}") for number in recorded}))
        problems += (Problem("nothing", f"no kernel that matches kernel={globs} recorded; these did: {did}"),)
    return replace(capture, modules=tuple(modules), devices=used_devices(devices), problems=problems)


def unselected(selection: Selection, modules: Sequence[ModuleMeta], frontends: Sequence[str]) -> list[Problem]:
    """Problems of auto= and mark= that marked nothing in the modules, or that no frontend supports."""
    able = {what for name in frontends for what in registry.frontend(name).selects}
    if "kinds" in able:
        able.add("pipeline")
    possible = replace(selection, kinds=tuple(kind for kind in selection.kinds if _what(kind) in able))
    found = list(unmatched(possible, modules))
    texts = {"kinds": "auto= (kinds of operation)", "pipeline": 'auto="pipeline"', "lines": "mark= (lines of source)"}
    requested = {*map(_what, selection.kinds), *(["lines"] if selection.lines else [])}
    missing = [text for what, text in texts.items() if what in requested and what not in able]
    if missing and frontends:
        names = ", ".join(frontends)
        found.append(Problem("nothing", f"{' and '.join(missing)}: not supported by the imported DSLs ({names})"))
    return found


def _what(kind: str) -> str:
    """The feature that a frontend needs to select a kind of operation, see Frontend.selects."""
    return PIPELINE if kind == PIPELINE else "kinds"


def _kernels(device: DeviceCapture, epoch: int) -> list[int]:
    """Ids of the kernels that claimed a slab."""
    ids: list[int] = np.unique(slabs.find(device.lines, epoch)[0].header["kernel"]).tolist()
    return ids


def _lines(device: DeviceCapture, epoch: int, kept: set[int]) -> DeviceCapture:
    found, _ = slabs.find(device.lines, epoch)
    out = ~np.isin(found.header["kernel"], np.array(sorted(kept), np.uint64))
    if not out.any():
        return device
    size = layout.HEADER_LINES + found.room(out) // layout.RECORDS_PER_LINE
    ends = np.zeros(len(device.lines) + 1, np.int64)
    np.add.at(ends, found.line[out], 1)
    np.add.at(ends, found.line[out] + size, -1)
    return replace(device, lines=device.lines[np.cumsum(ends[:-1]) == 0])
