"""Cubins: handwritten PTX by every ptxas at hand, the contract's kernels by Triton's own."""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from ptxvm.assemble import ptxas

from kscope.errors import MissingError
from kscope.lowering import assembler
from kscope.machine_code.tools import find
from kscope.sass.cubin import reading
from kscope.sass.cubin.instructions import Function


def head(arch: int) -> str:
    """The first lines of a module for an architecture, in its PTX version."""
    version = "8.0" if arch <= 90 else "8.8"
    return f".version {version}\n.target sm_{arch}{'a' * (arch >= 90)}\n.address_size 64\n"


HEAD = head(90)
_TARGET = re.compile(r"^\.target (\w+)", re.M)
BRANCHING = (
    HEAD
    + """.visible .entry branching(.param .u64 p, .param .u32 n) .maxntid 128
{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<6>; .reg .f32 %f<4>;
    .shared .align 16 .b8 kept[512];
    .loc 1 10 0
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; cvta.to.global.u64 %d1, %d1;
    mov.u32 %r2, %tid.x; setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra DONE;
    .loc 1 20 0
    mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d1, %d2; ld.global.f32 %f1, [%d3]; mov.u32 %r3, 0;
LOOP:
    .loc 1 30 0
    and.b32 %r4, %r2, 1; setp.eq.u32 %p2, %r4, %r3; @%p2 bra ODD;
    fma.rn.f32 %f1, %f1, %f1, %f1; ld.global.f32 %f2, [%d3+512]; add.f32 %f1, %f1, %f2;
    st.shared.f32 [kept], %f1; bra NEXT;
ODD:
    .loc 1 40 0
    ex2.approx.f32 %f1, %f1; atom.global.add.u32 %r6, [%d1], %r2; cvt.rn.f32.u32 %f2, %r6; add.f32 %f1, %f1, %f2;
NEXT:
    .loc 1 50 0
    bar.sync 0; shfl.sync.bfly.b32 %r7, %r2, 1, 31, 0xffffffff; add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, %r1;
    @%p3 bra LOOP;
    st.global.f32 [%d3], %f1;
DONE:
    .loc 1 60 0
    ret;
}
.file 1 "/lines.cu"
"""
)
"""Branches that diverge and meet again, a loop, a barrier, an early exit, memory of every kind, and lines."""


def _found() -> tuple[str, ...]:
    """Every ptxas at hand, the newest first."""
    own = ptxas("8.0")
    return tuple(dict.fromkeys([*([own] if own else []), *assembler.installed()]))


def _disassembler() -> bool:
    try:
        return bool(find("nvdisasm"))
    except MissingError:
        return False


ASSEMBLERS = _found()
EACH = [pytest.param(tool, marks=[pytest.mark.variation] if n else []) for n, tool in enumerate(ASSEMBLERS)]
"""Every assembler; all but the first in runs of all variations."""
pytestmark = needs_tools = pytest.mark.skipif(
    not (ASSEMBLERS and _disassembler()), reason="needs ptxas and nvdisasm: pip install triton"
)


def _target(text: str) -> list[str]:
    return [f"--gpu-name={name}" for name in _TARGET.findall(text)]


@cache
def assembled(text: str, tool: str = "", options: tuple[str, ...] = ("-lineinfo",)) -> bytes:
    """The cubin of a PTX text for its target."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "k.ptx"), Path(folder, "k.cubin")
        source.write_text(text)
        command = [tool or ASSEMBLERS[0], *options, *_target(text), str(source), "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True)
        return made.read_bytes()


CONTRACT = ("straight", "loop", "early_exit", "coordinates", "strategies", "words", "values", "chosen", "consume")
"""Some of the contract's kernels."""


@cache
def contract(name: str) -> bytes:
    """The cubin of one of the contract's kernels, without marks."""
    if find_spec("triton") is None:
        pytest.skip("needs Triton")
    import triton
    from contract.frontend_triton import KERNELS
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(KERNELS[name], {"out": "*i32", "n": "i32"}, {})
    options = {"num_warps": 4, "enable_fp_fusion": True}
    return bytes(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["cubin"])


@cache
def functions(data: bytes) -> tuple[Function, ...]:
    """The functions of a cubin."""
    return reading.functions(data)
