"""Lowering that fits: as many pending records as the kernel has registers for, in blocks as large as before.

A record that waits to be stored holds two registers or three. Where that makes the kernel spill, or lose a
setmaxnreg, a store in place is cheaper: so the assembler is asked. And a kernel that has grown past 64 registers
could not be launched with 1,024 threads any more. What lives here: the question, and the choice. What does not:
lowering (plan.py), which assembler and flags (frontends).
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from ..capture.model import Problem
from ..instrument.recording import Recording
from . import cfg
from .plan import Lowered, Told, lower, without_marks

FEWER = (2, 0)
"""Pending records to try after the recording's own number; 0 stores in place."""

ROOM = (64, 128)
"""Registers that each thread can have in blocks of 1,024 and of 512."""

_SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'(?:(?!Compiling entry).)*?Used (\d+) registers", re.S)
_IGNORED = re.compile(r"setmaxnreg'?\s+ignored")
_THREADS = re.compile(r"^\s*\.(?:req|max)ntid\b[^\n{]*", re.M)
_BOUND = re.compile(r"\.(?:minnctapersm|maxnreg)\b")
_SAID = re.compile(r"\.(?:minnctapersm|maxnctapersm|maxnreg|maxntid|reqntid)\b")


def _warps(registers: int) -> int:
    """How many warps with so many registers a thread fit on an SM: each of four parts has 16,384, gives a warp units of
    256 of them, and holds 16 warps at most (CUDA C++ Programming Guide, technical specifications)."""
    return 4 * min(16, 16384 // (256 * -(-max(registers, 1) // 8)))


@dataclass(frozen=True, order=True)
class Usage:
    """What the assembler says of a text; smaller is better. Bytes are per thread, summed over functions; entries:
    registers by kernel, where the log tells them."""

    setmaxnreg_ignored: bool
    spill_bytes: int
    registers: int
    entries: tuple[tuple[str, int], ...] = field(default=(), compare=False)

    @property
    def pressed(self) -> bool:
        """Whether the text wants more registers than it gets."""
        return self.setmaxnreg_ignored or self.spill_bytes > 0

    def no_worse(self, other: Usage) -> bool:
        """Whether this text loses nothing that the other one has; registers within the limit are free."""
        return (self.setmaxnreg_ignored, self.spill_bytes) <= (other.setmaxnreg_ignored, other.spill_bytes)

    def crowds(self, other: Usage) -> bool:
        """Whether this text spills more than the other one, or leaves room on an SM for fewer of a kernel's warps."""
        mine = dict(self.entries)
        pairs = [(mine.get(name, self.registers), count) for name, count in other.entries]
        fewer = any(_warps(own) < _warps(count) for own, count in pairs or [(self.registers, other.registers)])
        return fewer or not self.no_worse(other)

    def gave_up(self, plain: Usage) -> bool:
        """Whether the assembler spills into fewer registers than it had without records. Where a kernel does not fit
        into 255, it may take as many as would fill the SM with warps instead, 32 of them, and spill the rest."""
        return self.spill_bytes > plain.spill_bytes and self.registers < plain.registers


Assemble = Callable[[str], "Usage | None"]


@dataclass(frozen=True)
class Assembled:
    """A cubin, and what it needs."""

    cubin: bytes
    usage: Usage


@lru_cache(8)
def assemble(text: str, ptxas: str, flags: tuple[str, ...]) -> Assembled | None:
    """Runs `ptxas -v`. None where it refuses the text, or does not run: its error is for whoever compiles it in
    earnest."""
    with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
        source, out = Path(folder, "module.ptx"), Path(folder, "module.cubin")
        source.write_bytes(text.encode())
        command: Sequence[str] = [ptxas, "-v", *flags, str(source), "-o", str(out)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except OSError:  # made for another machine, or gone since it was found
            return None
        made = not done.returncode and out.exists()  # asked for help by an option, it succeeds without a cubin
        return Assembled(out.read_bytes(), usage(done.stderr + done.stdout)) if made else None


def usage(log: str) -> Usage:
    """What an assembler's verbose log says: ptxas -v, or nvJitLink's -verbose."""
    spilled = sum(int(stores) + int(loads) for stores, loads in _SPILL.findall(log))
    registers = max(map(int, _REGISTERS.findall(log)), default=0)
    entries = tuple((name, int(count)) for name, count in _ENTRY.findall(log))
    return Usage(_IGNORED.search(log) is not None, spilled, registers, entries)


def roomy(text: str) -> str:
    """The text, whose kernels say that one block on an SM is enough: they get all registers that a thread can have.
    As it is where the text says something about that itself."""
    return text if _BOUND.search(text) else _THREADS.sub(r"\g<0>\n.minnctapersm 1", text)


def outgrown(plain: Usage, usage: Usage) -> dict[str, int]:
    """By kernel, the registers that it may have: those that records took from what large blocks can have to more."""
    before = dict(plain.entries)
    found = {}
    for name, count in usage.entries:
        room = next((room for room in ROOM if before.get(name, count) <= room < count), None)
        if room is not None:
            found[name] = room
    return found


def bounded(text: str, room: Mapping[str, int]) -> str:
    """The text, whose kernels say how many registers they may have."""
    for function in reversed(cfg.functions(text) if room else []):
        if function.name in room:
            brace = function.open - 1
            text = f"{text[:brace]}.maxnreg {room[function.name]}\n{text[brace:]}"
    return text


def _large(text: str, usage: Usage) -> bool:
    """Whether a kernel that says nothing of its threads or registers needs more than blocks of 1,024 threads have."""
    large = {name for name, count in usage.entries if count > ROOM[0]}
    return any(f.name in large and not _said(f) for f in (cfg.functions(text) if large else []))


def _said(function: cfg.Function) -> bool:
    brace = function.open - 1
    return _SAID.search(function.text, function.text.rfind(")", 0, brace), brace) is not None


def lower_to_fit(
    text: str,
    recording: Recording,
    *,
    frontend: str,
    measure: Assemble,
    known: Iterable[Problem] = (),
    told: Told | None = None,
) -> Lowered:
    """plan.lower() with the largest `pending` that adds neither a spill nor an ignored setmaxnreg, and with registers
    spent on loops that load or store where as many warps fit on an SM as without.

    `measure` is called once where the first try fits, up to five times more where it does not, once more where there
    are such loops, and never for text without marks. What the kernel loses all the same is a problem of the result.
    Raises as lower().
    """

    def lowered(pending: int, problems: tuple[Problem, ...], roomily: bool, spare: bool = False) -> Lowered:
        found = lower(
            text, replace(recording, pending=pending), frontend=frontend, known=problems, told=told, spare=spare
        )
        return replace(found, text=bounded(roomy(found.text) if roomily else found.text, room))

    def spent(fits: Lowered, usage: Usage, pending: int, roomily: bool = False) -> Lowered:
        if not fits.spendable:
            return fits
        other = lowered(pending, before, roomily, spare=True)
        more = measure(other.text)
        return fits if more is None or more.crowds(usage) else other

    before, room = tuple(known), dict[str, int]()
    best = lower(text, recording, frontend=frontend, known=before, told=told)
    if best.text is text:
        return best
    least = measure(best.text)
    if least is None:
        return best
    if not (least.pressed or _large(best.text, least)):
        return spent(best, least, recording.pending)
    plain = measure(without_marks(text))
    if plain is None:
        return best
    said = {function.name for function in cfg.functions(text) if _said(function)}
    room = {name: most for name, most in outgrown(plain, least).items() if name not in said}
    narrow = replace(best, text=bounded(best.text, room))
    usage = measure(narrow.text) if room else None
    if usage is not None:
        best, least = narrow, usage
    else:
        room = {}
    if least.no_worse(plain):
        return spent(best, least, recording.pending)
    fewer = [pending for pending in FEWER if pending < recording.pending and not recording.live]
    roomily = least.gave_up(plain)
    if roomily:
        fewer = [recording.pending, *fewer]
    chosen = recording.pending, False
    for pending in fewer:
        other = lowered(pending, before, roomily)
        usage = measure(other.text)
        if usage is not None and usage < least:
            best, least, chosen = other, usage, (pending, roomily)
        if least.no_worse(plain):
            return spent(best, least, *chosen)
    return lowered(chosen[0], (*before, _loss(best, plain, least)), chosen[1])


def _loss(lowered: Lowered, plain: Usage, usage: Usage) -> Problem:
    kernels = ", ".join(kernel.name for kernel in lowered.meta.kernels)
    losses = []
    if usage.spill_bytes > plain.spill_bytes:
        losses.append(f"{usage.spill_bytes - plain.spill_bytes} more bytes of registers spill")
    if usage.setmaxnreg_ignored > plain.setmaxnreg_ignored:
        losses.append("setmaxnreg is ignored")
    text = f"kernel {kernels}: with its regions {' and '.join(losses)}"
    kernel = lowered.meta.kernels[0].name if len(lowered.meta.kernels) == 1 else None
    return Problem("registers", f"{text}; fewer regions, or ones outside the innermost loop, cost less", kernel=kernel)
