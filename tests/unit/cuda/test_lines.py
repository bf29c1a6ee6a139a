"""Statements selected by a line range of CUDA C++, refused ranges, and the lines of a file in a source."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from kscope.errors import UsageError
from kscope.instrument.selection.auto import KINDS, Lines, Selection
from kscope_cuda import select
from kscope_cuda.select import marked, touches
from kscope_cuda.select.functions import functions
from kscope_cuda.select.tokens import Tokens, UnreadableError

SCALE = r"""
template <class T> __device__ T twice(T x) { return x + x; }

extern "C" __global__ void __launch_bounds__(256) scale(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = x[i];
    float b = twice(a);  // } not a brace
#pragma unroll 4
    for (int k = 0; k < n; ++k) {
        if (k == 100) break;
        if (x[k] < 0)
            continue;
        b += x[k];
    }
    __syncthreads();
    switch (n % 3) {
        case 0:
            b += 1;
            break;
        default: b += 2;
    }
    out[i] = b;
}
"""


def selection(*regions: str, kinds: tuple[str, ...] = (), kernels: tuple[str, ...] = ()) -> Selection:
    return Selection(kinds, tuple(map(Lines.of, regions)), kernels)


def shown(*regions: str, source: str = SCALE) -> dict[int, str]:
    """The lines that differ, by number, with marks as <name and name>."""
    found = marked(source, selection(*regions))
    assert found is not None
    text = re.sub(r'asm volatile\("//kscope enter (\S+) - - (?:lines|auto)" ::: "memory"\);', r"<\1", found.text)
    text = re.sub(r'asm volatile\("//kscope exit (\S+) - - (?:lines|auto)" ::: "memory"\);', r"\1>", text)
    text = re.sub(r"\n#line \d+\n(<\w+)\n#line \d+\n", r"\1", text)
    pairs = zip(source.splitlines(), text.splitlines(), strict=True)
    return {at: new.strip() for at, (old, new) in enumerate(pairs, 1) if old != new}


def test_marks_enclose_the_first_and_the_last_statement() -> None:
    assert shown("load=scale:7-8") == {
        7: "<load float a = x[i];",
        8: "float b = twice(a); load>  // } not a brace",
    }


def test_loop_pragmas_stay_directly_before_their_loop() -> None:
    assert shown("loop=scale:10-15") == {9: "<loop#pragma unroll 4", 15: "} loop>"}


def test_jumps_that_leave_the_lines_leave_the_region() -> None:
    assert shown("body=scale:11-14") == {
        11: "<body if (k == 100) { body> break; }",
        13: "{ body> continue; }",
        14: "b += x[k]; body>",
    }
    assert shown("guard=scale:6") == {6: "<guard if (i >= n) { guard> return; } guard>"}


def test_the_value_of_a_return_is_computed_in_the_region() -> None:
    (line,) = shown("twice=twice:2").values()
    assert "~kscope_leaving_() { twice> } } kscope_left_; return x + x; }" in line


def test_selected_single_statements_get_braces() -> None:
    assert shown("step=scale:13") == {13: "{ <step { step> continue; }  }"}


def test_line_ranges_may_include_the_enclosing_braces() -> None:
    assert shown("a=scale:14-15") == shown("a=scale:14")
    assert shown("all=scale:4-24") == shown("all=scale:5-23")


def test_regions_nest_in_the_order_of_their_lines() -> None:
    assert shown("inner=scale:11", "outer=scale:11-14")[11] == (
        "<outer <inner if (k == 100) { inner> outer> break; } inner>"
    )


def test_switch_cases_belong_to_the_region_after_their_label() -> None:
    assert shown("zero=scale:18-20") == {19: "<zero b += 1;", 20: "{ zero> break; }"}


@pytest.mark.parametrize(
    ("region", "why"),
    [
        ("scale:10-12", "cut through the loop at lines 10 to 15"),
        ("scale:7-11", "cut through the loop at lines 10 to 15"),
        ("scale:17-19", "cut through the switch at lines 17 to 22"),
        ("scale:19-21", "line 21: the switch before the region jumps to this case"),
        ("scale:2-6", "contain statements of twice and scale"),
    ],
)
def test_invalid_line_regions_are_refused_by_name_and_line(region: str, why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)) as caught:
        marked(SCALE, selection(f"r={region}"))
    assert str(caught.value).startswith(f"region r={region}: ")


@pytest.mark.parametrize(
    ("body", "region", "why"),
    [
        ("#define CHECK(x) if (x) return\nCHECK(n > 3);\nout[0] = 1;", "4-5", "the macro CHECK contains a return"),
        ("goto in;\nout[0] = 1;\nin: out[1] = 2;", "4-5", "line 3: this goto jumps into the region, to in"),
        ("#if A\nout[0] = 1;\n#endif\nout[1] = 2;", "4-6", "different branches of #if"),
        ("out[0] = ({ if (n) return; n; });", "3", "line 3: a return in an expression"),
        ("EACH(i, n) {\nif (i) break;\nout[i] = 1;\n}", "3-6", "line 4: a macro may hide the loop"),
        ("EACH(i, n) {\nswitch (i) {\ncase 0: continue;\n}\n}", "3-7", "line 5: a macro may hide the loop"),
        ("#if A\nif (n) {\n#else\nif (out) {\n#endif\nout[0] = 1; }", "8", "cannot be read"),
    ],
)  # fmt: skip
def test_unsupported_control_flow_is_refused(body: str, region: str, why: str) -> None:
    source = f'extern "C" __global__ void f(int* out, int n)\n{{\n{body}\n}}\n'
    with pytest.raises(UsageError, match=re.escape(why)):
        marked(source, selection(f"r=f:{region}"))


def test_lines_of_constexpr_functions_are_refused() -> None:
    with pytest.raises(UsageError, match="one is constexpr"):
        marked("constexpr int one() { return 1; }\n", selection("r=one:1"))


def test_ranges_that_only_overlap_are_refused() -> None:
    with pytest.raises(UsageError, match="regions a=scale:5-8 and b=scale:7-23 overlap"):
        marked(SCALE, selection("a=scale:5-8", "b=scale:7-23"))


def test_lines_without_a_statement_mark_nothing() -> None:
    assert marked(SCALE, selection("r=scale:100-110")) is None
    assert marked(SCALE, selection("r=scale:3")) is None
    assert marked(SCALE, selection("r=other:5")) is None


def test_lines_of_unselected_kernels_are_not_marked() -> None:
    assert marked(SCALE, selection("r=scale:7", kernels=("attn_*",))) is None
    assert marked(SCALE, selection("r=scale:7", kernels=("sc*",))) is not None
    assert marked(SCALE, selection("r=twice:2", kernels=("attn_*",))) is not None  # a device function is any kernel's


# where a file's lines are


def test_lines_of_a_file_that_the_program_read(tmp_path: Path) -> None:
    path = tmp_path / "kernels.cu"
    path.write_text("// a comment\n" + SCALE)
    assert shown(f"load={path}:8-9") == shown("load=scale:7-8")
    path.write_text(SCALE)
    assert shown(f"load={path}:7-8", source="#define A 1\n" + SCALE) == {
        number + 1: line for number, line in shown("load=scale:7-8").items()
    }


def test_a_file_beside_an_imported_module_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "ours.cu").write_text(SCALE)
    module = types.ModuleType("a_users_module")
    module.__file__ = str(tmp_path / "a_users_module.py")
    assert not touches(SCALE, selection("load=cuda/ours.cu:7-8"))
    monkeypatch.setitem(sys.modules, "a_users_module", module)
    select._locate.cache_clear()
    assert shown("load=cuda/ours.cu:7-8") == shown("load=scale:7-8")


@pytest.mark.parametrize("prefix", ["r", ""])
def test_lines_of_a_python_file_with_the_text_in_a_literal(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "program.py"
    text = SCALE.replace("// } not a brace", r"/* \\n */" if not prefix else "/* */")
    path.write_text(f"import cupy\n\nNAME = 'scale'\nCODE = {prefix}'''{text}'''\n")
    space: dict[str, str] = {}
    exec(path.read_text().replace("import cupy", ""), space)
    assert shown(f"load={path}:10-11", source=space["CODE"]).keys() == {7, 8}
    assert not touches(space["CODE"], selection(f"load={path}:1-3"))


def test_lines_that_a_line_directive_names() -> None:
    source = f'int x;\n#line 101 "/home/me/generated.cu"\n{SCALE[1:]}'
    assert shown("load=generated.cu:106-107", source=source).keys() == {8, 9}
    assert not touches(source, selection("load=other.cu:106-107"))


def test_short_string_literals_are_not_treated_as_source(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("NAME = 'scale'\nOTHER = 'out'\n")
    assert not touches(SCALE, selection(f"r={path}:1-2"))


def test_files_are_searched_once_for_all_sources_and_not_for_short_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    sought = []
    monkeypatch.setattr(Lines, "in_file", lambda lines, path: sought.append(path))
    for source in ("in0 * in1", "in0 - in1 ", "\n-in0\n"):
        assert not touches(source, selection("a=sought.cu:1-2"))
    assert not any(path.endswith(".py") for path in sought)
    for source in ("out = in0;", "out = in1;"):
        assert not touches(source, selection("a=sought.cu:1-2"))
    assert sought.count(__file__) == 1


# kinds


def test_statements_are_found_by_their_kind() -> None:
    found = marked(SCALE, selection(kinds=tuple(KINDS)))
    assert found is not None
    assert [(site.what, site.where, site.loops) for site in found.sites["scale"]] == [
        ("load", "scale:7", ()),
        ("loop", "scale:10-15", ()),
        ("iteration", "scale:11-14", ("scale:10",)),
        ("load", "scale:14", ("scale:10",)),
        ("barrier", "scale:16", ()),
        ("store", "scale:23", ()),
    ]


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ('asm volatile("cp.async.wait_group 0;");', "async_wait"),
        ("__pipeline_wait_prior(0);", "async_wait"),
        ("while (!try_wait(bar, phase)) {}", "wait"),
        ('asm volatile("wgmma.wait_group.sync.aligned 0;");', "wait"),
        ('asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global [%0], [%1];" :: "r"(a), "l"(b));', "tma"),
        ('asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {};");', "wgmma"),
        ("wmma::mma_sync(c, a, b, c);", "mma"),
        ('asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(bar));', "barrier"),
        ("cg::this_thread_block().sync();", "barrier"),
        ("p[n] = q;", "store"),
        ("q = p[n] + 1;", "load"),
        ("p[n] += q;", "store"),
    ],
)
def test_the_patterns_of_a_kind(statement: str, kind: str) -> None:
    found = marked(f"__global__ void f(float* p, int n) {{ float q;\n{statement}\n}}", selection(kinds=tuple(KINDS)))
    assert found is not None
    assert found.sites["f"][0].what == kind


def test_unselected_kinds_are_not_marked() -> None:
    found = marked(SCALE, selection(kinds=("barrier",)))
    assert found is not None
    assert [site.region for site in found.sites["scale"]] == ["barrier scale:16"]


# the text


@pytest.mark.parametrize(
    "text",
    [
        'R"x(} " )y" )x"', "'}'", '"\\"}"', "1'000'000", "/* } */ // {\\\n }", "a<::b>", "<% %>", "u8\"}\"", "x[y[0]]",
        "[[a]]",
    ],
)  # fmt: skip
def test_brackets_in_strings_and_comments_are_ignored(text: str) -> None:
    tokens = Tokens.of(f"{{ {text}\n}}")
    assert tokens.partners[0] == len(tokens.code) - 1


def test_an_unmatched_bracket_is_reported_with_its_line() -> None:
    with pytest.raises(UnreadableError, match="'}' closes nothing here") as caught:
        functions(Tokens.of("void f() {\n}\n}"))
    assert caught.value.line == 3


def test_functions_are_found_among_other_declarations() -> None:
    source = """
    namespace a { struct S { int x = 1; S(int y) : x{y} { } int get() const noexcept { return x; } }; }
    enum E { A, B }; int table[] = {1, 2}; auto f = [](int x) { return x; };
    template <class T, int N = 3> __device__ auto g(T (&x)[N], const T* p) -> T { return x[0]; }
    extern "C" { __global__ __launch_bounds__(128, 2) void k(float* __restrict__ a, int n[]) {} }
    struct __align__(16) V { float x[4]; }; __constant__ int c[2] = {1, 2};
    """
    found = functions(Tokens.of(source))
    assert [(one.name, one.kernel) for one in found] == [("S", False), ("get", False), ("g", False), ("k", True)]
    assert found[-1].pointers == {"a", "n"}
