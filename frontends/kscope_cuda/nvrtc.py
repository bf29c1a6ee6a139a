"""Sources that are compiled while the program runs: what a compiler is told, and from its PTX to what is loaded."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from kscope import cuda_include
from kscope import ptx as ptx_of
from kscope.capture import metadata
from kscope.errors import UnsupportedError
from kscope.instrument.recording import Recording
from kscope.lowering import cfg, plan, register_budget

from . import assembling, sites

HEADER, MACRO = "kscope.cuh", "KSCOPE_"
MARKS, LINES = "-DKSCOPE_MARKS=1", "-lineinfo"
FILE = "kern.cu"
"""What a source is called that lies in no file."""
_REAL = re.compile(r"(-arch=|--gpu-architecture=)(sm_\w+)")
_LINE_OPTIONS = {LINES, "--generate-line-info", "-G", "--device-debug"}
_DEBUGGED = re.compile(r"^\s*\.target\s+[^\n]*\bdebug\b", re.M)
_OURS = re.compile(rf'^\s*\.file\s+(\d+)\s+"[^"]*{HEADER}"', re.M)
_TOLD = re.compile(r"^\s*\.(?:loc|file)\s[^\n]*\n|^\s*\.section\s+\.debug_str\s*\{.*?\}\n", re.M | re.S)
_ANYWHERE = re.compile(rf'(\.file\s+\d+\s+)"[^"]*/({FILE})"')


def concerns(source: str, options: Iterable[str] = ()) -> bool:
    """Whether kscope has to do with a source: it has macros, or includes what may have them."""
    return MACRO in source or HEADER in source or any(cuda_include() in option for option in options)


def options(recording: Recording | None) -> tuple[str, ...]:
    """What a compiler is told of kscope, behind the user's options: where the header is; and while recording is
    enabled, to leave marks.

    KSCOPE_TAG means nothing to the header. It is there for caches that look at a source and its options, and not
    into headers, nor know who assembles: it differs wherever the code may.
    """
    include = (f"-I{cuda_include()}",)
    if recording is None:
        return include
    tag = sha256(f"{recording.tag(Path(__file__).parent)} {assembling.identity()} ".encode())
    tag.update(Path(cuda_include(), HEADER).read_bytes())
    return (*include, MARKS, f"-DKSCOPE_TAG=0x{tag.hexdigest()[:16]}")


def lines(given: Iterable[str]) -> tuple[str, ...]:
    """What makes the compiler tell lines in its PTX, where the user's options do not: for messages and regions."""
    return () if _LINE_OPTIONS.intersection(given) else (LINES,)


def of_user(options: tuple[str, ...]) -> tuple[str, ...]:
    """The options without kscope's."""
    return options[: options.index(MARKS)]


def with_header(source: str, prelude: str = "", name: str = "") -> str:
    """The source, and before it what its macros need; its lines keep their numbers, and get a file's name."""
    missing = f"#include <{HEADER}>\n" if MACRO in source and HEADER not in source else ""
    called = f' "{name}"' if name else ""
    return f"{missing}{prelude}#line 1{called}\n{source}" if missing or prelude or name else source


def architecture(options: Iterable[str]) -> str | None:
    """The real architecture (``sm_90``) that is compiled for; None for PTX."""
    return next((found[2] for found in map(_REAL.fullmatch, options) if found), None)


def virtual(options: Iterable[str]) -> tuple[str, ...]:
    """The options that stop at PTX: `sm_90` is compiled for as `compute_90`."""
    return tuple(_REAL.sub(lambda found: found[0].replace("sm_", "compute_"), option) for option in options)


def lower(
    ptx: str,
    recording: Recording,
    *,
    frontend: str,
    arch: str | None,
    flags: tuple[str, ...] = (),
    names: Mapping[str, str] | None = None,
) -> bytes:
    """What is loaded in the place of `ptx`: its marks lowered, assembled for `arch`.

    names: what the user calls kernels whose names the compiler has mangled. Without marks, or with arch=None, or
    without an assembler, it is PTX, which the driver assembles when it loads it. Warns of regions that the compiler
    took apart. Raises as plan.lower() does, and UnsupportedError for what was compiled with -G.
    """
    _refuse_debugging(ptx, names or {})
    measure = partial(_usage, arch=arch, flags=flags)
    lowered = register_budget.lower_to_fit(_located(ptx), recording, frontend=frontend, measure=measure)
    for problem in lowered.problems:
        warnings.warn(f"kscope: {problem.text}", stacklevel=2)
    text = _untold(_renamed(lowered, names) if names else lowered.text, flags)
    done = assembling.assemble(text, arch, flags) if arch else None
    made = done.cubin if done else text.encode()
    sites.note(frontend, _untold(ptx, flags), made, arch, flags)
    return made


def _refuse_debugging(ptx: str, names: Mapping[str, str]) -> None:
    """Marks in PTX that was made with -G: without optimization regions leave by flags, which nobody can follow."""
    if _DEBUGGED.search(ptx):
        found = [names.get(function.name, function.name) for function in cfg.functions(ptx) if any(function.marks)]
        if found:
            raise UnsupportedError(
                f"regions in {', '.join(found)}: compiled with -G (--device-debug), and code that is not optimized "
                "cannot be recorded; leave -G out, or do without kscope.enable() and kscope.profile()"
            )


def _located(ptx: str) -> str:
    """The text, in which a mark stands at the line of its macro, and not at one of the header's."""
    for number in _OURS.findall(ptx):
        ptx = re.sub(rf"^\s*\.loc\s+{number}\s[^\n]*\n", "", ptx, flags=re.M)
    return _ANYWHERE.sub(r'\1"\2"', ptx)


def _renamed(lowered: plan.Lowered, names: Mapping[str, str]) -> str:
    """The text, whose description of itself calls kernels as the user does."""
    kernels = tuple(replace(kernel, name=names.get(kernel.name, kernel.name)) for kernel in lowered.meta.kernels)
    before, after = (
        ptx_of.metadata_symbol(metadata.to_json(about))
        for about in (lowered.meta, replace(lowered.meta, kernels=kernels))
    )
    return lowered.text.replace(before, after)


def _usage(text: str, arch: str | None, flags: tuple[str, ...]) -> register_budget.Usage | None:
    done = assembling.assemble(_untold(text, flags), arch, flags) if arch else None
    return done.usage if done else None


def _untold(text: str, flags: tuple[str, ...]) -> str:
    """The text without line information, where the user did not ask for any."""
    return text if LINES in flags else _TOLD.sub("", text)
