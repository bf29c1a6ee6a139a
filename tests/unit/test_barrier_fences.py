"""Clock reads after a barrier wait for it, in the text and in the machine code of all installed assemblers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from ptxvm.assemble import ptxas

from kscope.errors import KscopeError
from kscope.instrument.recording import Recording
from kscope.lowering import barrier_fences, plan
from kscope.machine_code import tools
from kscope.ptx import cfg

HEAD = """.version 8.6
.target sm_{arch}
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n) {{
.reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p<4>;
ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n]; setp.gt.s32 %p1, %r1, 3;
{body}
}}
"""
FENCE = "fence.mbarrier_init"


def lowered(body: str, arch: int = 90) -> str:
    return plan.lower(HEAD.format(arch=arch, body=body), Recording(), frontend="triton").text


def fences(body: str, arch: int = 90) -> int:
    return lowered(body, arch).count(FENCE)


ENTER, EXIT = "//kscope enter a - - with\n", "//kscope exit a - - with\n"
WORK = "st.global.u32 [%rd1], %r1;\n"


def test_marks_directly_after_a_barrier_wait_for_it() -> None:
    text = lowered(f"bar.sync 0;\n{ENTER}{WORK}{EXIT}ret;")
    assert re.search(rf"bar\.sync 0;\s*{FENCE}[^;]*;\s*mov\.u64 ks_s0", text)


def test_regions_around_a_barrier_end_after_it() -> None:
    text = lowered(f"{ENTER}bar.sync 0;\n{EXIT}{WORK}ret;")
    assert re.search(rf"bar\.sync 0;\s*{FENCE}[^;]*;\s*mov\.u64 ks_e0", text)


@pytest.mark.parametrize(
    "barrier",
    ["bar.sync 1, 64;", "barrier.sync 0;", "barrier.sync.aligned 0;", "@%p1 bar.sync 0;",
     "bar.red.popc.u32 %r2, 0, %p1;", "bar.cta.sync 0;", "barrier.cta.sync.aligned 0;"],
)  # fmt: skip
def test_a_fence_follows_every_waiting_barrier(barrier: str) -> None:
    assert fences(f"{barrier}\n{ENTER}{WORK}{EXIT}ret;") == 1


@pytest.mark.parametrize("other", ["bar.arrive 0, 64;", "bar.warp.sync 0xffffffff;", "membar.gl;", WORK])
def test_only_waiting_barriers_get_a_fence(other: str) -> None:
    assert fences(f"{other}\n{ENTER}{WORK}{EXIT}ret;") == 0


def test_only_a_store_between_barrier_and_region_replaces_a_fence() -> None:
    assert fences(f"bar.sync 0;\n{WORK}{ENTER}{WORK}{EXIT}ret;") == 0
    assert fences(f"bar.sync 0;\nld.global.u32 %r2, [%rd1];\n{ENTER}{WORK}{EXIT}ret;") == 1
    assert fences(f"bar.sync 0;\nadd.s32 %r2, %r1, 1;\n{ENTER}{WORK}{EXIT}ret;") == 1


def test_one_fence_serves_adjacent_marks() -> None:
    assert fences(f"bar.sync 0;\n{ENTER}{EXIT}ret;") == 1


def test_barriers_in_branches_and_at_loop_ends_are_found() -> None:
    assert fences(f"@%p1 bra L;\nbar.sync 0;\nL:\n{ENTER}{WORK}{EXIT}ret;") == 1
    assert fences(f"L:\n{ENTER}{WORK}{EXIT}bar.sync 0;\n@%p1 bra L;\n{WORK}ret;") == 1


def test_a_fence_follows_a_barrier_at_the_kernel_end() -> None:
    assert fences(f"{ENTER}{WORK}{EXIT}bar.sync 0;\nret;") == 1


def test_no_fence_is_needed_before_sm_90() -> None:
    assert fences(f"bar.sync 0;\n{ENTER}{WORK}{EXIT}ret;", arch=80) == 0


def test_loops_and_branches_are_followed_to_their_end() -> None:
    text = HEAD.format(
        arch=90, body=f"A:\n@%p1 bra B;\nbar.sync 0;\nB:\n@%p1 bra A;\nC:\n{ENTER}{WORK}{EXIT}@%p1 bra C;\nret;"
    )
    [function] = cfg.functions(text)
    [mark] = barrier_fences.after_barriers(function, cfg.blocks(function))
    assert function.statements[mark].mark is not None


def test_the_marks_of_a_region_that_is_not_recorded_read_no_clock() -> None:
    """Instructions that do not separate a barrier from a recorded mark."""
    broken = ENTER.replace(" a ", " b ")
    body = f"bar.sync 0;\n{broken}{ENTER}{WORK}{EXIT}ret;"
    assert fences(body) == fences(f"bar.sync 0;\n{ENTER}{WORK}{EXIT}ret;") == 1


def disassembler() -> bool:
    try:
        return bool(tools.find("nvdisasm"))
    except KscopeError:
        return False


@pytest.mark.skipif(ptxas() is None or not disassembler(), reason="needs ptxas and nvdisasm: pip install triton")
@pytest.mark.parametrize("arch", [90, 100])
@pytest.mark.parametrize(
    "body",
    [
        f"bar.sync 0;\n{ENTER}{WORK}{EXIT}ret;",
        f"{ENTER}bar.sync 0;\n{EXIT}{WORK}ret;",
        f"@%p1 bra L;\nbar.sync 0;\nL:\n{ENTER}{WORK}{EXIT}ret;",
        f"L:\n{ENTER}{WORK}{EXIT}bar.sync 0;\nsub.s32 %r1, %r1, 1;\nsetp.gt.s32 %p1, %r1, 0;\n@%p1 bra L;\n{WORK}ret;",
    ],
)
def test_no_clock_is_read_in_a_barriers_shadow(body: str, arch: int, tmp_path: Path) -> None:
    source, cubin = tmp_path / "k.ptx", tmp_path / "k.cubin"
    source.write_text(lowered(body, arch))
    subprocess.run([str(ptxas()), f"-arch=sm_{arch}", str(source), "-o", str(cubin)], check=True)
    code = [
        line.split("*/", 1)[1]
        for line in tools.disassembly(cubin).splitlines()
        if re.search(r"/\*[0-9a-f]{4,}\*/", line)
    ]
    behind = [code[n + 1] for n, line in enumerate(code) if "BAR.SYNC" in line]
    assert behind
    assert not [line for line in behind if "CLOCK" in line]
