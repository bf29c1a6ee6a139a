"""placement="schedule": records a kernel in the machine code that the assembler made of it without marks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256

from .. import ptx
from ..capture import layout, wire
from ..capture.model import ModuleMeta, Problem, RowLayout
from ..errors import FormatError, MissingError, UnsupportedError
from ..instrument.recording import Recording
from ..marks.grammar import PREFIX
from ..sass.recording.kernel import Recorded
from ..sass.recording.kernel import record_kernel as record
from . import assembler, metadata_patch, occupancy
from .lowered import AssembleCode, Lowered
from .register_usage import Usage, change, lost_blocks

_FEW = 16
"""Registers a thread that limit no blocks."""
_LAYOUT_BYTES = 72
"""Size of the layout of a row, as text."""
PROVED = frozenset({90})
"""Architectures on which recorded kernels ran."""


def record_machine_code(
    lowered: Lowered,
    recording: Recording,
    assemble: AssembleCode | None,
    shared: int | None,
    cooperative: bool,
    patched: bool = False,
) -> Lowered:
    """The result of lower(), with machine code that records instead of the text's.

    Args:
        lowered: lower()'s result.
        recording: the options.
        assemble: the assembler, which may be called in threads; None if this way of compiling has none.
        shared: bytes of shared memory per block, None if unknown.
        cooperative: the blocks of a launch run all at once.
        patched: the caller loads what Backend.patched() makes of the machine code.

    Raises:
        UnsupportedError: it cannot be recorded there; the message has the reason.
    """
    if assemble is None:
        raise UnsupportedError("kscope does not run the assembler for this kernel")
    digest = sha256(lowered.marked.encode()).digest()
    described = [
        replace(one, id=layout.kernel_hash(f"{one.name}\0schedule\0".encode() + digest)) for one in lowered.meta.kernels
    ]
    about = replace(lowered.meta, kernels=tuple(described), placement="schedule")
    text = metadata_patch.with_meta(lowered.marked, about, _layout_bytes(lowered.marked))

    def assembled(code: str, lines: bool) -> bytes:
        if (made := assemble(code, lines)) is None:
            why = getattr(assembler.LAST, "complaint", "")
            raise UnsupportedError(f"the assembler refuses its text{why and f': {why}'}")
        return made

    cubin, problems, layouts = None, list[Problem](), dict[RowLayout, None]()
    limits = {} if shared is None else occupancy.limits(text, shared)
    for (symbol, kernel), one in zip(lowered.kernels.items(), described, strict=True):
        try:
            blocks = limits[symbol].blocks(_FEW) if symbol in limits else None
            found = record(text, _identified(kernel, one.id), assembled, symbol, cubin, blocks, patched)
        except (MissingError, FormatError) as error:  # there is no nvdisasm, or it does not read the code
            raise UnsupportedError(str(error)) from None
        cost = _cost(one.name, symbol, found, limits, cooperative)
        problems += [
            *(() if kernel.arch in PROVED else (untested_problem(kernel.arch),)),
            *(() if cost is None else (cost,)),
        ]
        cubin = found.data
        layouts |= dict.fromkeys(found.layouts)
    known = replace(about, layouts=tuple(layouts), problems=(*about.problems, *dict.fromkeys(problems)))
    made = Lowered(text, about, about.problems, cubin=cubin)
    return with_meta(made, known) if known != about else made


def _identified(kernel: ptx.Kernel, number: int) -> ptx.Kernel:
    """The kernel with its id as operands of its texts."""
    words = str(number & 0xFFFFFFFF), str(number >> 32)
    return replace(kernel, id=words, size_offset=str(wire.size_offset(number)) if kernel.sized else None)


def _layout_bytes(text: str) -> int:
    """The most bytes of metadata that layouts of rows take: a row begins with a record, and ends with another one."""
    return _LAYOUT_BYTES * (1 + sum(text.count(f"{PREFIX}{act}") for act in ("exit", "instant")))


def fallback(kernel: str, error: UnsupportedError) -> Problem:
    """The problem of a kernel that could not be recorded in machine code."""
    text = f"kernel {kernel} is recorded with placement='fence', because with placement='schedule' {error}"
    return Problem("placement", text, kernel=kernel)


def untested_problem(arch: int) -> Problem:
    """The problem of an architecture on which this placement never ran. It names no kernel, so it is reported once."""
    text = (
        f"placement='schedule' never ran on a device of sm_{arch}: its machine code was checked without one, so compare"
        " the results of your kernels with those without recording, or use placement='fence'"
    )
    return Problem("unproved", text)


def with_meta(lowered: Lowered, meta: ModuleMeta) -> Lowered:
    """The result with other metadata, in its text and in its machine code."""
    text = metadata_patch.with_meta(lowered.text, meta)
    cubin = None if lowered.cubin is None else metadata_patch.in_binary(lowered.cubin, lowered.text, text)
    return replace(lowered, text=text, meta=meta, problems=meta.problems, cubin=cubin)


def _cost(
    name: str, symbol: str, found: Recorded, known: Mapping[str, occupancy.Limits], cooperative: bool
) -> Problem | None:
    """The cost of more registers for the kernel; raises UnsupportedError if it is not allowed."""
    limits = {symbol: known[symbol]} if symbol in known else {}
    before, after = (Usage(False, 0, count, tuple((one, count) for one in limits)) for count in found.registers)
    if cooperative and lost_blocks(before, after, limits):
        raise UnsupportedError("fewer of its blocks would fit on an SM, and it is launched cooperatively")
    return change([name], before, after, limits)
