"""profile(torch=p): when both have ended, a session's capture and torch.profiler's trace become one timeline. torch
writes a trace only once, so its method export_chrome_trace() is replaced on the object: kscope gets the file, and the
program may still export anywhere.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import KscopeError, UsageError
from ..util.atomic_files import replacing

if TYPE_CHECKING:
    from ..instrument.backend import Backend
    from ..merging.torch import Merged
    from ..trace import Trace

_GZIP = ".gz"


class TorchProfiler:
    """A profiler of torch that records beside a session.

    Args:
        profiler: a torch.profiler.profile, not yet ended.
        path: of the session's capture; the torch trace is written beside it as NAME.torch.json.gz, and both as
            NAME.pftrace. None for no files.

    Raises:
        UsageError: not a torch.profiler.profile.
    """

    def __init__(self, profiler: Any, path: Path | None) -> None:
        if not callable(getattr(profiler, "export_chrome_trace", None)) or not hasattr(profiler, "on_trace_ready"):
            raise UsageError(
                f"profile(torch={profiler!r}): expected the profiler, as in `with torch.profiler.profile() as p, "
                "kscope.profile(torch=p):`"
            )
        self.path = path
        self.merged: Merged | None = None
        self._profiler, self._export = profiler, profiler.export_chrome_trace
        self._before: Callable[[Any], object] | None = profiler.on_trace_ready
        self._exported: Path | None = None
        self._trace: Trace | None = None
        self._folder: str | None = None
        profiler.export_chrome_trace, profiler.on_trace_ready = self._exports, self._ready

    def recorded(self, trace: Trace) -> None:
        """Take the trace of the ended session."""
        self._trace = trace
        self._merge()

    def _exports(self, path: str | os.PathLike[str], *rest: Any, **more: Any) -> None:
        """torch's export the first time, a copy of its file afterwards."""
        if self._exported is None:
            self._export(os.fspath(path), *rest, **more)
            self._exported = Path(path)
        else:
            _copy(self._exported, Path(path))

    def _ready(self, profiler: Any) -> None:
        """Take the profiler's trace: at its end, or at the end of a cycle of its schedule."""
        self._exported = None
        if self._before is not None:
            self._before(profiler)
        if self._exported is None:
            self._exports(self._file())
        self._merge()

    def _file(self) -> Path:
        if self.path is not None:
            return self.path.with_name(f"{self.path.stem}.torch.json.gz")
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="kscope-")
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return Path(self._folder, "torch.json.gz")

    def _merge(self) -> None:
        """Merge if both have ended. In the program's own profiler nothing raises."""
        if self._trace is None or self._exported is None:
            return
        from ..merging.entry import merge  # recording alone does not need it

        try:
            self.merged = merge(self._trace, self._exported)
            if self.path is not None:
                self.merged.write(self.path.with_suffix(".pftrace"))
        except (KscopeError, OSError) as error:
            warnings.warn(f"profile(torch=...): not merged: {error}", RuntimeWarning, stacklevel=3)


class WithTorch:
    """The parts of a session with torch=."""

    _torch: TorchProfiler | None
    _backends: dict[str, Backend]

    def _read_timers(self, when: str) -> None:
        """Bound the clocks at the session's "begin" or "end", where torch's profiler records too."""
        for backend in self._backends.values() if self._torch is not None else ():
            backend.read_timers(when)

    @property
    def merged(self) -> Merged:
        """The capture beside the trace of torch.profiler, with `trace`, `bounds` and `write(path)`.

        Raises:
            UsageError: the session has no torch=, one of both has not ended, or they could not be merged.
        """
        if self._torch is None:
            raise UsageError("prof.merged: only with kscope.profile(torch=p)")
        if self._torch.merged is None:
            raise UsageError(
                "prof.merged: both must have ended, the session and torch's profiler; a warning says why they "
                "cannot be merged"
            )
        return self._torch.merged


def _copy(source: Path, target: Path) -> None:
    """Copy a file, packed or unpacked by its suffixes."""
    import gzip

    unpack, pack = source.name.endswith(_GZIP), target.name.endswith(_GZIP)
    with gzip.open(source) if unpack else source.open("rb") as file, replacing(target) as out:
        if pack:
            with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1) as packed:
                shutil.copyfileobj(file, packed)
        else:
            shutil.copyfileobj(file, out)
