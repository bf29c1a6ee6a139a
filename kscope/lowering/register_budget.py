"""Lowering within a register budget: as many pending records as the kernel has registers for."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ..capture.model import Problem
from ..errors import UnsupportedError
from ..instrument.recording import Recording
from ..ptx import cfg
from . import assembler, metadata_patch, occupancy
from .lowered import AssembleCode, Lowered, SourceInfo
from .plan import lower, without_marks
from .register_usage import Usage, change, lost_blocks, read_log

FEW = 2
"""Pending records to try after the options' number, and before storing in place."""
_LONG = 1 << 20
"""Characters of a text from which on an assembly takes seconds."""

_AT_ONCE = 3
"""Texts that are assembled in advance."""

ROOM = (64, 128)
"""Registers per thread in blocks of 1,024 and of 512 threads."""

_THREADS = re.compile(r"^\s*\.(?:req|max)ntid\b[^\n{]*", re.M)
_BOUND = re.compile(r"\.(?:minnctapersm|maxnreg)\b")
_DIRECTIVE = re.compile(r"\.(?:minnctapersm|maxnctapersm|maxnreg|maxntid|reqntid)\b")


Assemble = Callable[[str], "Usage | None"]


@dataclass(frozen=True)
class Assembled:
    """A cubin and the assembler's report on it."""

    cubin: bytes
    usage: Usage


def assemble(text: str, ptxas: str, flags: tuple[str, ...]) -> Assembled | None:
    """Run `ptxas -v`, once for texts that differ only in their metadata. None if it refuses the text or does not run;
    the compiler that uses the text reports the error.
    """

    def made(code: str) -> Assembled | None:
        found = _assemble(code, ptxas, flags)
        assembler.LAST.complaint = found if isinstance(found, str) else ""
        return None if isinstance(found, str) else found

    return metadata_patch.assemble_once(text, made, "cubin")


@lru_cache(8)
def _assemble(text: str, ptxas: str, flags: tuple[str, ...]) -> Assembled | str:
    """The cubin, or the assembler's complaint."""
    with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
        source, out = Path(folder, "module.ptx"), Path(folder, "module.cubin")
        source.write_bytes(text.encode())
        command: Sequence[str] = [ptxas, "-v", *flags, str(source), "-o", str(out)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:  # another architecture's program, or removed meanwhile
            return str(error)
        made = not done.returncode and out.exists()  # with an option for help it succeeds without a cubin
        log = done.stderr + done.stdout
        return Assembled(out.read_bytes(), read_log(log)) if made else assembler.complaint(log)


def request_max_registers(text: str) -> str:
    """The text with a directive that lets its kernels use all registers that a thread can have, because one block per
    SM is enough. Unchanged if the text already bounds them.
    """
    return text if _BOUND.search(text) else _THREADS.sub(r"\g<0>\n.minnctapersm 1", text)


def outgrown(plain: Usage, usage: Usage) -> dict[str, int]:
    """Kernel -> the limit that its records pushed it over, among those that large blocks need."""
    before = dict(plain.entries)
    found = {}
    for name, count in usage.entries:
        room = next((room for room in ROOM if before.get(name, count) <= room < count), None)
        if room is not None:
            found[name] = room
    return found


def with_register_limits(text: str, room: Mapping[str, int]) -> str:
    """The text with the kernels' register limits."""
    for function in reversed(cfg.functions(text) if room else []):
        if function.name in room:
            brace = function.open - 1
            text = f"{text[:brace]}.maxnreg {room[function.name]}\n{text[brace:]}"
    return text


def _large(text: str, usage: Usage) -> bool:
    """True if a kernel without directives on threads or registers needs more registers than blocks of 1,024 threads
    have.
    """
    large = {name for name, count in usage.entries if count > ROOM[0]}
    return any(f.name in large and not _has_directive(f) for f in (cfg.functions(text) if large else []))


def _has_directive(function: cfg.Function) -> bool:
    brace = function.open - 1
    return _DIRECTIVE.search(function.text, function.text.rfind(")", 0, brace), brace) is not None


def lower_to_fit(
    text: str,
    recording: Recording,
    *,
    frontend: str,
    measure: Assemble,
    known: Iterable[Problem] = (),
    source: SourceInfo | None = None,
    shared: int | None = None,
    ahead: bool = False,
    cooperative: bool = False,
    code: AssembleCode | None = None,
    patched: bool = False,
) -> Lowered:
    """lower() with the largest `pending` that adds neither a spill nor an ignored setmaxnreg.

    A record that waits to be stored holds two or three registers. If that makes the kernel spill or lose a setmaxnreg,
    a store in place is cheaper; only the assembler can tell. A kernel that grows past 64 registers can no longer be
    launched with 1,024 threads, and with more registers, fewer blocks may fit on an SM. If as many warps fit on an SM
    as without marks, registers are also spent on loops with memory accesses. With placement="schedule" the result has
    machine code; where that is not possible, a problem gives the reason. Remaining losses, and gains, become a problem
    of the result.

    Args:
        text: PTX.
        recording: the options.
        frontend: its name, for the metadata.
        measure: assembles a text and reports on it. It is called once if the first try fits and leaves the kernel's
            blocks per SM alone, mostly one to three times more if not, once more if there are such loops (eight times
            in all at most), and never for text without marks.
        known: problems that already exist, for the metadata.
        source: names and places that the text does not show.
        shared: bytes of shared memory per block; if given, as many blocks fit on an SM as without marks, if that
            needs no spills.
        ahead: `measure` may be called in threads, for texts that are likely to be needed next.
        cooperative: the blocks of a launch run all at once, so their number may be what fits on the device without
            marks: if fewer fit with them, the kernel gets none, and a problem reports it.
        code: assembles a text for placement="schedule", with a line table or with the kernel's options; None if the
            caller can only load the text.
        patched: the caller loads what Backend.patched() makes of that code.

    Raises:
        UnsupportedError, PairingError, UsageError: as lower().
    """
    reports = _Reports(measure, ahead and len(text) < _LONG)
    try:
        return _lower_to_fit(
            text, recording, frontend, reports, tuple(known), source, shared, cooperative, code, patched
        )
    finally:
        reports.close()


class _Reports:
    """The assembler's report on each text, and those that are made in advance."""

    def __init__(self, measure: Assemble, ahead: bool) -> None:
        self._measure, self._found = measure, dict[str, Future[Usage | None]]()
        self._pool = ThreadPoolExecutor(_AT_ONCE) if ahead else None

    def ahead(self, text: str) -> None:
        """Begin to assemble a text that is likely to be needed."""
        if self._pool is not None and text not in self._found:
            self._found[text] = self._pool.submit(self._measure, text)

    def __call__(self, text: str) -> Usage | None:
        if text not in self._found:
            self._found[text] = done = Future[Usage | None]()
            done.set_result(self._measure(text))
        return self._found[text].result()

    def close(self) -> None:
        """Cancel texts that turned out not to be needed."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _lower_to_fit(
    text: str, recording: Recording, frontend: str, measure: _Reports, before: tuple[Problem, ...],
    source: SourceInfo | None, shared: int | None, cooperative: bool, code: AssembleCode | None, patched: bool,
) -> Lowered:  # fmt: skip
    room = dict[str, int]()

    def lowered(pending: int, problems: tuple[Problem, ...], max_registers: bool, spare: bool = False) -> Lowered:
        found = lower(
            text, replace(recording, pending=pending), frontend=frontend, known=problems, source=source, spare=spare
        )
        return replace(
            found, text=with_register_limits(request_max_registers(found.text) if max_registers else found.text, room)
        )

    def with_spare_registers(fits: Lowered, usage: Usage, pending: int, max_registers: bool = False) -> Lowered:
        if not fits.has_spare_registers:
            return fits
        other = lowered(pending, before, max_registers, spare=True)
        more = measure(other.text)
        return fits if more is None or more.lowers_occupancy(usage) else other

    best = lower(text, recording, frontend=frontend, known=before, source=source)
    if best.text is text:
        return best
    if recording.placement == "schedule":
        from . import schedule_placement  # importing sass takes a while

        try:
            return schedule_placement.record_machine_code(best, recording, code, shared, cooperative, patched)
        except UnsupportedError as error:
            before = (*before, *(schedule_placement.fallback(one.name, error) for one in best.meta.kernels))
            best = lower(text, recording, frontend=frontend, known=before, source=source)
    limits = {} if shared is None else occupancy.limits(text, shared)
    if occupancy.by_registers(limits):
        measure.ahead(without_marks(text))
    if best.has_spare_registers:
        measure.ahead(lowered(recording.pending, before, False, spare=True).text)
    least = measure(best.text)
    if least is None:
        return best
    may_lose = occupancy.may_lose(limits, dict(least.entries))
    if not (least.pressed or may_lose or _large(best.text, least)):
        return with_spare_registers(best, least, recording.pending)
    plain = measure(without_marks(text))
    if plain is None:
        return best

    def finished(fits: Lowered, usage: Usage, pending: int, max_registers: bool = False) -> Lowered:
        if cooperative and (lost := lost_blocks(plain, usage, limits)):
            return Lowered(text, recording.module(frontend), (*before, lost))
        found = with_spare_registers(fits, usage, pending, max_registers) if usage.no_worse(plain) else fits
        kernels = [kernel.name for kernel in fits.meta.kernels]
        if (problem := change(kernels, plain, usage, limits)) is None:
            return found
        about = replace(found.meta, problems=(*found.meta.problems, problem))
        changed = metadata_patch.with_meta(found.text, about)
        return replace(found, text=changed, meta=about, problems=(*found.problems, problem))

    fewer = [pending for pending in (FEW, 0) if pending < recording.pending]
    directed = {function.name for function in cfg.functions(text) if _has_directive(function)}
    large = {name: most for name, most in outgrown(plain, least).items() if name not in directed}
    if crowded := occupancy.bounds(limits, dict(plain.entries), dict(least.entries)):
        room = {**large, **crowded}
        tries = {pending: lowered(pending, before, False) for pending in (recording.pending, *fewer)}
        for other in tries.values():
            measure.ahead(other.text)
        for pending, other in tries.items():
            usage = measure(other.text)
            if usage is not None and usage.no_worse(plain):
                return finished(other, usage, pending)
    room = large
    narrow = replace(best, text=with_register_limits(best.text, room))
    usage = measure(narrow.text) if room else None
    if usage is not None:
        best, least = narrow, usage
    else:
        room = {}
    if least.no_worse(plain):
        return finished(best, least, recording.pending)
    max_registers = least.fell_back_to_spilling(plain)
    best_try = recording.pending, False
    for pending in [recording.pending, *fewer] if max_registers else fewer:
        other = lowered(pending, before, max_registers)
        usage = measure(other.text)
        if usage is not None and usage < least:
            best, least, best_try = other, usage, (pending, max_registers)
        elif other.text != best.text and pending == FEW and len(text) > _LONG:
            break  # where a few pending records instead of many save nothing, storing in place rarely does
        if least.no_worse(plain):
            break
    return finished(best, least, *best_try)
