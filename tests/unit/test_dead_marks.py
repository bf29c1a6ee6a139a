"""Names of which a kernel records nothing, as each of their predicates is known to be 0."""

from __future__ import annotations

import pytest

from kscope.lowering import dead_marks
from kscope.ptx import cfg

ZERO = "mov.u32 %r5, 0;\n"
KNOWN = {
    "written once": ZERO,
    "behind another statement": f"mov.u32 %r4, 7; {ZERO}",
    "declared by its name": f".reg .b32 %r5, %r6;\n{ZERO}",
    "written in comments": f"// mov.u32 %r5, 7;\n/*\nmov.u32 %r5, 1;\n*/{ZERO}",
    "read and stored": f"{ZERO}st.global.u32 [%rd1], %r5;\nadd.u32 %r6, %r5, 1;\n",
}
NOT_KNOWN = {
    "never written": "",
    "not 0": "mov.u32 %r5, 1;\n",
    "written again": f"{ZERO}add.u32 %r5, %r4, 1;\n",
    "written again behind another statement": f"{ZERO}mov.u32 %r4, 7; add.u32 %r5, %r4, 1;\n",
    "written again with others": f"{ZERO}ld.global.v2.u32 {{%r4, %r5}}, [%rd1];\n",
    "written again behind a label": f"{ZERO}L: selp.u32 %r5, 1, 0, %p1;\n",
}


def silent(body: str) -> frozenset[str]:
    marks = "//kscope enter a - - with if %r5\n//kscope exit a - - with\n//kscope instant b - - call\n"
    (function,) = cfg.functions(f".visible .entry k()\n{{\n{body}{marks}ret;\n}}\n")
    return dead_marks.dead_names(function)


@pytest.mark.parametrize("case", KNOWN)
def test_a_constant_false_predicate_removes_a_name(case: str) -> None:
    assert silent(KNOWN[case]) == {"a"}


@pytest.mark.parametrize("case", NOT_KNOWN)
def test_unknown_predicates_remove_no_name(case: str) -> None:
    assert silent(NOT_KNOWN[case]) == frozenset()
