"""ptxas accepts kscope's output for every supported architecture."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptxvm.assemble import complaint, ptxas
from ptxvm.cases import SPECS, recordings
from ptxvm.kernels import kernels
from ptxvm.profile import examples
from ptxvm.writing import HEAD, KernelText

from kscope.instrument.recording import Recording
from kscope.lowering.plan import lower
from kscope.marks.strategies import AllThreads, Elected, Lane0Warp0, Strategy, TargetWarp
from kscope.ptx import cfg

needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="needs ptxas: pip install triton, or put it on PATH")
ARCHITECTURES = ("80", "90", "100")


def module(bodies: list[KernelText], arch: str) -> str:
    """Several kernels in one text, with distinct names."""
    return HEAD.format(arch=arch) + "".join(k.body.replace("k_param", f"k{n}_param").replace(" k(", f" k{n}(")
                                            for n, k in enumerate(bodies))  # fmt: skip


@needs_ptxas
@examples(8)
@given(st.lists(kernels(SPECS, depth=3), min_size=3, max_size=3), recordings)
def test_lowered_kernels_assemble(bodies: list[KernelText], recording: Recording) -> None:
    for arch in ARCHITECTURES:
        low = lower(module(bodies, arch), recording, frontend="test")
        assert [kernel.name for kernel in low.meta.kernels] == ["k0", "k1", "k2"]
        assert not complaint(low.text, arch)


@needs_ptxas
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("clock", ["cycles", "globaltimer"])
@pytest.mark.parametrize("fill", ["ring", "stop"])
def test_every_option_assembles(arch: str, clock: str, fill: str) -> None:
    text = (
        HEAD.format(arch=arch)
        + """
.visible .entry k(.param .u64 k_param_0)
{
    .reg .b32 %r<4>;
    .reg .f32 %f<2>;
    mov.u32 %r1, %tid.x;
    mov.f32 %f1, 0f3F800000;
    //kscope enter outer f32 all with %f1
    //kscope instant here i32 warps:0,31 call %r1
    //kscope counter depth u32 lane0-warp0 call 7
    //kscope pin x - - call %r1
    //kscope exit outer - all with
    ret;
}
"""
    )
    for strategy in (TargetWarp(1, 30), AllThreads()):
        for pending in (8, 0):
            recording = Recording(strategy=strategy, clock=clock, fill=fill, pending=pending)  # type: ignore[arg-type]  # words of the parameters
            low = lower(text, recording, frontend="test").text
            assert ".shared" not in low  # nothing of a kernel's shared memory is ever touched
            assert not complaint(low, arch)


@needs_ptxas
def test_ptxas_errors_are_detected() -> None:
    assert "Unknown symbol" in complaint(HEAD.format(arch="90") + ".entry k() { mov.u32 %r0, 1; ret; }", "90")


@pytest.mark.parametrize("strategy", [Elected(), Lane0Warp0(), TargetWarp(0, 4), AllThreads()], ids=str)
def test_recording_adds_no_loop_to_a_kernel(strategy: Strategy) -> None:
    """ptxas would keep registers as if a claim were repeated often, which spilled a product with TMA."""
    text = (
        HEAD.format(arch="90")
        + """
.visible .entry k(.param .u64 k_param_0)
{
    .reg .b32 %r<2>;
    //kscope enter work - - with
    add.u32 %r1, %r1, 1;
    //kscope exit work - - with
    ret;
}
"""
    )
    (kernel,) = cfg.functions(lower(text, Recording(strategy=strategy), frontend="test").text)
    assert "%clock64" in kernel.text and not any(block.looped for block in cfg.blocks(kernel))
