"""KSCOPE_ENTER and KSCOPE_EXIT in place: followed over the PTX that a library keeps."""

from __future__ import annotations

import pytest
from nvcc import IN_PLACE, compiled, kernel, needs_nvcc

from kscope.capture.model import Problem
from kscope_cuda import pairing_check

pytestmark = needs_nvcc
KEPT = IN_PLACE, "-compress-mode=none"


def problem_texts(body: str, *options: str) -> list[str]:
    found = pairing_check.problems(compiled(kernel(body), *(options or KEPT), to="fatbin"), "x.so")
    assert {problem.kind for problem in found} <= {"pairing"}
    return [problem.text for problem in found]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('if (n) KSCOPE_ENTER("r"); __syncthreads(); KSCOPE_EXIT("r");', "is open on one path and closed on another"),
        ('KSCOPE_ENTER("r"); out[0] = n;', "is still open where the kernel returns"),
        ('KSCOPE_ENTER("r"); out[0] = n; KSCOPE_EXIT("r"); KSCOPE_EXIT("r");', "is left without having been entered"),
        ('for (int i = 0; i < n; i++) { KSCOPE_ENTER("r"); out[i] = 0; }', "is entered while it is open"),
    ],
)
def test_unpaired_marks_are_named_with_kernel_and_line(body: str, fault: str) -> None:
    texts = problem_texts(f'KSCOPE_ENTER("good");\n{body}\nKSCOPE_EXIT("good");')
    assert all(text.startswith("x.so: kernel k: region 'r' (unit.cu:6) ") for text in texts)
    assert fault in " ".join(texts)


PAIRED = (
    'KSCOPE_ENTER_V("r", n); if (n > 3) out[1] = n; KSCOPE_EXIT("r");',
    'if (n) { KSCOPE_ENTER("r"); __syncthreads(); KSCOPE_EXIT("r"); }',
    'KSCOPE_ENTER("r"); if (n) { KSCOPE_EXIT("r"); return; } __syncthreads(); KSCOPE_EXIT("r");',
    'KSCOPE_ENTER("r"); while (n--) { KSCOPE_EXIT("r"); out[n] = n; KSCOPE_ENTER("r"); } KSCOPE_EXIT("r");',
    'KSCOPE_REGION("r"); KSCOPE_INSTANT("i"); if (n) return; out[0] = 1;',
    'KSCOPE_ENTER("r"); KSCOPE_ENTER("s"); out[0] = n; KSCOPE_EXIT("r"); KSCOPE_EXIT("s");',
)


@pytest.mark.parametrize(
    "options",
    [KEPT, (*KEPT, "-rdc=true", "-arch=sm_80"), (*KEPT, "-lineinfo"), (*KEPT, "-DKSCOPE_OPEN=1")],
    ids=" ".join,
)
def test_marks_that_pair_are_no_problem(options: tuple[str, ...]) -> None:
    first, *others = PAIRED

    def problems_beside(bodies: list[str]) -> list[Problem]:
        kernels = [
            f'extern "C" __global__ void k{number}(int* out, int n) {{ KSCOPE_KERNEL(); {body} }}'
            for number, body in enumerate(bodies)
        ]
        source = kernel(first, before="\n".join(kernels))
        made = compiled(source, *options, to="so" if options == KEPT else "fatbin")
        return list(pairing_check.problems(made, "x.so"))

    assert problems_beside(others) == []
    assert problems_beside(['if (n) KSCOPE_ENTER("r");']) != []  # of any kernel in the file


def test_code_without_ptx_is_not_checked_for_pairing() -> None:
    body = 'if (n) KSCOPE_ENTER("r"); out[0] = n;'
    assert problem_texts(body, IN_PLACE, "-gencode=arch=compute_90,code=sm_90") == []
    assert problem_texts(body) != []
