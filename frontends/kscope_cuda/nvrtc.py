"""CUDA C++ compiled at run time: the compiler's options, and its PTX lowered to the code that is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path

from kscope.errors import UnsupportedError
from kscope.instrument import compile_warnings, source_texts
from kscope.instrument.recording import Recording
from kscope.language.cuda_header import HEADER, MACRO, cuda_include
from kscope.lowering import empty_regions, register_budget
from kscope.lowering.lowered import SourceInfo
from kscope.lowering.register_usage import Usage
from kscope.ptx import cfg

from . import assembler, dry_run

MARKS, LINE_INFO = "-DKSCOPE_MARKS=1", "-lineinfo"
FILE = "kern.cu"
"""The name of a source without a file."""
_REAL = re.compile(r"(-arch=|--gpu-architecture=)(sm_\w+)")
_FOLDER = re.compile(r"(?:-I|--include-path=)\s*(.+)")
_LINE_OPTIONS = {LINE_INFO, "--generate-line-info", "-G", "--device-debug"}
_DEBUG_BUILD = re.compile(r"^\s*\.target\s+[^\n]*\bdebug\b", re.M)
_HEADER_FILE = re.compile(rf'^\s*\.file\s+(\d+)\s+"[^"]*{HEADER}"', re.M)
_LINE_DIRECTIVES = re.compile(r"^\s*\.(?:loc|file)\s[^\n]*\n|^\s*\.section\s+\.debug_str\s*\{.*?\}\n", re.M | re.S)
_FILE_IN_FOLDER = re.compile(rf'(\.file\s+\d+\s+)"[^"]*/({FILE})"')


def include_folders(options: Iterable[str]) -> list[str]:
    """The folders of headers in a compiler's options."""
    return [found[1] for found in map(_FOLDER.fullmatch, options) if found]


def options(recording: Recording | None) -> tuple[str, ...]:
    """Options that follow the user's: the header's folder and, while recording is enabled, the macros as marks.

    The header ignores KSCOPE_TAG: it is for caches whose keys are the source and its options. It changes with the
    recording, kscope, the header and the assembler.
    """
    include = (f"-I{cuda_include()}",)
    if recording is None:
        return include
    tag = sha256(f"{recording.tag(Path(__file__).parent)} {assembler.identity()} ".encode())
    tag.update(Path(cuda_include(), HEADER).read_bytes())
    return (*include, MARKS, f"-DKSCOPE_TAG=0x{tag.hexdigest()[:16]}")


def line_info(user_options: Iterable[str]) -> tuple[str, ...]:
    """The option for line information in PTX, which messages and regions need, unless the user's options have it."""
    return () if _LINE_OPTIONS.intersection(user_options) else (LINE_INFO,)


def without_kscope(options: tuple[str, ...]) -> tuple[str, ...]:
    """The options without kscope's."""
    return options[: options.index(MARKS)]


def with_header(source: str, prelude: str = "", name: str = "") -> str:
    """The source after the header and a prelude, with its line numbers unchanged and a file name."""
    if name:
        source_texts.keep(name, source)
    missing = f"#include <{HEADER}>\n" if MACRO in source and HEADER not in source else ""
    file = f' "{name}"' if name else ""
    return f"{missing}{prelude}#line 1{file}\n{source}" if missing or prelude or name else source


def architecture(options: Iterable[str]) -> str | None:
    """The real architecture (``sm_90``) in the options; None for PTX."""
    return next((found[2] for found in map(_REAL.fullmatch, options) if found), None)


def virtual(options: Iterable[str]) -> tuple[str, ...]:
    """The options that stop at PTX: `sm_90` becomes `compute_90`."""
    return tuple(_REAL.sub(lambda found: found[0].replace("sm_", "compute_"), option) for option in options)


def lower(
    ptx: str,
    recording: Recording,
    *,
    frontend: str,
    arch: str | None,
    flags: tuple[str, ...] = (),
    names: Mapping[str, str] | None = None,
    patched: bool = False,
) -> bytes:
    """The code to load instead of `ptx`: its marks lowered, assembled for `arch`.

    It is PTX with arch=None or without an assembler; placement="schedule" needs both, and ptxas as the assembler. Warns
    about problems of the lowering. `names` maps mangled names to the user's. patched: the caller loads what
    Backend.patched() makes of the code. Raises as plan.lower() does, and UnsupportedError for regions compiled with -G.
    """
    _refuse_debug_build(ptx, names or {})
    marked = _with_macro_lines(ptx)
    source = SourceInfo(names or {})
    lowered = register_budget.lower_to_fit(
        marked,
        recording,
        frontend=frontend,
        measure=partial(_usage, arch=arch, flags=flags),
        source=source,
        code=partial(_code, arch=arch, flags=flags) if arch else None,
        patched=patched,
    )
    lowered = empty_regions.with_problems(lowered, marked, partial(_cubin, arch=arch, flags=flags), source)
    compile_warnings.warn(lowered.problems)
    text = _strip_line_info(lowered.text, flags)
    code = lowered.cubin or _cubin(text, arch, flags) or text.encode()
    dry_run.report(frontend, _strip_line_info(ptx, flags), code, arch, flags)
    return code


def _refuse_debug_build(ptx: str, names: Mapping[str, str]) -> None:
    """Raise for marks in a -G build: unoptimized code leaves scopes through flags, which pairing cannot follow."""
    if _DEBUG_BUILD.search(ptx):
        found = [names.get(function.name, function.name) for function in cfg.functions(ptx) if any(function.marks)]
        if found:
            raise UnsupportedError(
                f"regions in {', '.join(found)}: compiled with -G (--device-debug), and unoptimized code cannot be "
                "recorded; leave -G out, or run without kscope.enable() and kscope.profile()"
            )


def _with_macro_lines(ptx: str) -> str:
    """The text without the header's line directives: a mark has the line of its macro."""
    for number in _HEADER_FILE.findall(ptx):
        ptx = re.sub(rf"^\s*\.loc\s+{number}\s[^\n]*\n", "", ptx, flags=re.M)
    return _FILE_IN_FOLDER.sub(r'\1"\2"', ptx)


def _usage(text: str, arch: str | None, flags: tuple[str, ...]) -> Usage | None:
    assembled = assembler.assemble(_strip_line_info(text, flags), arch, flags) if arch else None
    return assembled.usage if assembled else None


def _cubin(text: str, arch: str | None, flags: tuple[str, ...]) -> bytes | None:
    assembled = assembler.assemble(_strip_line_info(text, flags), arch, flags) if arch else None
    return assembled.cubin if assembled else None


def _code(text: str, lines: bool, arch: str, flags: tuple[str, ...]) -> bytes | None:
    """A cubin for placement="schedule". Raises MissingError without ptxas: nvJitLink makes no such line table."""
    given = (*flags, LINE_INFO) if lines and LINE_INFO not in flags else flags
    assembled = assembler.by_ptxas(_strip_line_info(text, given), arch, given)
    return assembled.cubin if assembled else None


def _strip_line_info(text: str, flags: tuple[str, ...]) -> str:
    """The text without line information, unless the user requested it."""
    return text if LINE_INFO in flags else _LINE_DIRECTIVES.sub("", text)
