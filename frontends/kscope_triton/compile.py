"""Wraps Triton's compiler stages: lowers the PTX of marked kernels, and separates cached marked and plain kernels."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
from kscope.instrument import compile_warnings
from kscope.instrument.hooks import Hook
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalog
from kscope.instrument.selection.catalog import KernelSites
from kscope.language.mistakes import refuse_mistakes
from kscope.lowering import empty_regions, register_budget
from kscope.lowering.lowered import Lowered
from kscope.lowering.plan import without_marks
from kscope.lowering.source_lines import without_assembly_lines
from kscope.marks.grammar import PREFIX, Mark, parse
from kscope.marks.names import format_name
from kscope.util.text import install_command

from . import assembler, compilations
from .functions import python_function
from .launch_forms import REST, Forms
from .select import Marking
from .version import VERSION

_HOOK_HAS_KEY = VERSION >= (3, 7)
META, LOST = "kscope", "kscope_lost"
"""Keys in the metadata that Triton's disk cache keeps: the module's metadata, or the reason why it lost its marks."""
_HOOK, _HASH = "add_stages_inspection_hook", "hash"


@dataclass(frozen=True)
class _Began:
    """The recording with which the compilation of a source began; None without marks."""

    source: weakref.ref[Any]
    recording: Recording | None


@dataclass(frozen=True)
class _Marked:
    """A compilation with marks: Triton's options, and the names of the marks that were placed so far."""

    options: Any
    names: set[str] = field(default_factory=set)


class Pipeline:
    """The hook's behavior while recording is enabled.

    A compilation keeps the recording that its keys were computed for, regardless of other threads. While one
    runs or waits for an executor (AsyncCompileMode), remove() leaves the hooks in place, which serve it and no other.

    Args:
        forms: selects the form that launches run.
    """

    def __init__(self, forms: Forms) -> None:
        self._forms = forms
        self.recording: Recording | None = None
        self._tag = ""
        self._tags: dict[str, Recording] = {}  # of every recording so far
        self._slot: Slot | None = None
        self._hash = Hook(CUDABackend, _HASH, self._hashed)
        self._thread = threading.local()  # began: _Began, marked: _Marked, unmarked: bool
        self._submitted = weakref.WeakKeyDictionary[Any, str]()  # source -> tag, until an executor compiles it
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
                    f"triton {triton.__version__} has no {point}, which kscope needs to instrument kernels; "
                    f"install a supported version: {install_command('triton')}"
                )

    def install(self, recording: Recording) -> None:
        """Install the hook in Triton's slot, or update the options of the installed one."""
        mode = knobs.compilation.instrumentation_mode
        if not _HOOK_HAS_KEY and mode not in ("", REST, self._tag):
            raise UsageError(
                f"instrumentation_mode={mode!r} is set: Triton {triton.__version__} runs one kind of "
                "instrumentation at a time; switch the other off before kscope is enabled"
            )
        self.recording, self._tag = recording, recording.tag(Path(__file__).parent)
        self._tags[self._tag] = recording
        found = getattr(knobs.runtime, _HOOK)
        if self._slot is None or found is not self._slot:  # wraps a hook installed by another tool
            self._slot = Slot(self, found)
            setattr(knobs.runtime, _HOOK, self._slot)
        self._hash.install()
        self.switch_mode()
        if catalog.is_listing() and self._always is None:  # cached kernels cannot be listed
            self._always, knobs.compilation.always_compile = knobs.compilation.always_compile, True

    def remove(self) -> None:
        """Restore the slot. If another tool has wrapped our hook, it stays installed but does nothing."""
        if self.recording is None:
            return
        if not _HOOK_HAS_KEY and knobs.compilation.instrumentation_mode in (REST, self._tag):
            knobs.compilation.instrumentation_mode = ""
        if self._always is not None:
            knobs.compilation.always_compile, self._always = self._always, None
        self.recording, self._tag = None, ""
        self._unhook()

    def switch_mode(self) -> None:
        """Set the mode, which is the key in memory of Triton 3.6: one for all threads."""
        if not _HOOK_HAS_KEY and self.recording is not None:
            knobs.compilation.instrumentation_mode = self._forms.shared_key(self._tag)

    def tag(self) -> str:
        """The tag of kernels that can be compiled ahead; empty without recording, and while places are listed."""
        return "" if catalog.is_listing() else self._tag

    def _tag_here(self) -> str:
        """The tag of compilations of this thread that serve no launch; empty for plain kernels."""
        return "" if self._forms.tuning.here else self._tag

    def _unhook(self) -> None:
        """Remove the hooks, unless a compilation still needs them."""
        if self.recording is not None or self._slot is None or self._submitted or compilations.any_running():
            return
        if getattr(knobs.runtime, _HOOK) is self._slot:
            setattr(knobs.runtime, _HOOK, self._slot.previous)
        self._slot = None
        self._hash.remove()

    def marks(self, options: Any) -> bool:
        """True if the kernel that this thread traces is compiled with marks. options: Triton's, of the kernel."""
        marked = getattr(self._thread, "marked", None)
        if marked is not None and marked.options is options:
            return True
        if getattr(self._thread, "unmarked", False):
            return False
        return self.recording is not None and compilations.source() is None  # traced without being compiled

    @contextmanager
    def unmarked(self) -> Generator[None, None, None]:
        """Disables marks for code that this thread traces without compiling."""
        self._thread.unmarked = True
        try:
            yield
        finally:
            self._thread.unmarked = False

    def placed(self, mark: Mark) -> None:
        """Note a mark that entered the IR of the kernel that this thread compiles."""
        marked = getattr(self._thread, "marked", None)
        if marked is not None:
            marked.names.add(mark.name)

    def key(self, slot: Slot) -> str:
        """The key in memory; empty for a slot that is no longer installed. Read at every launch."""
        if self.recording is None:
            self._unhook()
        return self._forms.key(self._tag) if slot is self._slot and self._tag else ""

    def _hashed(self, original: Callable[[Any], str], backend: Any) -> str:
        """The backend's part of the key on disk. What a launch compiles has the recording of its key in memory."""
        source, tag = compilations.source(), self._tag_here()
        if (key := compilations.launch_key()) is not None:
            tag = next((tag for tag in self._tags if tag in key), "")
        if source is not None:
            if compilations.is_submitted():
                tag = self._submitted.pop(source, "")
            self._thread.began = _Began(weakref.ref(source), self._tags.get(tag))
        elif tag and (submitted := compilations.source_to_submit()) is not None:
            self._submitted[submitted] = tag
        return original(backend) + tag

    def _began(self) -> Recording | None:
        """The recording that this thread's compilation began with."""
        source = compilations.source()
        if source is None:  # the stages are called by themselves
            return self.recording
        began = getattr(self._thread, "began", None)
        return began.recording if began is not None and began.source() is source else None

    def wrap(self, slot: Slot, backend: Any, stages: MutableMapping[str, Any], options: Any, capability: int) -> None:
        """Wrap the stages of one compilation."""
        recording = self._began()
        if slot is not self._slot or recording is None or "ptx" not in stages:
            return
        if (kernel := getattr(compilations.source(), "fn", None)) is not None:
            refuse_mistakes(kernel, python_function, with_calls_only=True)
        self._thread.marked = marked = _Marked(options)
        names = marked.names
        marking = Marking(recording.selection, names, capability)
        inner = stages["ptx"]
        made: list[Lowered] = []

        def ptx(source: Any, metadata: dict[str, Any]) -> str:
            self._thread.marked = None
            text = inner(source, metadata)
            if PREFIX in text:
                text = without_assembly_lines(text)
            kernel = metadata["name"]
            lost = _removed(kernel, text, names)
            known = lost + [replace(one, text=f"kernel {kernel}: {one.text}") for one in marking.problems]
            measure = partial(assembler.usage, backend=backend, options=options)
            code = partial(assembler.code, backend=backend, options=options)
            lowered = register_budget.lower_to_fit(
                text,
                recording,
                frontend="triton",
                measure=measure,
                known=known,
                source=marking.source_info,
                shared=metadata["shared"],
                ahead=True,
                cooperative=options.launch_cooperative_grid,
                code=None if assembler.has_other_flags(options) else code,
                patched=True,
            )
            assemble = partial(assembler.cubin, backend=backend, options=options)
            lowered = empty_regions.with_problems(lowered, text, assemble, marking.source_info)
            if lowered.text is not text:
                metadata[META] = meta.to_json(lowered.meta).decode()
            else:  # no marks, so no module metadata
                why = lost or [problem for problem in lowered.problems if problem.kind == "cooperative"]
                metadata[LOST] = why[0].text if why else ""
            compile_warnings.warn(lowered.problems or known)
            if catalog.is_listing():
                sites = tuple(span.site() for span in marking.spans)
                build = partial(assembler.built, without_marks(text), lowered, backend, options)
                target = nvidia.sm_arch_from_capability(backend.target.arch)
                catalog.add(KernelSites("triton", kernel, target, sites, build))
            made.append(lowered)
            return lowered.text

        stages["ptx"] = ptx
        if "cubin" in stages:
            stages["cubin"] = partial(assembler.assembled_once, stages["cubin"], made, backend, options)
        for stage in stages.keys() & {"ttgir", "llir"}:
            stages[stage] = getattr(marking, stage)(stages[stage])


class Slot:
    """The callable in Triton's slot: calls the previous hook, then the pipeline. Each install() makes a new one:
    another tool's hook may still call the old one, which must not call that tool's hook again."""

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
        """Triton's hook: returns its parts of the keys on disk and in memory if there are no stages, else wraps the
        stages. Ours on disk is in the backend's hash.
        """
        if stages is None:
            mine = self._pipeline.key(self)
            if self.previous is None:  # runs at every launch
                return "", mine
            key, hashed = self.previous()
            return key, f"{hashed}{mine}"
        if self.previous is not None:
            self.previous(backend, stages, options, language, capability)
        self._pipeline.wrap(self, backend, stages, options, capability or 0)
        return None


def _removed(kernel: str, text: str, placed: set[str]) -> list[Problem]:
    """A problem naming the marks that the compiler removed from the PTX."""
    found = {mark.name for mark in map(parse, text.splitlines()) if mark is not None}
    if not (removed := sorted(placed - found)):
        return []
    listed = ", ".join(map(format_name, removed))
    why = "automatic warp specialization on sm_90 and unreachable code are the usual causes"
    text = f"kernel {kernel}: the Triton compiler removed every mark of {listed}; {why}"
    return [Problem("removed", text, len(removed))]
