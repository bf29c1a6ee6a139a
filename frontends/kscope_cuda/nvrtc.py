"""Sources that are compiled while the program runs: what a compiler is told, and from its PTX to what is loaded.

What lives here: which sources concern kscope, their compiler options in the three states, and lowering. What
does not: whose compiler it is (cupy/, core.py), the header (header/), instructions (kscope/ptx/).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from kscope import cuda_include, fit, meta, plan
from kscope import ptx as ptx_of
from kscope.recording import Recording

from . import assembling

HEADER, MACRO = "kscope.cuh", "KSCOPE_"
MARKS = "-DKSCOPE_MARKS=1"
_REAL = re.compile(r"(-arch=|--gpu-architecture=)(sm_\w+)")


def concerns(source: str, options: Iterable[str] = ()) -> bool:
    """Whether kscope has to do with a source: it has macros, or includes what may have them."""
    return MACRO in source or HEADER in source or any(cuda_include() in option for option in options)


def options(recording: Recording | None) -> tuple[str, ...]:
    """What a compiler is told of kscope: where the header is; and while recording is enabled, to leave marks.

    KSCOPE_TAG means nothing to the header. It is there for caches that look at a source and its options, and not
    into headers: it differs wherever the code may.
    """
    include = (f"-I{cuda_include()}",)
    if recording is None:
        return include
    tag = sha256(f"{recording.tag()} {_own()}".encode()).hexdigest()[:16]
    return (*include, MARKS, f"-DKSCOPE_TAG=0x{tag}")


def with_header(source: str, prelude: str = "") -> str:
    """The source, and before it what its macros need; its lines keep their numbers."""
    missing = f"#include <{HEADER}>\n" if MACRO in source and HEADER not in source else ""
    return f"{missing}{prelude}#line 1\n{source}" if missing or prelude else source


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
    without an assembler, it is PTX, which the driver assembles when it loads it. Warns of regions that the compiler took apart. Raises as kscope.plan.lower() does.
    """
    measure = partial(_usage, arch=arch, flags=flags)
    lowered = fit.lower_to_fit(ptx, recording, frontend=frontend, measure=measure)
    for problem in lowered.problems:
        warnings.warn(f"kscope: {problem.text}", stacklevel=2)
    text = _renamed(lowered, names) if names else lowered.text
    done = assembling.assemble(text, arch, flags) if arch else None
    return done.cubin if done else text.encode()


def _renamed(lowered: plan.Lowered, names: Mapping[str, str]) -> str:
    """The text, whose description of itself calls kernels as the user does."""
    kernels = tuple(replace(kernel, name=names.get(kernel.name, kernel.name)) for kernel in lowered.meta.kernels)
    before, after = (
        ptx_of.metadata_symbol(meta.to_json(about)) for about in (lowered.meta, replace(lowered.meta, kernels=kernels))
    )
    return lowered.text.replace(before, after)


def _usage(text: str, arch: str | None, flags: tuple[str, ...]) -> fit.Usage | None:
    done = assembling.assemble(text, arch, flags) if arch else None
    return done.usage if done else None


def _own() -> str:
    """A digest of the header and of this package."""
    digest = sha256(Path(cuda_include(), HEADER).read_bytes())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
