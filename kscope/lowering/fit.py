"""Lowering that fits: as many pending records as the kernel has registers for.

A record that waits to be stored holds two registers or three. Where that makes the kernel spill, or lose a
setmaxnreg, a store in place is cheaper: so the assembler is asked. What lives here: the question, and the
choice. What does not: lowering (plan.py), which assembler and flags (frontends).
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ..capture import Problem
from ..recording import Recording
from .plan import Lowered, Told, lower, without_marks

FEWER = (2, 0)
"""Pending records to try after the recording's own number; 0 stores in place."""

_SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_IGNORED = re.compile(r"setmaxnreg'?\s+ignored")
_THREADS = re.compile(r"^\s*\.(?:req|max)ntid\b[^\n{]*", re.M)
_BOUND = re.compile(r"\.(?:minnctapersm|maxnreg)\b")


@dataclass(frozen=True, order=True)
class Usage:
    """What the assembler says of a text; smaller is better. Bytes are per thread, summed over functions."""

    setmaxnreg_ignored: bool
    spill_bytes: int
    registers: int

    @property
    def pressed(self) -> bool:
        """Whether the text wants more registers than it gets."""
        return self.setmaxnreg_ignored or self.spill_bytes > 0

    def no_worse(self, other: Usage) -> bool:
        """Whether this text loses nothing that the other one has; registers within the limit are free."""
        return (self.setmaxnreg_ignored, self.spill_bytes) <= (other.setmaxnreg_ignored, other.spill_bytes)

    def gave_up(self, plain: Usage) -> bool:
        """Whether the assembler spills into fewer registers than it had without records. Where a kernel does not fit
        into 255, it may take as many as would fill the SM with warps instead, 32 of them, and spill the rest."""
        return self.spill_bytes > plain.spill_bytes and self.registers < plain.registers


Assemble = Callable[[str], "Usage | None"]


@lru_cache(8)
def assemble(text: str, ptxas: str, flags: tuple[str, ...]) -> Usage | None:
    """Runs `ptxas -v`. None where it refuses the text: its error is for whoever compiles it in earnest."""
    with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
        source = Path(folder, "module.ptx")
        source.write_text(text)
        command: Sequence[str] = [ptxas, "-v", *flags, str(source), "-o", str(source.with_suffix(".cubin"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode else usage(done.stderr + done.stdout)


def usage(log: str) -> Usage:
    """What an assembler's verbose log says: ptxas -v, or nvJitLink's -verbose."""
    spilled = sum(int(stores) + int(loads) for stores, loads in _SPILL.findall(log))
    registers = max(map(int, _REGISTERS.findall(log)), default=0)
    return Usage(_IGNORED.search(log) is not None, spilled, registers)


def roomy(text: str) -> str:
    """The text, whose kernels say that one block on an SM is enough: they get all registers that a thread can have.
    As it is where the text says something about that itself."""
    return text if _BOUND.search(text) else _THREADS.sub(r"\g<0>\n.minnctapersm 1", text)


def lower_to_fit(
    text: str,
    recording: Recording,
    *,
    frontend: str,
    measure: Assemble,
    known: Iterable[Problem] = (),
    told: Told | None = None,
) -> Lowered:
    """plan.lower() with the largest `pending` that adds neither a spill nor an ignored setmaxnreg.

    `measure` is called once where the first try fits, up to five times where it does not, and never for
    text without marks. What the kernel loses all the same is a problem of the result. Raises as lower().
    """

    def lowered(pending: int, known: tuple[Problem, ...], room: bool) -> Lowered:
        found = lower(text, replace(recording, pending=pending), frontend=frontend, known=known, told=told)
        return replace(found, text=roomy(found.text)) if room else found

    known = tuple(known)
    best = lower(text, recording, frontend=frontend, known=known, told=told)
    if best.text is text:
        return best
    least = measure(best.text)
    if least is None or not least.pressed:
        return best
    plain = measure(without_marks(text))
    if plain is None or least.no_worse(plain):
        return best
    fewer = [pending for pending in FEWER if pending < recording.pending and not recording.live]
    room = least.gave_up(plain)
    if room:
        fewer = [recording.pending, *fewer]
    chosen = recording.pending, False
    for pending in fewer:
        other = lowered(pending, known, room)
        usage = measure(other.text)
        if usage is not None and usage < least:
            best, least, chosen = other, usage, (pending, room)
        if least.no_worse(plain):
            return best
    return lowered(chosen[0], (*known, _loss(best, plain, least)), chosen[1])


def _loss(lowered: Lowered, plain: Usage, usage: Usage) -> Problem:
    kernels = ", ".join(kernel.name for kernel in lowered.meta.kernels)
    losses = []
    if usage.spill_bytes > plain.spill_bytes:
        losses.append(f"{usage.spill_bytes - plain.spill_bytes} more bytes of registers spill")
    if usage.setmaxnreg_ignored > plain.setmaxnreg_ignored:
        losses.append("setmaxnreg is ignored")
    text = f"kernel {kernels}: with its regions {' and '.join(losses)}"
    return Problem("registers", f"{text}; fewer regions, or ones outside of the innermost loop, cost less")
