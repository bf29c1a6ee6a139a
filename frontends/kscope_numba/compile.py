"""Hooks on Numba's code library: the PTX of kernels with marks is lowered on its way to a cubin.

    without LTO   NVVM -> PTX -> lowered -> linked
    with LTO      NVVM -> LTO-IR, linked with other LTO-IR -> PTX -> lowered -> linked with the rest, or
                  assembled if nothing is left to link

Kernels without marks go through Numba unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from kscope.capture.model import Problem
from kscope.errors import UnsupportedError
from kscope.instrument import compile_warnings
from kscope.instrument.hooks import Hook, Hooks
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalog
from kscope.instrument.selection.auto import Selection
from kscope.instrument.selection.catalog import KernelSites, Sites
from kscope.lowering import empty_regions, register_budget
from kscope.lowering.lowered import Lowered, SourceInfo
from kscope.lowering.plan import without_marks
from kscope.marks.grammar import PREFIX, Mark

from . import emit, ir_repair, linking
from .hook_points import check, module

_codegen: Any = module("codegen")
_nvrtc: Any = module("cudadrv.nvrtc")
_library: Any = _codegen.CUDACodeLibrary
_HOOKED = ("finalize", "llvm_strs", "get_asm_strs", "get_lto_ptx", "get_cubin", "_link_all")
_LOCAL = "<locals>."
NAME = "numba"


class CompilerHooks:
    """The hooks, while recording is enabled. A library keeps the recording that it began with: Numba generates code for
    another GPU or for inspect_asm() later, without its lock.

    Args:
        sites: the sites that were marked for a selection.

    Attributes:
        recording: the options of libraries that begin now; None while disabled.
    """

    def __init__(self, sites: Sites) -> None:
        self.recording: Recording | None = None
        self._began: WeakKeyDictionary[Any, Recording | None] = WeakKeyDictionary()
        self._sites = sites
        self._hooks = Hooks(
            Hook(_library, "finalize", self._finalize),
            Hook(_library, "llvm_strs", self._llvm_strs),
            Hook(_library, "get_asm_strs", self._get_asm_strs),
            Hook(_library, "get_lto_ptx", self._get_lto_ptx),
            Hook(_library, "get_cubin", self._get_cubin),
            Hook(_library, "_link_all", self._link_all),
            Hook(_nvrtc, "compile", linking.compile_cuda_source),
        )

    def check(self) -> None:
        """Raises UnsupportedError naming a missing hook point."""
        check(_library, *_HOOKED, "modules")
        check(_nvrtc, "compile")
        linking.check_hook_points()

    def install(self, recording: Recording) -> None:
        """Idempotent; later calls change the options."""
        self.recording = recording
        self._hooks.install()

    def remove(self) -> None:
        """Inverse of install()."""
        self._hooks.remove()
        self.recording = None

    def _recording_of(self, library: Any) -> Recording | None:
        """The recording that a library began with; one from the disk cache begins when its code is first used."""
        return self._began.setdefault(library, self.recording)

    # LLVM IR

    def _finalize(self, original: Any, library: Any) -> None:
        self._recording_of(library)
        if library._module is not None:
            marks = list(ir_repair.marks(library._module))
            if marks:
                _check_debug(library, marks)
                ir_repair.close_regions(library._module)
        original(library)

    def _llvm_strs(self, original: Any, library: Any) -> Any:
        if library._llvm_strs is None and library._entry_name is not None:
            modules = library.modules
            marks = [mark for one in modules for mark in ir_repair.marks(one)]
            _check_debug(library, marks)
            if marks and _is_debug(library):
                self._report_debug(library)
            elif marks:
                recursive = ir_repair.inline(modules, library._entry_name)
                if recursive is not None:
                    raise UnsupportedError(
                        f"{_display_name(library)} calls a recursive function that contains region {recursive.name!r} "
                        f"({_locations(library).get(recursive.name, '?')}): a region's state is kept in its kernel's "
                        "registers, and a recursive function cannot be inlined; put the region around the call"
                    )
        return original(library)

    def _report_debug(self, library: Any) -> None:
        text = f"selected code in {_display_name(library)} is not recorded: debug=True inlines nothing"
        problem = Problem("nothing", text)
        compile_warnings.warn([problem])
        if (recording := self._recording_of(library)) is not None:
            self._sites.note(recording.selection, problem)

    # PTX

    def _get_asm_strs(self, original: Any, library: Any, cc: Any = None) -> Any:
        """Without LTO, the PTX that Numba links; with LTO, Numba only searches it for names."""
        texts = original(library, cc=cc)
        if library._lto or library._entry_name is None or not any(PREFIX in text for text in texts):
            return texts
        cc = library._ensure_cc(cc)
        lowered = [self._lowered(library, text, cc)[0] for text in texts]
        library._ptx_cache[cc] = lowered
        return lowered

    def _get_lto_ptx(self, original: Any, library: Any, cc: Any = None) -> Any:
        text = original(library, cc=cc)
        return self._lowered(library, text, library._ensure_cc(cc), whole=True)[0]

    def _lowered(self, library: Any, text: str, cc: Any, whole: bool = False) -> tuple[str, bytes | None]:
        """The lowered PTX, and the cubin of machine code that records, if it does so instead of the PTX.

        whole: the PTX is a whole program, nothing is linked to it.
        """
        recording = self._recording_of(library)
        if recording is None or PREFIX not in text or library._entry_name is None:
            return text, None
        if _is_debug(library):  # only a selection's marks: others were refused
            return without_marks(text), None
        marked = text.rstrip("\0")
        source = SourceInfo({library._entry_name: _display_name(library)}, _locations(library))
        lowered = register_budget.lower_to_fit(
            marked,
            recording,
            frontend=NAME,
            measure=lambda candidate: linking.usage(candidate, cc, library._max_registers, whole),
            source=source,
            code=partial(linking.code, cc=cc, max_registers=library._max_registers) if whole else None,
        )

        def assemble(code: str) -> bytes | None:
            return linking.program_cubin(code, cc, library._max_registers) if whole else None

        lowered = empty_regions.with_problems(lowered, marked, assemble, source)
        compile_warnings.warn(lowered.problems)
        for problem in lowered.problems if not lowered.meta.kernels else ():  # the module has no metadata for them
            self._sites.note(recording.selection, problem)
        self._note(library, text, lowered, cc, recording.selection, whole)
        return lowered.text, lowered.cubin

    def _note(self, library: Any, text: str, lowered: Lowered, cc: Any, selection: Selection, whole: bool) -> None:
        """Add the kernel to the catalog, during a listing."""
        sites = self._sites.of(selection, (region.name for region in lowered.meta.regions))
        if not catalog.is_listing():
            return

        def build(folder: Path) -> tuple[Path, Path]:
            def cubin(code: str) -> bytes:
                return linking.cubin(code, cc, library._max_registers, whole)

            marked = lowered.cubin or cubin(lowered.text)
            return catalog.write_cubins(folder, cubin(without_marks(text).rstrip("\0")), marked)

        target, symbol = f"sm_{''.join(map(str, cc))}", str(library._entry_name)
        catalog.add(KernelSites(NAME, _display_name(library), target, sites, build, symbol))

    # cubins

    def _get_cubin(self, original: Any, library: Any, cc: Any = None) -> Any:
        cc = library._ensure_cc(cc)
        lowers = library._lto and not _is_debug(library)
        if not lowers or library._cubin_cache.get(cc) or not self._has_marks(library):
            return original(library, cc=cc)
        lto_linker = linking.LtoLinker(max_registers=library._max_registers, cc=cc, lto=True)
        library._link_all(lto_linker, cc)
        text = lto_linker.ptx()
        if PREFIX not in text:
            return original(library, cc=cc)
        whole = not lto_linker.deferred
        lowered, code = self._lowered(library, text, cc, whole)
        if code is None and whole:
            code = linking.program_cubin(lowered, cc, library._max_registers)
        if code is not None:
            cubin, log = linking.object_code(code), ""
        else:
            linker = linking.make_linker(library._max_registers, cc)
            linker.add_ptx(lowered.encode())
            for deferred in lto_linker.deferred:
                linker.add_file_guess_ext(deferred)
            self._refuse_separate_regions(library, linker, own=1)
            cubin, log = linker.complete(), linker.info_log
        library._cubin_cache[cc], library._linkerinfo_cache[cc] = cubin, log
        return cubin

    def _link_all(self, original: Any, library: Any, linker: Any, cc: Any, ignore_nonlto: bool = False) -> None:
        original(library, linker, cc, ignore_nonlto=ignore_nonlto)
        if library._entry_name is not None and not isinstance(linker, linking.LtoLinker):
            own = 1 if linker.lto else len(library.get_asm_strs(cc=cc))
            self._refuse_separate_regions(library, linker, own)

    def _refuse_separate_regions(self, library: Any, linker: Any, own: int) -> None:
        """Refuse regions in linked objects. own: how many of them, the first ones, belong to the kernel."""
        for name in linking.objects_with_regions(linker, own):
            raise UnsupportedError(
                f"kernel {_display_name(library)} links {name}, which has regions and is compiled separately: a "
                "region's state is kept in its kernel's registers; link it as source (.cu) with lto=True, to let it "
                "be inlined, or build it with -DKSCOPE=0"
            )

    def _has_marks(self, library: Any) -> bool:
        if any(PREFIX in text for text in library.llvm_strs):
            return True
        return any(linking.linked_uses_header(path) for path in library._linking_files)


def _is_debug(library: Any) -> bool:
    return "g" in library._nvvm_options


def _check_debug(library: Any, marks: Iterable[Mark]) -> None:
    """Raises UnsupportedError for a region in the source of a debug build; a selection's marks are left out later."""
    mark = next((mark for mark in marks if mark.origin == "source"), None)
    if mark is not None and _is_debug(library):
        raise UnsupportedError(
            f"{_display_name(library)} is compiled with debug=True and has region {mark.name!r} "
            f"({_locations(library).get(mark.name, '?')}): debug builds inline nothing, and a region's state is kept "
            "in its kernel's registers; use @cuda.jit(lineinfo=True), or disable kscope while you debug"
        )


def _locations(library: Any) -> dict[str, str]:
    return emit.mark_locations(library.modules if library._module is not None else ())


def _display_name(library: Any) -> str:
    """The kernel's or function's name, without the functions it is defined in."""
    return str(library.name).rpartition(_LOCAL)[2]
