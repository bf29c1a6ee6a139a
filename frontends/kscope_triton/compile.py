"""The compiler's stages: lower the PTX of kernels with marks, and keep prepared and plain kernels apart
in every cache.
"""

from __future__ import annotations

import subprocess
import threading
import warnings
from collections.abc import Callable, MutableMapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton.backends.nvidia import compiler as nvidia
from triton.backends.nvidia.compiler import CUDABackend

from kscope.capture import metadata as meta
from kscope.capture.model import Problem
from kscope.errors import UnsupportedError, UsageError
from kscope.instrument.hooks import Hook
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalogue
from kscope.instrument.selection.catalogue import Listed
from kscope.lowering import register_budget
from kscope.lowering.plan import without_marks
from kscope.marks.grammar import Mark, format_name, parse
from kscope.util.text import install_command

from .select import Marking

_HOOK_HAS_KEY = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 7)
META, LOST = "kscope", "kscope_lost"
"""Keys in a kernel's metadata, which its disk cache keeps: the module's own, or why it has none."""
_HOOK, _HASH = "add_stages_inspection_hook", "hash"


class Pipeline:
    """What the hook in Triton's slot does while recording is enabled."""

    def __init__(self) -> None:
        self.recording: Recording | None = None
        self._tag, self._keys = "", ("", "")
        self._slot: Slot | None = None
        self._hash = Hook(CUDABackend, _HASH, lambda original, backend: original(backend) + self._tag)
        self._compiling = threading.local()
        self._always: bool | None = None

    def check(self) -> None:
        """Raises UnsupportedError naming the hook point that this Triton lacks."""
        points: list[tuple[Any, str]] = [
            (knobs.runtime, f"knobs.runtime.{_HOOK}"),
            (knobs.compilation, "knobs.compilation.instrumentation_mode"),
            (CUDABackend, "CUDABackend.hash"),
            (nvidia, "backends.nvidia.compiler.get_ptxas"),
            (nvidia, "backends.nvidia.compiler.sm_arch_from_capability"),
        ]
        for owner, point in points:
            if not hasattr(owner, point.rpartition(".")[2]):
                raise UnsupportedError(
                    f"triton {triton.__version__} has no {point}, which kscope needs to prepare kernels: "
                    f"{install_command('triton')} brings a version that works"
                )

    def install(self, recording: Recording) -> None:
        """Take the slot, or change the options of the hook that has it."""
        mode = knobs.compilation.instrumentation_mode
        if not _HOOK_HAS_KEY and mode not in ("", self._tag):
            raise UsageError(
                f"instrumentation_mode={mode!r} is set: Triton {triton.__version__} runs one kind of "
                "instrumentation at a time; switch the other off before kscope is enabled"
            )
        self.recording, self._tag = recording, recording.tag(Path(__file__).parent)
        self._keys = self._tag, self._tag
        found = getattr(knobs.runtime, _HOOK)
        if self._slot is None or found is not self._slot:  # over what another tool has put there since, too
            self._slot = Slot(self, found)
            setattr(knobs.runtime, _HOOK, self._slot)
        self._hash.install()
        if not _HOOK_HAS_KEY:
            knobs.compilation.instrumentation_mode = self._tag
        if catalogue.wanted() and self._always is None:  # what comes from a cache cannot be listed
            self._always, knobs.compilation.always_compile = knobs.compilation.always_compile, True

    def remove(self) -> None:
        """Give the slot back. A hook that another tool has put over ours keeps working: ours turns inert."""
        if self.recording is None:
            return
        if not _HOOK_HAS_KEY and knobs.compilation.instrumentation_mode == self._tag:
            knobs.compilation.instrumentation_mode = ""
        if self._always is not None:
            knobs.compilation.always_compile, self._always = self._always, None
        self.recording, self._tag, self._keys = None, "", ("", "")
        if self._slot is not None and getattr(knobs.runtime, _HOOK) is self._slot:
            setattr(knobs.runtime, _HOOK, self._slot.previous)
        self._slot = None
        self._hash.remove()

    def placed(self, mark: Mark) -> None:
        """A mark entered the IR of the kernel that this thread compiles."""
        log = getattr(self._compiling, "names", None)
        if log is not None:
            log.add(mark.name)

    def keys(self, slot: Slot) -> tuple[str, str]:
        """The key and the hash of what the hook does; nothing, where it is not in Triton's slot any more."""
        return self._keys if slot is self._slot else ("", "")

    def wrap(self, slot: Slot, backend: Any, stages: MutableMapping[str, Any], options: Any, capability: int) -> None:
        """Wrap the stages of a compilation that asked this hook."""
        recording = self.recording
        if slot is not self._slot or recording is None or "ptx" not in stages:
            return
        names: set[str] = set()
        self._compiling.names = names
        marking = Marking(recording.selection, names, capability)
        inner = stages["ptx"]

        def ptx(source: Any, metadata: dict[str, Any]) -> str:
            text = inner(source, metadata)
            kernel = metadata["name"]
            lost = _removed(kernel, text, names)
            known = lost + [replace(one, text=f"kernel {kernel}: {one.text}") for one in marking.problems]
            measure = partial(_assemble, backend=backend, options=options)
            lowered = register_budget.lower_to_fit(
                text, recording, frontend="triton", measure=measure, known=known, source=marking.source_info
            )
            if lowered.text is not text:
                metadata[META] = meta.to_json(lowered.meta).decode()
            elif lost:  # the module carries nothing that could tell
                metadata[LOST] = lost[0].text
            for problem in lowered.problems or known:
                warnings.warn(f"kscope: {problem.text}", stacklevel=2)
            if catalogue.wanted():
                sites = tuple(span.site() for span in marking.spans)
                build = partial(_built, without_marks(text), lowered.text, backend, options)
                target = nvidia.sm_arch_from_capability(backend.target.arch)
                catalogue.note(Listed("triton", kernel, target, sites, build))
            return lowered.text

        stages["ptx"] = ptx
        for stage in stages.keys() & {"ttgir", "llir"}:
            stages[stage] = getattr(marking, stage)(stages[stage])


class Slot:
    """What stands in Triton's slot for a pipeline: first the hook that stood there before, then ours. A new one every
    time that the slot is taken: the one under another tool's hook, which calls it, must not call that one."""

    def __init__(self, pipeline: Pipeline, previous: Callable[..., Any] | None) -> None:
        self.previous, self._pipeline = previous, pipeline

    def __call__(
        self,
        backend: Any = None,
        stages: MutableMapping[str, Any] | None = None,
        options: Any = None,
        language: Any = None,
        capability: int | None = None,
    ) -> tuple[str, str] | None:
        """Triton's hook: without stages the key and hash of what it does, else wrap the PTX stage."""
        if stages is None:
            keys = self._pipeline.keys(self)
            if self.previous is None:  # asked at every launch
                return keys
            key, hashed = self.previous()
            return f"{key}{keys[0]}", f"{hashed}{keys[1]}"
        if self.previous is not None:
            self.previous(backend, stages, options, language, capability)
        self._pipeline.wrap(self, backend, stages, options, capability or 0)
        return None


def _removed(kernel: str, text: str, placed: set[str]) -> list[Problem]:
    """Names that were placed in the IR and of which the compiler left no mark in the text."""
    found = {mark.name for mark in map(parse, text.splitlines()) if mark is not None}
    if not (removed := sorted(placed - found)):
        return []
    listed = ", ".join(map(format_name, removed))
    why = "automatic warp specialisation on sm_90 and code that can never run have this effect"
    text = f"kernel {kernel}: the Triton compiler removed every mark of {listed}; {why}"
    return [Problem("removed", text, len(removed))]


def _assemble(text: str, backend: Any, options: Any) -> register_budget.Usage | None:
    """What Triton's own assembler makes of the text."""
    done = register_budget.assemble(text, nvidia.get_ptxas(backend.target.arch).path, _flags(backend, options))
    return done.usage if done else None


def _flags(backend: Any, options: Any) -> tuple[str, ...]:
    """Triton's flags for its assembler that decide registers."""
    flags = [f"--gpu-name={nvidia.sm_arch_from_capability(backend.target.arch)}"]
    flags += [] if options.enable_fp_fusion else ["--fmad=false"]
    flags += ["--regAllocOptLevel=2"] if _HOOK_HAS_KEY else []
    flags += (options.ptx_options or "").split()
    return tuple(flags)


def _built(plain: str, marked: str, backend: Any, options: Any, folder: Path) -> tuple[Path, Path] | None:
    """Two cubins in a folder, without and with the marks; None where Triton's assembler refuses one."""
    paths = folder / "plain.cubin", folder / "marked.cubin"
    for text, path in zip((plain, marked), paths, strict=True):
        source = path.with_suffix(".ptx")
        source.write_bytes(text.encode())
        command = [nvidia.get_ptxas(backend.target.arch).path, *_flags(backend, options), str(source), "-o", str(path)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
    return paths
