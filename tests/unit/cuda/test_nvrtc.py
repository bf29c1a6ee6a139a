"""The header under NVRTC: no include is needed, nothing is recorded by default, and both modes compile."""

from __future__ import annotations

import re

import pytest
from nvcc import HEADER, IN_PLACE, MARKS, PLAIN, kernel, recorded, without_macros

import kscope
from kscope.errors import UnsupportedError
from kscope.instrument import source_texts
from kscope.instrument.recording import Recording
from kscope.lowering import plan
from kscope_cuda import nvrtc as lowering

nvrtc = pytest.importorskip("cuda.bindings.nvrtc", exc_type=ImportError)
try:
    VERSION = nvrtc.nvrtcVersion()[1:]
except RuntimeError:
    pytest.skip("needs NVRTC: pip install nvidia-cuda-nvrtc", allow_module_level=True)

SOURCE = kernel(
    r"""
  KSCOPE_REGION("outer");
  for (int k = 0; k < n; k++) {
    KSCOPE_REGION_V("step", k);
    out[k] = k;
  }
  KSCOPE_INSTANT_V("there", 1.5f);
  KSCOPE_COUNTER("depth", n);
  helper(out);
""",
    before=r"""
template <class T> __device__ void helper(T* x) {
  KSCOPE_REGION("helper");
  x[9] = 1;
}
""",
)


def compile_with(source: str, *options: str) -> tuple[bytes | None, str]:
    """PTX or None, and NVRTC's log."""
    program = nvrtc.nvrtcCreateProgram(source.encode(), b"unit.cu", 0, [], [])[1]
    arguments = [f"-I{kscope.cuda_include()}", *options]
    if not any("arch" in option for option in options):
        arguments.append("-arch=compute_90")
    (result,) = nvrtc.nvrtcCompileProgram(program, len(arguments), [argument.encode() for argument in arguments])
    # no bytes: an empty log would overwrite the interned b" " of the process
    log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, log)
    if int(result):
        return None, log.decode()
    ptx = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
    nvrtc.nvrtcGetPTX(program, ptx)
    return bytes(ptx.rstrip(b"\0")), log.decode().strip("\0 ")


@pytest.mark.parametrize("mode", [IN_PLACE, MARKS])
@pytest.mark.parametrize("arch", [75, 80, 90, 100, 120])
@pytest.mark.parametrize("standard", [14, 17, 20])
def test_nvrtc_compiles_the_header_without_messages(standard: int, arch: int, mode: str) -> None:
    if arch not in nvrtc.nvrtcGetSupportedArchs()[1:][-1]:
        pytest.skip(f"this NVRTC does not support sm_{arch}")
    ptx, log = compile_with(SOURCE, mode, f"-std=c++{standard}", f"-arch=compute_{arch}")
    assert ptx is not None, log
    assert log == ""


@pytest.mark.parametrize("defines", [[], [PLAIN], [PLAIN, MARKS]])
def test_nothing_is_recorded_by_default(defines: list[str]) -> None:
    assert compile_with(SOURCE, *defines)[0] == compile_with(without_macros(SOURCE))[0]


@pytest.mark.parametrize("standard", [14, 17])
def test_lowering_adds_only_the_constant_and_notes_to_a_module(standard: int) -> None:
    ptx, _ = compile_with(SOURCE, IN_PLACE, f"-std=c++{standard}")
    assert ptx is not None
    variables = re.findall(rb"^(?:\.\w+ )*\.(?:global|const) .*?(\w+)(?:\[\d+\])?(?: =.*)?;", ptx, re.M)
    assert {name for name in variables if b"kscope_note_" not in name} == {b"kscope_ctl"}


def test_nvrtc_code_records_the_same_as_nvccs() -> None:
    here, marks = compile_with(SOURCE, IN_PLACE)[0], compile_with(SOURCE, MARKS)[0]
    assert here is not None
    assert marks is not None
    lowered = plan.lower(marks.decode(), Recording(records=256), frontend="test")
    expected = ["step", "step", "there", "depth", "helper", "outer"]
    for lanes in (recorded(here, 2), recorded(lowered.text.encode(), 2, metas=(lowered.meta,))):
        assert [[name for name, _, _ in lane] for lane in lanes] == [expected]


def test_two_regions_on_one_line_are_refused_with_a_message() -> None:
    ptx, log = compile_with(kernel('  KSCOPE_REGION("a"); KSCOPE_REGION("b");'), MARKS)
    assert ptx is None
    assert "kscope_one_region_per_line_5" in log


DEBUGGED = f"""{HEADER}
template <class T> __device__ T apart(T x) {{
  KSCOPE_REGION("a");
  return x;
}}
extern "C" __global__ void k(int* x) {{ *x = apart(*x); }}
"""


def test_debugging_is_refused_in_place_by_the_name_of_the_function() -> None:
    ptx, log = compile_with(DEBUGGED, IN_PLACE, "-G")
    if VERSION < (12, 6):
        assert ptx is None
        assert "unit.cu(4)" in log
        assert "kscope: regions need a build without -G" in log
    else:
        assert ptx is not None
        assert b"build_without_G__leave_it_out_or_build_plain_with_DKSCOPE_0__T_apart_T___with_T___int_)" in ptx
        assert b"(kscope_mark_in_a_function_that_is_compiled_with_G_line_4)" in ptx


def test_debugging_is_refused_by_the_name_of_the_function_where_kscope_lowers() -> None:
    ptx, log = compile_with(DEBUGGED, MARKS, "--device-debug", lowering.LINE_INFO)
    assert ptx is not None, log
    with pytest.raises(UnsupportedError, match=r"regions in _Z5apartIiET_S0_: compiled with -G \(--device-debug\)"):
        lowering.lower(ptx.decode(), Recording(), frontend="test", arch=None)


def test_a_source_without_a_file_is_kept_for_samples_of_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_texts, "_texts", {})
    text = lowering.with_header("// KSCOPE_REGION", "#define A\n", lowering.FILE)
    lowering.with_header("// KSCOPE_REGION without a name")
    [kept] = source_texts.kept_texts(lowering.FILE)
    assert text.endswith(f'#line 1 "{lowering.FILE}"\n{kept}')  # so its line numbers are those of the samples
