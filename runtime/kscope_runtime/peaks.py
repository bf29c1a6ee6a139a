"""Measures the peak rates of a GPU: bytes read from memory, multiply-adds, and matrix instructions. Each kernel runs
for some milliseconds; the fastest of a few runs counts.
"""

from __future__ import annotations

import time
from contextlib import suppress

from kscope.errors import DriverError
from kscope.instrument.peaks import Peaks

from .driver import CudaDriver

SIZE, REPEATS = 1 << 30, 64
"""Bytes that are read, far more than caches hold, and how often."""
FMA_TURNS, FMAS, CHAINS = 16384, 4, 16
MMA_TURNS, MMAS = 32768, 8
MMA_FLOPS = 2 * 16 * 8 * 16
WGMMA_TURNS, WGMMAS = 8192, 8
WGMMA_FLOPS = 2 * 64 * 256 * 16
_RUNS = 4
_NEVER = 0x7FC0FFEE
"""A result that does not occur: its store keeps the work alive."""

READ = f"""
.version 7.1
.target sm_75
.address_size 64
.visible .entry ks_read(.param .u64 from)
{{
	.reg .b64 %base, %first, %at, %stride, %four, %end, %thread;
	.reg .b32 %r<20>, %pass, %id, %count, %sum;
	.reg .pred %p;
	ld.param.u64 %base, [from];
	mov.u32 %id, %ctaid.x;
	mov.u32 %count, %ntid.x;
	mov.u32 %r16, %tid.x;
	mad.lo.u32 %id, %id, %count, %r16;
	mov.u32 %r17, %nctaid.x;
	mul.lo.u32 %count, %count, %r17;
	mul.wide.u32 %first, %id, 16;
	mul.wide.u32 %stride, %count, 16;
	shl.b64 %four, %stride, 2;
	add.u64 %first, %base, %first;
	add.u64 %end, %base, {SIZE};
	mov.u32 %sum, 0;
	mov.u32 %pass, 0;
PASS:
	mov.u64 %at, %first;
READ:
	mov.u64 %thread, %at;
	ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%thread];
	add.u64 %thread, %thread, %stride;
	ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%thread];
	add.u64 %thread, %thread, %stride;
	ld.global.v4.u32 {{%r8, %r9, %r10, %r11}}, [%thread];
	add.u64 %thread, %thread, %stride;
	ld.global.v4.u32 {{%r12, %r13, %r14, %r15}}, [%thread];
{"".join(f"	xor.b32 %sum, %sum, %r{n};" + chr(10) for n in range(16))}	add.u64 %at, %at, %four;
	setp.lt.u64 %p, %at, %end;
	@%p bra READ;
	add.u32 %pass, %pass, 1;
	setp.lt.u32 %p, %pass, {REPEATS};
	@%p bra PASS;
	setp.eq.u32 %p, %sum, {_NEVER};
	@%p st.global.u32 [%base], %sum;
	ret;
}}
"""


def _looped(name: str, target: str, registers: str, before: str, body: str, repeats: int, sums: list[str]) -> str:
    """A kernel that runs `body` in a loop, and then uses the sums."""
    total = "".join(f"	add.f32 %f0, %f0, {one};\n" for one in sums if one != "%f0")
    return f"""
.version 8.0
.target {target}
.address_size 64
.visible .entry {name}(.param .u64 to)
{{
{registers}	.reg .b64 %to;
	.reg .b32 %turn;
	.reg .pred %again;
	ld.param.u64 %to, [to];
{before}	mov.u32 %turn, 0;
TURN:
	.pragma "nounroll";
{body}	add.u32 %turn, %turn, 1;
	setp.lt.u32 %again, %turn, {repeats};
	@%again bra TURN;
{total}	mov.b32 %turn, %f0;
	setp.eq.u32 %again, %turn, {_NEVER};
	@%again st.global.f32 [%to], %f0;
	ret;
}}
"""


def fma() -> str:
    """Independent chains of multiply-adds."""
    sums = [f"%f{n}" for n in range(CHAINS)]
    before = "".join(f"	mov.f32 {one}, 0f3F8{n:05X};\n" for n, one in enumerate(sums))
    body = "".join(f"	fma.rn.f32 {one}, {one}, 0f3F7FFFFE, 0f33000000;\n" for one in sums) * FMAS
    return _looped("ks_fma", "sm_75", f"	.reg .f32 %f<{CHAINS}>;\n", before, body, FMA_TURNS, sums)


def mma() -> str:
    """mma.sync of 16-bit floats, with independent sums."""
    sums = [f"%f{n}" for n in range(4 * MMAS)]
    before = "".join(f"	mov.f32 {one}, 0f00000000;\n" for one in sums)
    before += "".join(f"	mov.b32 %r{n}, 0x3555{n}A2B;\n" for n in range(6))
    shape = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    body = ""
    for n in range(MMAS):
        own = ", ".join(sums[4 * n : 4 * n + 4])
        body += f"	{shape} {{{own}}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{{own}}};\n"
    registers = f"	.reg .f32 %f<{len(sums)}>;\n	.reg .b32 %r<6>;\n"
    return _looped("ks_mma", "sm_80", registers, before, body, MMA_TURNS, sums)


def wgmma() -> str:
    """wgmma of 16-bit floats in shared memory, without swizzling: core matrices of 128 bytes one after the other."""
    sums = [f"%f{n}" for n in range(128)]
    before = "".join(f"	mov.f32 {one}, 0f00000000;\n" for one in sums)
    before += """	mov.u32 %id, %tid.x;
	shl.b32 %id, %id, 2;
	mov.u32 %r0, kept;
	add.u32 %r1, %r0, %id;
	mov.u32 %n, 0;
FILL:
	mad.lo.u32 %v, %id, 0x9E3779B1, %n;
	and.b32 %v, %v, 0x83FF83FF;
	or.b32 %v, %v, 0x38003800;
	st.shared.b32 [%r1], %v;
	add.u32 %r1, %r1, 512;
	add.u32 %n, %n, 1;
	setp.lt.u32 %again, %n, 20;
	@%again bra FILL;
	bar.sync 0;
	fence.proxy.async;
	shr.u32 %r0, %r0, 4;
	cvt.u64.u32 %a, %r0;
	or.b64 %a, %a, 0x0000001000080000;
	add.u64 %b, %a, 128;
	wgmma.fence.sync.aligned;
"""
    own = ", ".join(sums)
    product = f"	wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {{{own}}}, %a, %b, 1, 1, 1, 0, 0;\n"
    body = product * WGMMAS + "	wgmma.commit_group.sync.aligned;\n	wgmma.wait_group.sync.aligned 0;\n"
    registers = "	.shared .align 128 .b8 kept[10240];\n	.reg .f32 %f<128>;\n"
    registers += "	.reg .b32 %r<2>, %id, %n, %v;\n	.reg .b64 %a, %b;\n"
    return _looped("ks_wgmma", "sm_90a", registers, before, body, WGMMA_TURNS, sums)


def peaks(driver: CudaDriver) -> Peaks:
    """Measure the current context's GPU.

    Raises:
        DriverError: a call failed, such as for want of memory.
    """
    facts = driver.facts()
    sms, memory = facts.sms, driver.allocate(SIZE)

    def fastest(ptx: str, name: str, blocks: int, threads: int) -> float:
        module, stream, taken = driver.load(ptx), driver.stream(), list[float]()
        for _ in range(_RUNS):
            begin = time.perf_counter_ns()
            driver.launch(module, name, memory.address, stream, blocks, threads)
            driver.synchronize(stream)
            taken.append(time.perf_counter_ns() - begin)
        return min(taken)

    try:
        threads = 1 << 9
        blocks = 1 << (4 * sms).bit_length() - 1  # a power of two, so that every pass reads all
        bandwidth = SIZE * REPEATS / fastest(READ, "ks_read", blocks, threads)
        flops = 8 * sms * 256 * 2 * FMAS * CHAINS * FMA_TURNS
        found = Peaks(facts.name, sms, bandwidth, flops / fastest(fma(), "ks_fma", 8 * sms, 256))
        matrix = 0.0
        with suppress(DriverError):  # GPUs before sm_80
            matrix = 4 * sms * 8 * MMAS * MMA_FLOPS * MMA_TURNS / fastest(mma(), "ks_mma", 4 * sms, 256)
        with suppress(DriverError):  # other GPUs than sm_90
            taken = fastest(wgmma(), "ks_wgmma", 2 * sms, 128)
            matrix = max(matrix, 2 * sms * WGMMAS * WGMMA_FLOPS * WGMMA_TURNS / taken)
        return Peaks(found.gpu, found.sms, found.bandwidth, found.fma, matrix)
    finally:
        driver.free(memory)
