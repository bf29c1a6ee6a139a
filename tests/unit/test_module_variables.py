"""Variables that outlive a launch are found in PTX; what compilers declare for themselves is none."""

from __future__ import annotations

import pytest

from kscope.instrument.recording import Recording
from kscope.lowering.module_variables import uses_variables
from kscope.lowering.plan import lower

KERNEL = """.version 8.0
.target sm_90
.address_size 64
{declared}
.visible .entry kernel(.param .u64 out)
{{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    {inner}
    //kscope enter load - - with
    ld.param.u64 %rd1, [out];
    ld.global.u32 %r1, [%rd1]; // .global .u32 counter;
    st.global.u32 [%rd1], %r1;
    ld.const.u32 %r1, [{used}];
    //kscope exit load - - with
    ret;
}}
"""


@pytest.mark.parametrize(
    ("declared", "name"),
    [
        (".global .align 4 .u32 counter;", "counter"),
        (".visible .global .align 4 .u32 counter = 5;", "counter"),
        (".extern .global .align 4 .u32 counter;", "counter"),
        (".weak .const .align 16 .b8 table[16];", "table"),
        (".const .align 4 .b8 table[4] = {1, 0, 0, 0};", "table"),
        (".global .attribute(.managed) .align 4 .u32 shared_with_host;", "shared_with_host"),
        (".global .align 4 .u32 _ZZ6kernelE5calls;", "_ZZ6kernelE5calls"),  # static in the kernel's body
        (".visible .global .texref image;", "image"),
        (".global .align 8 .v2 .f32 pair;", "pair"),
        ("{ .global .align 4 .u32 counter; }", "counter"),  # in inline assembly
        (".reg .b32 %x; .global .align 4 .u32 counter;", "counter"),
    ],
)
def test_a_variable_that_the_code_names_is_found(declared: str, name: str) -> None:
    assert uses_variables(KERNEL.format(declared=declared, inner="", used=name))
    assert uses_variables(KERNEL.format(declared="", inner=declared, used=f"{name} + 4"))
    assert not uses_variables(KERNEL.format(declared=declared, inner="", used=f"{name}_"))
    assert not uses_variables(KERNEL.format(declared=declared, inner=f"// {name}", used="0"))


@pytest.mark.parametrize(
    ("declared", "name"),
    [
        ("", "table"),
        ("// .global .u32 counter;", "counter"),
        (".extern .shared .align 16 .b8 tile[];", "tile"),
        (".global .align 1 .b8 $str[4] = {104, 105, 10, 0};", "$str"),
        (".global .align 1 .b8 $str$1[4] = {104, 105, 10, 0};", "$str$1"),
        (".global .align 1 .b8 __unnamed_1[2] = {107, 0};", "__unnamed_1"),
        (".const .align 4 .b8 __cudart_i2opi_f[24] = {65};", "__cudart_i2opi_f"),
        (".visible .global .align 4 .u32 _ZN08NumbaEnv8__main__6kernel;", "_ZN08NumbaEnv8__main__6kernel"),
        (".const .align 4 .b8 _cudapy_cmem[4] = {1, 0, 0, 0};", "_cudapy_cmem"),
        (".visible .const .align 8 .u64 kscope_ctl;", "kscope_ctl"),
    ],
)
def test_what_compilers_declare_and_what_a_kernel_accesses_is_no_variable(declared: str, name: str) -> None:
    assert not uses_variables(KERNEL.format(declared=declared, inner="", used=name))


@pytest.mark.parametrize("declared", ["", ".global .align 4 .u32 counter;"])
def test_a_modules_metadata_say_whether_it_uses_variables(declared: str) -> None:
    lowered = lower(KERNEL.format(declared=declared, inner="", used="counter"), Recording(), frontend="cupy")
    assert lowered.meta.kernels and lowered.meta.variables == bool(declared)
