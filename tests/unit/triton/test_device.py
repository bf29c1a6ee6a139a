"""kscope.clock() and its like in Triton and Gluon kernels, whether or not kscope records."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap

import pytest
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import kscope

REGISTERS = {
    "%clock64": 2, "%clock": 1, "%globaltimer": 1, "%smid": 1, "%laneid": 1, "%ctaid.z": 1, "%tid.z": 1,
}  # fmt: skip


@triton.jit
def reads_helpers(out, n):
    began = kscope.clock64()
    for i in range(n):
        tl.store(out + i, i)
    tl.store(out, (kscope.clock64() - began).to(tl.int32))
    tl.store(out + 1, kscope.clock().to(tl.int32, bitcast=True))
    tl.store(out + 2, kscope.globaltimer().to(tl.int32))
    tl.store(out + 3, kscope.smid() + kscope.warp_id() + kscope.lane_id() + kscope.block_id())


@gluon.jit
def reads_helpers_in_gluon(out, n):
    began = kscope.clock64()
    for i in range(n):
        gl.store(out + i, i)
    gl.store(out, (kscope.clock64() - began).to(gl.int32))
    gl.store(out + 1, kscope.clock().to(gl.int32, bitcast=True))
    gl.store(out + 2, kscope.globaltimer().to(gl.int32))
    gl.store(out + 3, kscope.smid() + kscope.warp_id() + kscope.lane_id() + kscope.block_id())


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("kernel", [reads_helpers, reads_helpers_in_gluon], ids=["triton", "gluon"])
def test_plain_kernels_have_the_helpers(plain_compiler, frontend, kernel, arch):
    ptx = plain_compiler(kernel, arch, out="*i32", n="i32").asm["ptx"]
    assert "kscope" not in ptx.replace(__file__, "")
    assert {name: len(re.findall(rf"{re.escape(name)}\b", ptx)) for name in REGISTERS} == REGISTERS


@triton.jit
def measures(out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    began = kscope.clock()
    for i in range(n):
        with kscope.region("step", value=kscope.block_id()):
            tl.store(out + at, tl.load(out + at) + i)
    kscope.counter("cycles", kscope.clock() - began)


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_device_helpers_may_be_mark_values(compiler, arch):
    compiler(measures, arch, out="*i32", n="i32", BLOCK=128)
    assert compiler.marks() == ["enter step i32", "exit step", "counter cycles u32"]


@triton.jit
def pipelined(a, b, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    spent = kscope.clock64()
    for i in tl.range(0, n, num_stages=3):
        total = tl.dot(tl.load(a + i * BLOCK + at), tl.load(b + i * BLOCK + at), total)
        spent += kscope.clock64() + kscope.warp_id()
    tl.store(out + at, total + spent.to(tl.float32))


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_clock_helpers_work_in_a_pipelined_loop(plain_compiler, frontend, arch):
    ptx = plain_compiler(pipelined, arch, a="*fp16", b="*fp16", out="*fp32", n="i32", BLOCK=64).asm["ptx"]
    assert ptx.count("%clock64") >= 2


def test_interpreted_kernels_have_the_device_helpers(tmp_path):
    script = tmp_path / "interpreted.py"
    script.write_text(
        textwrap.dedent("""
        import numpy as np, torch, triton, triton.language as tl, kscope

        @triton.jit
        def kernel(out):
            began = kscope.clock64()
            place = kscope.block_id()
            tl.store(out + place, place + kscope.warp_id() + kscope.lane_id() + kscope.smid())
            tl.store(out + 6, (kscope.clock64() >= began).to(tl.int32))
            tl.store(out + 7, (kscope.globaltimer() > 0).to(tl.int32))

        out = torch.zeros(8, dtype=torch.int32)
        kernel[(3, 2)](out)
        print(out.tolist())
        """)
    )
    pytest.importorskip("torch")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[0, 1, 2, 3, 4, 5, 1, 1]"
