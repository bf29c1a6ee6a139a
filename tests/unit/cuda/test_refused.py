"""Code that cannot be recorded is refused, with a message that names the place and the remedy."""

from __future__ import annotations

import re

import pytest
from nvcc import HEADER, IN_PLACE, MARKS, compiled, kernel, needs_nvcc, refused

from kscope.errors import PairingError, UnsupportedError
from kscope.instrument.recording import Recording
from kscope.lowering import plan
from kscope_cuda import nvrtc
from kscope_cuda.header import DEBUG_REFUSED

pytestmark = needs_nvcc
BOTH = pytest.mark.parametrize("mode", [IN_PLACE, MARKS])

MACROS = [
    'KSCOPE_REGION("r");',
    'KSCOPE_REGION_V("r", 1);',
    'KSCOPE_REGION_IF("r", x);',
    'KSCOPE_REGION_V_IF("r", 1, x);',
    'KSCOPE_ENTER("r"); KSCOPE_EXIT("r");',
    'KSCOPE_INSTANT("r");',
    'KSCOPE_INSTANT_V("r", 1);',
    'KSCOPE_INSTANT_IF("r", x);',
    'KSCOPE_COUNTER("r", 1);',
    'KSCOPE_COUNTER_IF("r", 1, x);',
    "KSCOPE_PIN(x);",
]
NOT_INLINED = """
__device__ __noinline__ int apart(int x) {
  KSCOPE_REGION("apart");
  return x * x;
}
"""
ILLEGAL = "Illegal argument for formal parameter 'kscope_inline_this_function_into_a_kernel_with_KSCOPE_KERNEL_or_keep_"
GUARD = "was_not_inlined_or_has_no_KSCOPE_KERNEL_line_"


def errors(output: str, line: int) -> str:
    """A compiler's message about a line, and about a template's instantiation there."""
    paragraphs = output.split("\n\n")
    return "\n".join(
        one for one in paragraphs if re.search(rf"unit\.cu\({line}\): error|at line {line} of unit\.cu", one)
    )


NOT_LITERAL, SIZE = "kscope: a region's name is a string literal", "kscope: a name has 1 to 128 bytes"
VALUE = "the value is an integer, a float, a double or a pointer; cast it"
MISTAKES = [
    *((NOT_LITERAL, f"KSCOPE_REGION({name});") for name in ("pointer", "ARRAY[0]", "n ? one : two")),
    *((SIZE, f"KSCOPE_REGION({name});") for name in ('""', f'"{"x" * 129}"')),
    *((VALUE, f'KSCOPE_REGION_V("r", {value});') for value in ("true", "threadIdx")),
    ("name at least one warp", 'KSCOPE_REGION("r", kscope::TargetWarp<>);'),
    ("expected warps from 0 to 31", 'KSCOPE_REGION("r", kscope::TargetWarp<32>);'),
    ("a region has one strategy", 'KSCOPE_REGION("r", kscope::Elected, kscope::AllThreads);'),
]
"""The compiler's message about a mark."""


@BOTH
def test_names_values_and_strategies_that_are_none_are_refused_at_their_line(mode: str) -> None:
    before = (
        'constexpr const char* one = "one"; constexpr const char* two = "two"; __device__ const char* ARRAY[] = {"x"};'
    )
    marks = "\n".join(f"  {{ {mark} out[0] = 1; }}" for _, mark in MISTAKES)
    source = kernel(f'  const char* pointer = "load";\n  (void)pointer;\n{marks}', before=before)
    output = refused(source, mode)
    first = source[: source.index(marks)].count("\n") + 1
    for line, (message, mark) in enumerate(MISTAKES, first):
        assert message in errors(output, line), mark


DEBUGS = f'calling a __host__ function("kscope::{DEBUG_REFUSED}()")'
PLACES = {
    "__global__ kernel": "__global__ void kernel(int x) {\n  @\n}",
    "__device__ apart": "__device__ int apart(int x) {\n  @\n  return x;\n}",
    "__device__ ns::Tile::at<int> ": (
        "namespace ns { struct Tile { template <class T> __device__ T at(T x) {\n  @\n  return x; } }; }\n"
        "__device__ int of(int x) { return ns::Tile().at(x); }"
    ),
    "__host__ __device__ both": (
        "__host__ __device__ int both(int x) {\n  @\n  return x;\n}\n__global__ void k() { both(1); }"
    ),
    "__device__ k(int)::[lambda() (instance 1)]::operator () const": (
        "__global__ void k(int x) { [=]() {\n  @\n  }(); }"
    ),
    **{
        f"__device__ with_{n}": f"__device__ int with_{n}(int x) {{\n  {mark}\n  return x;\n}}"
        for n, mark in enumerate(MACROS)
    },
}
"""Each function's qualifiers and name."""


def test_device_debugging_is_refused_by_function_and_line_for_every_kind_of_mark() -> None:
    source = HEADER + "\n".join(PLACES.values()).replace("@", MACROS[0])
    output = refused(source, IN_PLACE, "-G")
    marked = [number for number, line in enumerate(source.splitlines(), 1) if line.strip() in MACROS]
    for line, place in zip(marked, PLACES, strict=True):
        qualifiers, _, called = place.rpartition("__ ")
        assert f'{DEBUGS} from a {qualifiers}__ function("{called}") is not' in errors(output, line)


def test_device_debugging_is_refused_in_place_without_regions_too() -> None:
    assert f'{DEBUGS} from a __global__ function("k")' in refused(kernel("  out[0] = n;"), IN_PLACE, "-G")


def test_device_debugging_of_lowered_code_is_refused_by_function() -> None:
    text = compiled(kernel('  KSCOPE_REGION("r");\n  out[0] = apart(n);', before=NOT_INLINED), MARKS, "-G").decode()
    with pytest.raises(
        UnsupportedError, match=r"regions in _Z5aparti, k: compiled with -G \(--device-debug\).* leave -G out"
    ):
        nvrtc.lower(text, Recording(), frontend="test", arch=None)


def test_optimized_debug_builds_are_accepted() -> None:
    source = kernel('  KSCOPE_REGION("r");\n  out[0] = n;')
    compiled(source, IN_PLACE, "-G", "-dopt=on", to="cubin")
    text = compiled(source, MARKS, "-G", "-dopt=on").decode()
    assert b"kscope_ctl" in nvrtc.lower(text, Recording(), frontend="test", arch=None)


def test_plain_code_may_be_debugged() -> None:
    compiled(kernel('  KSCOPE_REGION("r");'), "-G", to="cubin")


@pytest.mark.parametrize("more", [[], ["-rdc=true"]])
def test_noinline_functions_are_refused_by_name_and_line(more: list[str]) -> None:
    output = refused(kernel("  out[0] = apart(n);", before=NOT_INLINED), IN_PLACE, *more)
    assert f"{ILLEGAL}marks_out_of_it__int_apart_int_'" in output
    assert f"{GUARD}4'" in output


def test_separately_compiled_functions_are_refused_by_name_and_line() -> None:
    """With -rdc=true and no kernel in sight."""
    source = HEADER + '__device__ void apart(int* out) {\n  KSCOPE_REGION("r");\n  out[0] = 1;\n}\n'
    output = refused(source, IN_PLACE, to="o")
    assert f"{ILLEGAL}marks_out_of_it__void_apart_int___'" in output
    assert f"{GUARD}3'" in output


@BOTH
@pytest.mark.parametrize("kind", ["static", "__forceinline__"])
def test_a_function_of_one_file_is_inlined_in_relocatable_code_too(mode: str, kind: str) -> None:
    before = NOT_INLINED.replace("__noinline__", kind)
    source = kernel("  out[0] = apart(n);", before=before)
    compiled(source, mode, to="o")
    if mode == MARKS:
        lowered = plan.lower(compiled(source, mode, "-rdc=true").decode(), Recording(), frontend="test")
        assert [region.name for region in lowered.meta.regions] == ["apart"]


def test_kernels_without_the_kernel_macro_are_refused_by_name_and_line() -> None:
    source = HEADER + '__global__ void k(int* out) {\n  KSCOPE_INSTANT("i");\n  out[0] = 1;\n}\n'
    output = refused(source, IN_PLACE)
    assert f"{ILLEGAL}marks_out_of_it__void_k_int___'" in output
    assert f"{GUARD}3'" in output


def test_errors_name_the_function_of_every_mark() -> None:
    apart = "  template <class T> __device__ __noinline__ T at_{}(T x) {{\n  {}\n  return x; }}\n"
    tile = "".join(apart.format(n, mark) for n, mark in enumerate(MACROS))
    calls = "\n".join(f"  out[{n}] = ns::Tile().at_{n}(n);" for n in range(len(MACROS)))
    output = refused(kernel(calls, before=f"namespace ns {{ struct Tile {{\n{tile}}}; }}\n"), IN_PLACE)
    for n, mark in enumerate(MACROS):
        assert f"{ILLEGAL}marks_out_of_it__T_ns__Tile__at_{n}_T___with_T___int_'" in output, mark


def test_long_function_names_are_truncated_in_errors() -> None:
    apart = NOT_INLINED.replace("apart(", "a" * 300 + "(")
    output = refused(kernel(f"  out[0] = {'a' * 300}(n);", before=apart), IN_PLACE)
    assert f"{ILLEGAL}marks_out_of_it__int_{'a' * 124}'" in output


def test_inlined_functions_contain_no_mark_of_their_name() -> None:
    near = "template <class T> __device__ T near_{}(T x) {{\n  {}\n  return x; }}\n"
    before = "".join(near.format(n, mark) for n, mark in enumerate(MACROS))
    body = "\n".join(f"  for (int i = 0; i < n; i++) out[i] = near_{n}(i);" for n in range(len(MACROS)))
    assert "callprototype" not in compiled(kernel(body, before=before), IN_PLACE).decode()


def test_forceinline_functions_compile_without_optimization() -> None:
    near = NOT_INLINED.replace("__noinline__", "__forceinline__")
    source = kernel("  out[0] = apart(n);", before=near)
    assert b"callprototype" in compiled(source, IN_PLACE, "-Xcicc", "-O0"), "the branch stays in unoptimized code"
    compiled(source, IN_PLACE, "-Xcicc", "-O0", to="cubin")


def test_strategies_missing_from_the_kernels_list_are_refused() -> None:
    output = refused(kernel('  KSCOPE_REGION("r", kscope::AllThreads);'), IN_PLACE)
    assert "ks_strategy_that_KSCOPE_KERNEL_does_not_list_3" in output


@pytest.mark.parametrize("define", ["-DKSCOPE_CLOCK=wall", "-DKSCOPE_FILL=grow", "-DKSCOPE_RECORDS=0"])
def test_invalid_macro_options_are_refused(define: str) -> None:
    option = define[2:].partition("=")[0]
    assert f"kscope: {option} is " in refused(kernel("  out[0] = n;"), IN_PLACE, define)


@pytest.mark.parametrize("more", [[], ["-rdc=true"]])
def test_marks_in_noinline_functions_are_refused_by_name(more: list[str]) -> None:
    text = compiled(kernel("  out[0] = apart(n);", before=NOT_INLINED), MARKS, *more).decode()
    with pytest.raises(UnsupportedError, match=r"regions in _Z5aparti: the function was compiled separately"):
        plan.lower(text, Recording(), frontend="test")


def test_marks_in_separately_compiled_functions_are_refused_by_name() -> None:
    """With -rdc=true and no kernel in sight."""
    apart = HEADER + '__device__ void apart(int* out) {\n  KSCOPE_REGION("r");\n  out[0] = 1;\n}\n'
    with pytest.raises(UnsupportedError, match=r"regions in _Z5apartPi: the function was compiled separately"):
        plan.lower(compiled(apart, MARKS, "-rdc=true").decode(), Recording(), frontend="test")


def test_unpaired_explicit_marks_are_refused_by_kernel_region_and_line() -> None:
    text = compiled(kernel('  if (n) KSCOPE_ENTER("r");\n  out[0] = n;'), MARKS, "-lineinfo").decode()
    with pytest.raises(PairingError, match=r"kernel k: region 'r' .*unit\.cu:7"):
        plan.lower(text, Recording(), frontend="test")
