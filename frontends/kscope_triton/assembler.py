"""Assembles PTX with Triton's own assembler and flags."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from triton import knobs
from triton.backends.nvidia import compiler as nvidia

from kscope.instrument.selection import catalog
from kscope.lowering import register_budget
from kscope.lowering.lowered import Lowered
from kscope.lowering.register_usage import Usage

from .version import VERSION


def _assembled(text: str, backend: Any, options: Any) -> register_budget.Assembled | None:
    """The cubin and resource usage by Triton's assembler; None if it fails."""
    return register_budget.assemble(text, nvidia.get_ptxas(backend.target.arch).path, _flags(backend, options))


def usage(text: str, backend: Any, options: Any) -> Usage | None:
    done = _assembled(text, backend, options)
    return done.usage if done else None


def cubin(text: str, backend: Any, options: Any) -> bytes | None:
    done = _assembled(text, backend, options)
    return done.cubin if done else None


def code(text: str, lines: bool, backend: Any, options: Any) -> bytes | None:
    """The cubin, always with a line table."""
    return cubin(text, backend, options)


def has_other_flags(options: Any) -> bool:
    """True if Triton assembles with other flags than _flags()."""
    sanitizer = any(mode in getattr(options, "instrumentation_mode", "") for mode in ("consan", "fpsan"))
    return bool(knobs.nvidia.disable_ptxas_opt or knobs.compilation.disable_line_info or sanitizer)


def assembled_once(
    inner: Callable[..., bytes], made: list[Lowered], backend: Any, options: Any, text: str, metadata: dict[str, Any]
) -> bytes:
    """Triton's last stage: the cubin of a lowered text, which was assembled to be measured with Triton's own flags, or
    records in its machine code.
    """
    found = next((one for one in made if one.text == text), None)
    if found is not None and found.cubin is not None:
        return found.cubin
    if found is None or has_other_flags(options) or knobs.nvidia.dump_ptxas_log:
        return inner(text, metadata)
    return cubin(text, backend, options) or inner(text, metadata)


def _flags(backend: Any, options: Any) -> tuple[str, ...]:
    """Triton's assembler flags."""
    flags = ["-lineinfo", f"--gpu-name={nvidia.sm_arch_from_capability(backend.target.arch)}"]
    flags += [] if options.enable_fp_fusion else ["--fmad=false"]
    flags += ["--regAllocOptLevel=2"] if VERSION >= (3, 7) else []
    flags += (options.ptx_options or "").split()
    return tuple(flags)


def built(plain: str, marked: Lowered, backend: Any, options: Any, folder: Path) -> tuple[Path, Path] | None:
    """Build cubins without and with marks in a folder; None if the assembler rejects one."""
    without, with_marks = cubin(plain, backend, options), marked.cubin or cubin(marked.text, backend, options)
    if without is None or with_marks is None:
        return None
    return catalog.write_cubins(folder, without, with_marks)
