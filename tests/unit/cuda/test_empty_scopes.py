"""Macros of regions whose scope is empty: refused by kscope where it sees the source, else by the compiler."""

from __future__ import annotations

import pytest
from nvcc import IN_PLACE, MARKS, compiled, kernel, needs_nvcc, refused

from kscope.errors import UsageError
from kscope_cuda.empty_scopes import refuse_empty_scopes

REGIONS = [
    'KSCOPE_REGION("r");',
    'KSCOPE_REGION_V("r", 1);',
    'KSCOPE_REGION_IF("r", n > 1);',
    'KSCOPE_REGION_V_IF("r", 1, n > 1);',
    'KSCOPE_REGION_OPEN("r");',
    'KSCOPE_REGION_OPEN_V("r", 1);',
]
ALONE = [
    "if (n > 3) @\n  out[0] = n;",
    "if (n > 3) out[1] = n; else @\n  out[0] = n;",
    "for (int i = 0; i < n; i++) @\n  out[0] = n;",
    "while (n > 3) @\n  out[0] = n;",
]
IN_SCOPES = [
    "if (n > 3) { @ out[0] = n; }",
    "for (int i = 0; i < n; i++) { @ out[i] = n; }",
    "switch (n) { case 1: { @ out[0] = n; } }",
    "@ out[0] = n;",
]


@needs_nvcc
@pytest.mark.parametrize("mode", [IN_PLACE, MARKS])
def test_a_region_alone_in_a_branch_or_a_loop_does_not_compile(mode: str) -> None:
    source = kernel("\n".join(f"  {{ {one.replace('@', region)} }}" for one in ALONE for region in REGIONS))
    output = refused(source, mode)
    lines = [number for number, line in enumerate(source.splitlines(), 1) if "KSCOPE_REGION" in line]
    assert len(lines) == len(ALONE) * len(REGIONS)
    for line in lines:
        assert f'unit.cu({line}): error: identifier "KSCOPE_REGION_needs_braces_around_it_and_the_code' in output


@needs_nvcc
@pytest.mark.parametrize("mode", [IN_PLACE, MARKS])
@pytest.mark.parametrize("standard", ["-std=c++14", "-std=c++20"])
def test_a_region_in_a_scope_compiles_without_a_warning(mode: str, standard: str) -> None:
    statements = [one.replace("@", region) for region in REGIONS for one in IN_SCOPES]
    compiled(kernel("\n".join(f"  {{ {one} }}" for one in statements)), mode, standard)


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("end", ["}", "\n}", " // nothing yet\n}", "\n#if 0\n#endif\n}"])
def test_a_region_before_its_closing_brace_is_refused(region: str, end: str) -> None:
    with pytest.raises(UsageError) as caught:
        refuse_empty_scopes(f"__global__ void k(int n) {{\n  {{\n    {region}{end}\n}}\n", "mine.cu")
    assert str(caught.value) == (
        f"mine.cu:3: {region} is directly before the closing brace that ends the region, and measures nothing: "
        f"expected {{ {region} and then the code to measure }}"
    )


@pytest.mark.parametrize(
    "body",
    [
        'KSCOPE_REGION("r"); work(); }',
        'KSCOPE_REGION("r");\n#if DEBUG\n work();\n#endif\n}',
        '// KSCOPE_REGION("r"); }\n}',
        'const char* text = "KSCOPE_REGION(\\"r\\"); }"; }',
        'KSCOPE_INSTANT("r"); }',
        "KSCOPE_REGION }",
        'KSCOPE_REGION("r" }',
    ],
)
def test_other_source_is_left_to_the_compiler(body: str) -> None:
    refuse_empty_scopes(f"#define MINE() {{ KSCOPE_REGION(1); }}\n__global__ void k() {{ {body}", "mine.cu")
