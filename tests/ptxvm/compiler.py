"""A kernel -> one Python generator function.

The function runs one thread and pauses (`yield`) before every access to memory that other threads
see. Registers start as garbage that the caller chooses, as on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from kscope.marks.grammar import Mark

from .memory import FaultError
from .ops import PAUSE, Ops, is_clock, permute
from .syntax import Addr, Instr, Kernel, Name, Operand, Pair, PtxError, Reg, Vec

FUEL = 50_000
"""Taken branches after which a thread is taken to hang."""

Meeting = tuple[int, str, int]
"""Where a lane waits for its warp: line, how the values combine, its own value."""
ThreadState = Generator[Meeting | None, int | None, None]
ThreadBody = Callable[[Any, Any, dict[str, int], int], ThreadState]


def python_of(kernel: Kernel) -> str:
    """The Python source of `kernel`: a dispatch over its blocks, which fall into one another."""
    ops, lines = Ops(), []
    widths = _registers(kernel)
    for py, width in widths.items():
        lines.append(f"    {py} = g & {(1 << width) - 1}")
    lines += [f"    fuel = {FUEL}", "    pc = 0", "    while True:"]
    for number, block in enumerate(kernel.blocks):
        lines.append(f"        if pc == {number}:")
        for instr in block:
            lines += [f"            {line}" for line in _guarded(ops, instr)]
        lines.append(f"            pc = {number + 1}")
    lines += [f"        if pc == {len(kernel.blocks)}:", "            return"]
    return "\n".join(["def run(t, m, A, g):", *lines, "    yield"])


def compile_kernel(kernel: Kernel) -> ThreadBody:
    """The kernel as a function (thread, memory, addresses of symbols, garbage) -> generator."""
    names: dict[str, Any] = {"FaultError": FaultError, "permute": permute, "Mark": Mark}
    exec(compile(python_of(kernel), f"<ptx {kernel.name}>", "exec"), names)
    body: ThreadBody = names["run"]
    return body


def _registers(kernel: Kernel) -> dict[str, int]:
    """Python name -> width of every register that the kernel declares or uses."""
    found: dict[str, int] = {}
    for block in kernel.blocks:
        for instr in block:
            for arg in (*instr.args, instr.guard):
                _collect(arg, found)
    return found


def _collect(arg: Operand | None, found: dict[str, int]) -> None:
    if isinstance(arg, Reg):
        found[arg.py] = arg.bits
    elif isinstance(arg, Vec):
        for item in arg.items:
            _collect(item, found)
    elif isinstance(arg, Addr):
        _collect(arg.base, found)
    elif isinstance(arg, Pair):
        _collect(arg.first, found)
        _collect(arg.second, found)


def _guarded(ops: Ops, instr: Instr) -> list[str]:
    body = [f"# {instr.line}: {instr.text}", *_body(ops, instr)]
    if instr.op[0] in PAUSE and instr.op[1] != "warp" and not {"const", "param"} & set(instr.op):
        body.insert(1, "yield")
    if instr.guard is None:
        return body
    sign = "not " if instr.guard.negated else ""
    agreed = [f"t.uniform({instr.line}, {instr.guard.py})"] if instr.op[:2] == ("bra", "uni") else []
    # a clock advances at every potential read, for every thread
    passed = ["else:", "    t.tick()"] if any(map(is_clock, instr.args)) else []
    return [*agreed, f"if {sign}{instr.guard.py}:", *(f"    {line}" for line in body), "    pass", *passed]


def _body(ops: Ops, instr: Instr) -> list[str]:
    if instr.op[0] in ("bra", "brx"):
        return [
            "fuel -= 1",
            f"if fuel < 0: raise FaultError('line {instr.line}: the thread hangs')",
            f"pc = {_target(ops, instr)}",
            "continue",
        ]
    if instr.op[0] in ("ret", "exit"):
        return [f"t.quit = {instr.op[0] == 'exit'}", "return"]
    if instr.op[0] == "trap":
        return [f"raise FaultError('line {instr.line}: trap')"]
    return ops.statements(instr)


def _target(ops: Ops, instr: Instr) -> str:
    """Python for the number of the block that a jump goes to."""
    last = instr.args[-1]
    named = last.name if isinstance(last, Name) else ""
    names = instr.scope.tables.get(named, []) if instr.op[0] == "brx" else [named]
    numbers = [instr.scope.label(name) for name in names]
    if not numbers or None in numbers:
        raise PtxError(instr.line, f"no such label in scope: {instr.text}")
    return f"{numbers}[{ops.value(instr, instr.args[0], 'u32')}]" if instr.op[0] == "brx" else str(numbers[0])
