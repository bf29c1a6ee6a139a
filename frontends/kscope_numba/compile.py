"""From Numba's LLVM IR to a cubin: the PTX of kernels with marks is lowered on its way.

    without LTO   NVVM -> PTX -> lowered -> linked
    with LTO      NVVM -> LTO-IR, linked with what else is LTO-IR -> PTX -> lowered -> linked with the rest, or
                  assembled, if that is all

Kernels without marks take Numba's own way, untouched. What lives here: the hooks on Numba's code library. What
does not: lowering (kscope/lowering), linking (linking.py), what Numba keeps (loading.py).
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from kscope.errors import UnsupportedError
from kscope.instrument.hooks import Hook
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalogue
from kscope.instrument.selection.auto import Selection
from kscope.instrument.selection.catalogue import Listed, Sites
from kscope.lowering import register_budget
from kscope.lowering.plan import Lowered, Told, without_marks
from kscope.marks.grammar import PREFIX

from . import emit, ir_repair, linking
from .hook_points import check, module

_codegen: Any = module("codegen")
_nvrtc: Any = module("cudadrv.nvrtc")
_library: Any = _codegen.CUDACodeLibrary
_HOOKED = ("finalize", "llvm_strs", "get_asm_strs", "get_lto_ptx", "get_cubin", "_link_all")
_LOCAL = "<locals>."
NAME = "numba"


class Pipeline:
    """The hooks, while recording is enabled."""

    def __init__(self, sites: Sites) -> None:
        """sites: what was marked that nobody annotated."""
        self.recording: Recording | None = None
        self._sites = sites
        self._hooks = (
            Hook(_library, "finalize", self._finalize),
            Hook(_library, "llvm_strs", self._texts),
            Hook(_library, "get_asm_strs", self._assembly),
            Hook(_library, "get_lto_ptx", self._optimized),
            Hook(_library, "get_cubin", self._cubin),
            Hook(_library, "_link_all", self._link),
            Hook(_nvrtc, "compile", linking.marked),
        )

    def check(self) -> None:
        """Raises UnsupportedError naming the hook point that this numba-cuda lacks."""
        check(_library, *_HOOKED, "modules")
        check(_nvrtc, "compile")
        linking.check_points()

    def install(self, recording: Recording) -> None:
        """Idempotent; later calls change the options."""
        self.recording = recording
        for hook in self._hooks:
            hook.install()

    def remove(self) -> None:
        """Inverse of install()."""
        for hook in self._hooks:
            hook.remove()
        self.recording = None

    # LLVM IR

    def _finalize(self, original: Any, library: Any) -> None:
        found = next(ir_repair.marks(library._module), None) if library._module is not None else None
        if found is not None:
            if _debug(library):
                raise _refused(library, found.name)
            ir_repair.close(library._module)
        original(library)

    def _texts(self, original: Any, library: Any) -> Any:
        if library._llvm_strs is None and library._entry_name is not None:
            modules = library.modules
            found = next((mark for one in modules for mark in ir_repair.marks(one)), None)
            if found is not None:
                if _debug(library):
                    raise _refused(library, found.name)
                apart = ir_repair.inline(modules, library._entry_name)
                if apart is not None:
                    raise UnsupportedError(
                        f"{_called(library)} calls a function that calls itself and has region {apart.name!r} "
                        f"({_places(library).get(apart.name, '?')}): a region's state lives in its kernel's registers, "
                        "and such a function keeps its own; put the region around the call"
                    )
        return original(library)

    # PTX

    def _assembly(self, original: Any, library: Any, cc: Any = None) -> Any:
        """What Numba links where there is no LTO; and where there is, looks for names in."""
        texts = original(library, cc=cc)
        if library._lto or library._entry_name is None or not any(PREFIX in text for text in texts):
            return texts
        cc = library._ensure_cc(cc)
        lowered = [self._lowered(library, text, cc) for text in texts]
        library._ptx_cache[cc] = lowered
        return lowered

    def _optimized(self, original: Any, library: Any, cc: Any = None) -> Any:
        """The PTX after LTO, lowered."""
        text = original(library, cc=cc)
        return self._lowered(library, text, library._ensure_cc(cc), whole=True)

    def _lowered(self, library: Any, text: str, cc: Any, whole: bool = False) -> str:
        """whole: nothing is linked to what becomes of the text."""
        if self.recording is None or PREFIX not in text or library._entry_name is None:
            return text
        lowered = register_budget.lower_to_fit(
            text.rstrip("\0"),
            self.recording,
            frontend=NAME,
            measure=lambda candidate: linking.usage(candidate, cc, library._max_registers, whole),
            told=Told({library._entry_name: _called(library)}, _places(library)),
        )
        for problem in lowered.problems:
            warnings.warn(f"kscope: {problem.text}", stacklevel=2)
        self._list(library, text, lowered, cc, self.recording.selection, whole)
        return lowered.text

    def _list(self, library: Any, text: str, lowered: Lowered, cc: Any, selection: Selection, whole: bool) -> None:
        """Notes the kernel, where somebody lists."""
        found = self._sites.of(selection, (region.name for region in lowered.meta.regions))
        if not catalogue.wanted():
            return

        def build(folder: Path) -> tuple[Path, Path]:
            paths = folder / "plain.cubin", folder / "marked.cubin"
            for path, code in zip(paths, (without_marks(text).rstrip("\0"), lowered.text), strict=True):
                path.write_bytes(linking.cubin(code, cc, library._max_registers, whole))
            return paths

        target, symbol = f"sm_{''.join(map(str, cc))}", str(library._entry_name)
        catalogue.note(Listed(NAME, _called(library), target, found, build, symbol))

    # cubins

    def _cubin(self, original: Any, library: Any, cc: Any = None) -> Any:
        cc = library._ensure_cc(cc)
        if not library._lto or library._cubin_cache.get(cc) or not self._concerns(library):
            return original(library, cc=cc)
        ltoir = linking.Optimized(max_registers=library._max_registers, cc=cc, lto=True)
        library._link_all(ltoir, cc)
        text = ltoir.text()
        if PREFIX not in text:
            return original(library, cc=cc)
        whole = not ltoir.others
        lowered = self._lowered(library, text, cc, whole)
        made = linking.assembled(lowered, cc, library._max_registers) if whole else None
        if made is not None:
            cubin, log = linking.loadable(made.cubin), ""
        else:
            linker = linking.plain(library._max_registers, cc)
            linker.add_ptx(lowered.encode())
            for other in ltoir.others:
                linker.add_file_guess_ext(other)
            self._refuse_apart(library, linker, own=1)
            cubin, log = linker.complete(), linker.info_log
        library._cubin_cache[cc], library._linkerinfo_cache[cc] = cubin, log
        return cubin

    def _link(self, original: Any, library: Any, linker: Any, cc: Any, ignore_nonlto: bool = False) -> None:
        original(library, linker, cc, ignore_nonlto=ignore_nonlto)
        if library._entry_name is not None and not isinstance(linker, linking.Optimized):
            self._refuse_apart(library, linker, own=1 if linker.lto else len(library.get_asm_strs(cc=cc)))

    def _refuse_apart(self, library: Any, linker: Any, own: int) -> None:
        """`own`: how many of the linked objects, the first ones, are the kernel's."""
        for name in linking.with_regions(linker, own):
            raise UnsupportedError(
                f"kernel {_called(library)} links {name}, which has regions and is compiled apart: a region's state "
                "lives in its kernel's registers; link it as source (.cu) with lto=True, which lets it be inlined, "
                "or build it with -DKSCOPE=0"
            )

    def _concerns(self, library: Any) -> bool:
        if any(PREFIX in text for text in library.llvm_strs):
            return True
        return any(linking.has_macros(path) for path in library._linking_files)


def _debug(library: Any) -> bool:
    return "g" in library._nvvm_options


def _refused(library: Any, name: str) -> UnsupportedError:
    return UnsupportedError(
        f"{_called(library)} is compiled with debug=True, and has region {name!r} ({_places(library).get(name, '?')}): "
        "debug builds keep every function apart, and a region's state lives in its kernel's registers; use "
        "@cuda.jit(lineinfo=True), or disable kscope while you debug"
    )


def _places(library: Any) -> dict[str, str]:
    return emit.places(library.modules if library._module is not None else ())


def _called(library: Any) -> str:
    """The kernel's or function's name as its author knows it."""
    return str(library.name).rpartition(_LOCAL)[2]
