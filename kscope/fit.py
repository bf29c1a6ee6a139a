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

from .capture import Problem
from .plan import Lowered, Told, lower, without_marks
from .recording import Recording

FEWER = (2, 0)
"""Pending records to try after the recording's own number; 0 stores in place."""

_SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_IGNORED = re.compile(r"setmaxnreg'?\s+ignored")


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

    `measure` is called once where the first try fits, up to four times where it does not, and never for
    text without marks. What the kernel loses all the same is a problem of the result. Raises as lower().
    """
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
    chosen = recording
    for pending in FEWER if not recording.live else ():
        if pending >= recording.pending:
            continue
        fewer = replace(recording, pending=pending)
        other = lower(text, fewer, frontend=frontend, known=known, told=told)
        usage = measure(other.text)
        if usage is not None and usage < least:
            best, least, chosen = other, usage, fewer
        if least.no_worse(plain):
            return best
    lost = _loss(best, plain, least)
    return lower(text, chosen, frontend=frontend, known=(*known, lost), told=told)


def _loss(lowered: Lowered, plain: Usage, usage: Usage) -> Problem:
    kernels = ", ".join(kernel.name for kernel in lowered.meta.kernels)
    losses = []
    if usage.spill_bytes > plain.spill_bytes:
        losses.append(f"{usage.spill_bytes - plain.spill_bytes} more bytes of registers spill")
    if usage.setmaxnreg_ignored > plain.setmaxnreg_ignored:
        losses.append("setmaxnreg is ignored")
    text = f"kernel {kernels}: with its regions {' and '.join(losses)}"
    return Problem("registers", f"{text}; fewer regions, or ones outside of the innermost loop, cost less")
