"""Gluon kernels: the same marks, in every warp of a warp-specialized kernel."""

from __future__ import annotations

import pytest
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

import kscope
from kscope import region
from kscope.capture import metadata
from kscope.capture.model import RoleMeta
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalog
from kscope.instrument.selection.auto import Selection


@gluon.jit
def scaled(x, scale):
    with region("scale", value=scale):
        y = x * scale
    return y


@gluon.jit
def blocked(a, out, n, scale, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.arange(0, BLOCK, layout=layout)
    with kscope.region("loop") as loop:
        for i in range(0, n, BLOCK):
            with kscope.region(f"load{BLOCK}", value=i):
                x = gl.load(a + i + at)
            gl.store(out + i + at, scaled(x, scale))
            kscope.counter("i", i)
        loop.pin(n)
    kscope.instant("done", 7)


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_gluon_kernels_carry_marks(compiler, arch):
    compiler(blocked, arch, a="*fp32", out="*fp32", n="i32", scale="fp32", BLOCK=128)
    assert compiler.marks() == [
        "enter loop", "enter load128 i32", "exit load128", "enter scale f32", "exit scale", "counter i i32",
        "pin loop", "exit loop", "instant done i32",
    ]  # fmt: skip


@gluon.jit
def pins_a_tensor(a, out):
    at = gl.arange(0, 128, layout=gl.BlockedLayout([1], [32], [4], [0]))
    with kscope.region("exp") as exp:
        x = gl.exp(gl.load(a + at))
        exp.pin(x)
        gl.store(out + at, x)


def test_a_tensor_is_pinned_in_gluon(compiler):
    kernel = compiler(pins_a_tensor, a="*fp32", out="*fp32")
    assert kernel.asm["ptx"].count("@ks_never st.global.b32") == 1  # 128 floats over 128 threads


@gluon.jit
def first_part(out, n):
    for i in range(n):
        with kscope.region("default", value=i):
            gl.atomic_add(out, 1)


@gluon.jit
def worker_part(out, n):
    with kscope.region("worker"):
        for i in range(n):
            with kscope.region("step", value=i):
                gl.atomic_add(out + 1, 1)


@gluon.jit
def specialized(out, n):
    with kscope.region("whole"):
        gl.warp_specialize([(first_part, (out, n)), (worker_part, (out, n)), (worker_part, (out, n))], [1, 2], [32, 32])


@pytest.mark.parametrize("arch", [90, 100])
def test_worker_partitions_are_lowered_too(compiler, arch):
    kernel = compiler(specialized, arch, out="*i32", n="i32")
    # of the two workers' exits the compiler may make one, where their code ends alike
    assert compiler.marks().count("enter worker") == 2
    about = metadata.from_json(kernel.metadata.kscope.encode())
    assert about.problems == ()
    assert [region.name for region in about.regions] == ["default", "step", "whole", "worker"]


@pytest.mark.parametrize("arch", [90, 100])
def test_partitions_are_roles_named_after_their_functions(compiler, arch):
    kernel = compiler(specialized, arch, out="*i32", n="i32")
    (about,) = metadata.from_json(kernel.metadata.kscope.encode()).kernels
    assert about.roles == (RoleMeta("first_part", (0, 1, 2, 3)), RoleMeta("worker_part", (4, 5, 6)))


@gluon.jit
def _load__tiles(out, n):
    with kscope.region("load"):
        gl.atomic_add(out, n)


@gluon.jit
def twice(out, n):
    gl.warp_specialize([(first_part, (out, n)), (worker_part, (out, n)), (_load__tiles, (out, n))], [1, 2], [32, 32])
    gl.warp_specialize([(first_part, (out, n)), (_load__tiles, (out, n)), (_load__tiles, (out, n))], [1, 2], [32, 32])


def test_warps_that_change_their_partition_have_no_role(compiler):
    kernel = compiler(twice, out="*i32", n="i32")
    (about,) = metadata.from_json(kernel.metadata.kscope.encode()).kernels
    assert about.roles == (RoleMeta("first_part", (0, 1, 2, 3)), RoleMeta("_load", (4, 5)))  # __ ends a name


def test_a_warp_specialized_kernel_keeps_its_setmaxnreg_and_does_not_spill(compiler):
    from triton.backends.nvidia.compiler import get_ptxas

    from kscope.lowering import register_budget

    kernel = compiler(specialized, out="*i32", n="i32")
    made = register_budget.assemble(kernel.asm["ptx"], get_ptxas(90).path, ("--gpu-name=sm_90a",))
    assert "setmaxnreg" in kernel.asm["ptx"]
    assert made is not None
    assert not made.usage.pressed


@gluon.jit
def added(out, n):
    for _ in range(n):
        gl.atomic_add(out, 1)


@gluon.jit
def unmarked(out, n):
    gl.warp_specialize([(added, (out, n)), (added, (out + 1, n)), (added, (out + 2, n))], [1, 2], [32, 32])


@pytest.mark.parametrize("arch", [90, 100])
def test_operations_of_gluon_kernels_are_found_in_every_group_of_warps(plain_compiler, frontend, arch):
    with catalog.listing() as found:
        frontend.enable(Recording(selection=Selection.of("loops,stores")))
        kernel = plain_compiler(unmarked, arch, out="*i32", n="i32")
    groups = [(site.what, site.group) for site in found[0].sites]
    assert groups == [(what, group) for group in ("default", "partition0", "partition1") for what in ("loop", "store")]
    about = metadata.from_json(kernel.metadata.kscope.encode())
    assert about.problems == ()
    assert [region.name.partition(" ")[0] for region in about.regions] == ["loop", "store"]
    assert about.kernels[0].roles == (RoleMeta("added", tuple(range(7))),)


# its name up to Triton 3.6
begin_copy = async_copy.async_load if hasattr(async_copy, "async_load") else async_copy.async_copy_global_to_shared


@gluon.jit
def copies(a, out, n):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    tile = gl.allocate_shared_memory(gl.float32, [512], shared)
    at = gl.arange(0, 512, layout=layout)
    for i in range(0, n, 512):
        with kscope.region("issue"):
            begin_copy(tile, a + i + at)
            async_copy.commit_group()
        with kscope.region("arrival"):
            async_copy.wait_group(0)
        with kscope.region("both"):
            begin_copy(tile, a + i + at)
            async_copy.commit_group()
            async_copy.wait_group(0)
        gl.store(out + i + at, tile.load(layout))


def test_a_region_that_ends_at_the_issue_of_a_copy_is_known(compiler):
    kernel = compiler(copies, 80, a="*fp32", out="*fp32", n="i32")
    regions = metadata.from_json(kernel.metadata.kscope.encode()).regions
    assert {one.name: one.ends_at_issue_of for one in regions} == {"arrival": None, "both": None, "issue": "cp.async"}
