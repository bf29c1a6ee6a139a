"""kscope.cuh is up to date, compiles everywhere, and is empty when recording is off."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvcc import HEADER, IN_PLACE, MARKS, PLAIN, compiled, kernel, needs_nvcc, without_macros

import kscope
from kscope import ptx
from kscope.capture import layout
from kscope_cuda import binary_notes, header
from kscope_cuda.inline_assembly import Unknown, assembly

ROOT = Path(__file__).resolve().parents[3]
ALL = kernel(
    r"""
  KSCOPE_REGION("outer");
  for (int k = 0; k < n; k++) {
    KSCOPE_REGION_V("step", k, kscope::AllThreads);
    out[k] = k;
  }
  KSCOPE_REGION_OPEN("wait", kscope::Lane0Warp0);
  KSCOPE_REGION_OPEN_V("waits", n);
  KSCOPE_ENTER("turn");
  KSCOPE_ENTER_V("pair", n, kscope::TargetWarp<0, 4>);
  out[n] = helper(n);
  KSCOPE_EXIT("pair", kscope::TargetWarp<0, 4>);
  KSCOPE_EXIT("turn");
  KSCOPE_INSTANT("here", kscope::Lane0Warp0);
  KSCOPE_INSTANT_V("there", 1.5f);
  KSCOPE_COUNTER("depth", 3u);
  KSCOPE_PIN(n);
""",
    before=r"""
template <class T> __device__ T helper(T x) {
  KSCOPE_REGION("helper");
  return x * x;
}
""",
    options="kscope::Elected, kscope::AllThreads, kscope::TargetWarp<0, 4>, kscope::Lane0Warp0",
)


def test_the_header_is_up_to_date() -> None:
    text = header.PATH.read_text()
    assert text == header.updated(text), "run: python -m kscope_cuda.header"


def test_generated_parts_are_written_anew() -> None:
    text = header.PATH.read_text()
    without = re.sub(r"(// generated: .*\n)(?:.*\n)*?( *// end\n)", r"\1\2", text)
    without = re.sub(
        r'(/\*\w+=\*/)(?:"(?:[^"\\]|\\.)*"|\w+)', lambda found: found[1] + ("0", '""')['"' in found[0]], without
    )
    assert "asm volatile" not in without.partition("// ---- marks")[0]
    assert header.updated(without) == text


def test_everything_that_kscope_defines_for_the_header_is_in_it() -> None:
    text = header.PATH.read_text()
    blocks = re.findall(r"// generated: (\w+)", text)
    values = set(re.findall(r"/\*(\w+)=\*/", text)) - {"NAME"}
    used = values.union(*map(header.names, blocks))
    assert used | ptx.READINGS.keys() == {*header.texts(), *header.constants(), *header.lists(header.texts())}


def test_the_header_is_found_by_function_and_by_command() -> None:
    assert Path(kscope.cuda_include(), "kscope.cuh") == header.PATH
    paths = [str(ROOT), str(ROOT / "frontends")]
    code = f"import sys; sys.path[:0] = {paths}; from kscope.cli import main; main(['include'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == kscope.cuda_include()


def test_the_header_includes_nothing() -> None:
    assert "#include" not in header.PATH.read_text()


@needs_nvcc
@pytest.mark.parametrize("mode", [IN_PLACE, MARKS])
@pytest.mark.parametrize("standard", [14, 17, 20])
def test_the_header_compiles_without_warnings_in_every_cpp_standard(standard: int, mode: str) -> None:
    compiled(ALL, mode, f"-std=c++{standard}", to="cubin")


@needs_nvcc
@pytest.mark.parametrize("arch", [75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121])
def test_the_header_assembles_for_every_architecture(arch: int) -> None:
    compiled(ALL, IN_PLACE, f"-arch=sm_{arch}", to="cubin")


@needs_nvcc
@pytest.mark.parametrize("options", [["-O0"], ["-O1"], ["-lineinfo"], ["--use_fast_math"], ["-Xptxas", "-O1"]])
def test_the_header_assembles_with_other_options(options: list[str]) -> None:
    compiled(ALL, IN_PLACE, *options, to="cubin")


@needs_nvcc
@pytest.mark.parametrize("defines", [[PLAIN], [], [MARKS, PLAIN]])
@pytest.mark.parametrize("to", ["ptx", "cubin"])
def test_disabled_macros_leave_the_code_unchanged(to: str, defines: list[str]) -> None:
    """Also without any -D: plain is the default."""
    assert compiled(ALL, *defines, to=to) == compiled(without_macros(ALL), to=to)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_macros_are_empty_in_host_code(tmp_path: Path) -> None:
    unit = tmp_path / "unit.cpp"
    unit.write_text(f'{HEADER}int main() {{\n  KSCOPE_REGION("r");\n  KSCOPE_REGION_V("v", 1);\n}}\n')
    for define in (PLAIN, IN_PLACE, MARKS):
        command = ["g++", "-std=c++14", "-Wall", "-Werror", "-fsyntax-only", define, f"-I{kscope.cuda_include()}"]
        subprocess.run([*command, str(unit)], check=True)


@needs_nvcc
@pytest.mark.parametrize("mode", [IN_PLACE, MARKS])
def test_lambdas_for_host_and_device_and_functions_for_both_may_have_regions(mode: str) -> None:
    source = (
        HEADER
        + r"""
template <class F> __global__ void apply(int n, F f) {
  KSCOPE_KERNEL();
  for (int i = threadIdx.x; i < n; i += blockDim.x) f(i);
}
__host__ __device__ inline int both(int x) {
  KSCOPE_REGION_V("both", x);
  return x + 1;
}
void run(int* out, int n) {
  apply<<<1, 32>>>(n, [=] __device__ (int i) { KSCOPE_REGION("device"); out[i] = both(i); });
  apply<<<1, 32>>>(n, [=] __host__ __device__ (int i) { KSCOPE_INSTANT("both too"); out[i] = both(i); });
}
"""
    )
    compiled(source, mode, "--extended-lambda", to="so")


@needs_nvcc
def test_enabled_macros_change_the_code() -> None:
    assert compiled(ALL, IN_PLACE) != compiled(without_macros(ALL))


@needs_nvcc
def test_a_value_is_not_evaluated_when_switched_off() -> None:
    source = kernel('  KSCOPE_REGION_V("step", out[1]++);\n  out[0] = n;')
    assert compiled(source, PLAIN) == compiled(without_macros(source))


@needs_nvcc
@settings(max_examples=2)
@given(
    st.lists(st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), min_size=1, max_size=20), min_size=8)
)
def test_names_have_the_hashes_of_kscope(names: list[str]) -> None:
    """Any characters, and any length up to the limit."""
    names = [*names, "x" * 128]
    checks = [f'static_assert(kscope::hash_({_quoted(name)}) == {layout.name_hash(name)}u, "");' for name in names]
    compiled(kernel("\n".join(checks)), IN_PLACE)


@needs_nvcc
def test_kernel_ids_in_code_match_their_notes() -> None:
    (note,) = (
        note for note in binary_notes.find(compiled(ALL, IN_PLACE, to="cubin")) if note.kind == binary_notes.KERNEL
    )
    assert (note.text, note.file, note.log2_records, note.strategy) == ("void k(int *, int)", "unit.cu", 8, "elected")
    ptx = compiled(ALL, IN_PLACE).decode()
    low = f"mov.u32 ks_z, {_signed(note.id & 0xFFFFFFFF)}; mov.u32 ks_t, {_signed(note.id >> 32)};"
    assert low in ptx


@needs_nvcc
@pytest.mark.parametrize(
    ("defines", "expected"),
    [
        (["-DKSCOPE_CLOCK=globaltimer"], {"clock": "globaltimer"}),
        (["-DKSCOPE_FILL=stop"], {"fill": "stop"}),
        (["-DKSCOPE_RECORDS=1000"], {"log2_records": 10}),
        (["-DKSCOPE_RECORDS=1"], {"log2_records": 2}),
        (["-DKSCOPE_STRATEGY=kscope::TargetWarp<1\\,3>"], {"strategy": "warps:1,3"}),
        (["-DKSCOPE_WARPS=0x8000000a"], {"strategy": "warps:1,3,31"}),
        ([], {"clock": "cycles", "fill": "ring", "log2_records": 8, "strategy": "elected"}),
    ],
)
def test_a_kernels_note_contains_its_recording_options(defines: list[str], expected: dict[str, object]) -> None:
    found = compiled(kernel('  KSCOPE_REGION("r");\n  out[0] = n;'), IN_PLACE, *defines, to="cubin")
    (note,) = (note for note in binary_notes.find(found) if note.kind == binary_notes.KERNEL)
    assert {name: getattr(note, name) for name in expected} == expected


@needs_nvcc
def test_a_record_is_one_predicated_store_without_branch_or_atomic() -> None:
    source = kernel('  for (int k = 0; k < n; k++) {\n    KSCOPE_REGION("r");\n    out[k] = k;\n  }')
    body = compiled(source, IN_PLACE).decode().partition("KS_BODY:")[2]
    assert len(re.findall(r"@\w+ st\.global\.v4\.b32", body)) >= 1
    assert not re.search(r"\batom\b|\bred\b|bra(\.uni)? KS(?!_SOON|_FEW)", body)  # but past anchors


def _quoted(name: str) -> str:
    """A C++ string literal, byte by byte."""
    return '"' + "".join(f"\\{byte:03o}" for byte in name.encode()) + '"'


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


@pytest.mark.parametrize("use", ["units < 8", "units == 8", "units * 64", "64 - units", "units & 3", "units / 2"])
def test_arithmetic_on_an_unknown_number_becomes_an_expression_or_raises(use: str) -> None:
    units = Unknown("UNITS")
    assert '"n"((UNITS - 1))' in assembly(f"add.u32 x, x, {units - 1};")
    with pytest.raises(TypeError, match="UNITS is computed by the C"):
        eval(use, {"units": units})
