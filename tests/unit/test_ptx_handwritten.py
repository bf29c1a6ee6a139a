"""Hand-written PTX with unusual comments, strings, headers and lines is read correctly."""

from __future__ import annotations

import pytest
from ptxvm.assemble import complaint, ptxas

from kscope.errors import UnsupportedError
from kscope.instrument.recording import Recording
from kscope.lowering import register_budget
from kscope.lowering.lowered import Lowered
from kscope.lowering.plan import lower
from kscope.marks.grammar import PREFIX
from kscope.ptx import cfg

VERSION, TARGET, SIZE = ".version 8.0\n", ".target sm_90\n", ".address_size 64\n"
HEAD = VERSION + TARGET + SIZE
ENTRY = ".visible .entry k(.param .u64 p)"
ENTER, EXIT = "//kscope enter a - - with\n", "//kscope exit a - - with\n"
BODY = f"""
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [p];
    {ENTER}    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    {EXIT}    ret;
"""

TEXTS = {
    "as compilers write it": f"{HEAD}{ENTRY}\n{{{BODY}}}\n",
    "no address size": f"{VERSION}{TARGET}{ENTRY}\n{{{BODY}}}\n",
    "several words behind the target": f"{VERSION}.target sm_90, texmode_independent // x\n{ENTRY}\n{{{BODY}}}\n",
    "a comment behind the address size": f"{VERSION}{TARGET}.address_size 64 // {{\n{ENTRY}\n{{{BODY}}}\n",
    "the head on one line": f"{HEAD.replace(chr(10), ' ')}{ENTRY}\n{{{BODY}}}\n",
    "the head in comments as well": f"// .address_size 64\n/* .target sm_20\n*/{HEAD}{ENTRY}\n{{{BODY}}}\n",
    "an entry behind another one's brace": f"{HEAD}.visible .entry j() {{ ret; }} {ENTRY} {{{BODY}}}\n",
    "an entry whose words are on separate lines": f"{HEAD}.visible\n.entry\nk(.param .u64 p)\n{{{BODY}}}\n",
    "a semicolon in a comment before the body": f"{HEAD}{ENTRY} // a; b\n{{{BODY}}}\n",
    "a brace in a comment before the body": f"{HEAD}{ENTRY} /* {{x}} */\n// {{\n{{{BODY}}}\n",
    "an entry in a comment": f"{HEAD}// .visible .entry i()\n{ENTRY}\n{{{BODY}}}\n",
    "braces in a string": f"{HEAD}{ENTRY}\n{{\n.pragma \"nounroll\";\n.pragma \"a; {{b}} // \";{BODY}}}\n",
    "a semicolon in a comment within a statement": (
        f"{HEAD}{ENTRY}\n{{{BODY.replace('[%rd1], %r1', '[%rd1], // first; second {' + chr(10) + '%r1')}}}\n"
    ),
    "a quote in a comment": f"{HEAD}{ENTRY}\n{{ // it's \" here\n{BODY}}}\n",
}  # fmt: skip


def lowered(text: str) -> Lowered:
    return lower(text, Recording(), frontend="test")


@pytest.mark.parametrize("case", TEXTS)
def test_ptx_is_lowered_in_any_formatting(case: str) -> None:
    low = lowered(TEXTS[case])
    assert [kernel.name for kernel in low.meta.kernels] == ["k"]
    assert [region.name for region in low.meta.regions] == ["a"]
    assert not low.problems
    assert PREFIX not in low.text
    if ptxas():
        message = [line for line in complaint(low.text, "90").splitlines() if line and "Pragma" not in line]
        assert message == []


@pytest.mark.parametrize("case", TEXTS)
def test_the_register_bound_precedes_the_kernel_body(case: str) -> None:
    text = register_budget.with_register_limits(TEXTS[case], {"k": 64})
    assert ".maxnreg 64\n{" in text
    assert not ptxas() or "error" not in complaint(text, "90")


def test_lowering_keeps_all_user_text() -> None:
    for text in TEXTS.values():
        kept = lowered(text).text
        assert all(word in kept for word in text.replace(ENTER, "").replace(EXIT, "").split())


def test_target_directives_in_comments_are_ignored() -> None:
    """The fence of a clock after a barrier is for sm_90 and later."""
    at_barrier = f"{ENTRY}\n{{{BODY.replace(ENTER, f'bar.sync 0;{chr(10)}{ENTER}')}}}\n"
    for before in ("", "// .target sm_50\n", "/* .target sm_50 */"):
        assert "fence.mbarrier_init" in lowered(f"{before}{HEAD}{at_barrier}").text


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}// {ENTER}{ENTRY}\n{{ ret; }}\n",
        f"{HEAD}/* {ENTER}*/{ENTRY}\n{{ ret; }}\n",
    ],
)
def test_marks_inside_comments_are_ignored(text: str) -> None:
    assert lowered(text).text is text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{HEAD}{ENTER}{ENTRY}\n{{{BODY}}}\n", 4),
        (f"{HEAD}{ENTRY}\n{{\nmov.u32 %r1,\n{ENTER}1;\nret;\n}}\n", 7),
        (f"{HEAD}.extern .func f\n{ENTER};\n", 5),
    ],
)
def test_marks_that_cannot_be_lowered_are_refused(text: str, line: int) -> None:
    with pytest.raises(UnsupportedError, match=rf"line {line} of the PTX: the mark '//kscope enter a - - with' "):
        lowered(text)


def test_blanking_comments_keeps_offsets_and_lines() -> None:
    for text in TEXTS.values():
        bare = cfg.bare(text)
        assert len(bare) == len(text)
        assert [n for n, letter in enumerate(bare) if letter == "\n"] == [
            n for n, one in enumerate(text) if one == "\n"
        ]
        assert all(new in (" ", old) for old, new in zip(text, bare, strict=True))


@pytest.mark.parametrize("returns", [False, True])
def test_calls_that_never_return_end_a_path(returns: bool) -> None:
    """An assert as NVRTC emits it: nothing after the call marks it as non-returning."""
    message = "" if returns else "\n.noreturn"
    declared = (
        f".extern .func (.param .b32 r) other\n(\n.param .b64 a\n)\n;\n.extern .func fail(.param .b64 a){message};\n"
    )
    body = f"""
    .reg .pred %p<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [p];
    setp.eq.u64 %p1, %rd1, 0;
    {ENTER}    @%p1 bra FAIL;
    st.global.u64 [%rd1], %rd1;
    {EXIT}    ret;
FAIL:
    {{ // callseq 0, 0
    .param .b64 param0;
    st.param.b64 [param0+0], %rd1;
    call.uni
    fail,
    (
    param0
    );
    }} // callseq 0
"""
    low = lowered(f"{HEAD}{declared}{ENTRY}\n{{{body}}}\n")
    assert [problem.kind for problem in low.problems] == (["pairing"] if returns else [])
    assert [region.name for region in low.meta.regions] == ([] if returns else ["a"])
