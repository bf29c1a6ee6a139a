"""Results of CuPy's compilers while recording is enabled: lowered, assembled, and refused where that is impossible."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path

import cupy
import numpy as np
import pytest
from contract.cuda_programs import FUNCTIONS, source_of
from cupy._core import _carray, _kernel, _reduction, core
from cupy.cuda import compiler
from gpu.cupy_sources import WIDE

import kscope
from kscope.capture.wire import CTL_SYMBOL
from kscope.errors import PairingError, UnsupportedError, UsageError
from kscope.instrument.recording import Recording
from kscope.language.cuda_header import source_uses_header
from kscope_cuda import assembler, nvrtc
from kscope_cuda.nvrtc import LINE_INFO

INCLUDE = ("-I" + kscope.cuda_include(),)
NEEDS_NVCC = pytest.mark.skipif(cupy.cuda.get_nvcc_path() is None, reason="there is no nvcc")


@pytest.mark.parametrize("arch", ["80", "90", "100"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_kernel_of_the_contract_becomes_a_cubin(frontend, gpu, name, arch):
    gpu.arch = arch
    frontend.enable(Recording())
    cubin = gpu.compile(source_of(name))
    assert cubin.startswith(b"\x7fELF")
    assert (CTL_SYMBOL.encode() in cubin) == (name != "unmarked")


def test_macros_without_the_include_are_enough(frontend, gpu, source):
    frontend.enable(Recording())
    assert b"kscope_ctl" in gpu.compile(source(include=False))


def test_lines_keep_their_numbers_where_the_include_was_added(frontend, gpu, source):
    frontend.enable(Recording())
    with pytest.raises(compiler.CompileException) as caught:
        gpu.compile(source(body="\n\nunknown = 1;", include=False))
    assert "kern.cu(4): error: identifier" in str(caught.value)


def test_options_of_the_users_reach_the_assembler(frontend, gpu, source):
    frontend.enable(Recording())
    copied = "for (int i = 0; i < 64; ++i) {{ {} }}"
    many = f"int x[64]; {copied.format('x[i] = out[i];')} __syncthreads(); {copied.format('out[64 + i] = x[63 - i];')}"
    with pytest.warns(UserWarning, match="kernel kernel: with its regions .* more bytes of registers spill"):
        assert gpu.compile(source(many)) != gpu.compile(source(many), ("--maxrregcount=24",))
    assert assembler.flags(("--maxrregcount=24", "-lineinfo", "--generate-line-info", "-DX=1", "-Xptxas=-O1")) == (
        "-maxrregcount=24",
        "-lineinfo",
        "-lineinfo",
        "-Xptxas=-O1",
    )


def reduction(operation: str, preamble: str) -> str:
    """The source that CuPy writes for a ReductionKernel of floats. It writes it from arrays, which need a GPU."""
    kernel = cupy.ReductionKernel("T x", "T y", operation, "a + b", "y = sqrt(a)", "0", "length", preamble=preamble)
    parameter, info, single = _kernel.ParameterInfo, _kernel._ArgInfo, np.dtype("float32")
    arrays = [info(1, cupy.ndarray, single, dimensions, True, True) for dimensions in (1, 0)]
    indexers = [info(2, _carray.Indexer, None, dimensions, True, True) for dimensions in (1, 0)]
    names = [parameter(f"CIndexer {name}", False) for name in ("_in_ind", "_out_ind")]
    parameters = (*kernel.in_params, *kernel.out_params, *names, parameter("int32 _block_stride", True))
    infos = (*arrays, *indexers, info(3, np.int32, np.dtype("int32"), 0, True, True))
    types = _kernel._TypeMap((("T", single.type),))
    what = kernel.identity, kernel.map_expr, kernel.reduce_expr, kernel.post_map_expr, kernel.preamble, kernel.options
    written: str = _reduction._ReductionKernel_get_cached_function_code(
        1, 1, parameters, infos, types, "length", 256, "float", *what
    )
    return f"typedef int IndexT;\n{written}"


def test_a_region_in_a_function_of_a_reductions_preamble_is_compiled(frontend, gpu):
    frontend.enable(Recording())
    square = 'template <class T> __device__ T square_of(T x) { KSCOPE_REGION("map"); return x * x; }'
    core.compile_with_cache(reduction("square_of(x)", square))
    assert CTL_SYMBOL.encode() in gpu.loaded()
    core.compile_with_cache(reduction("x * x", ""))
    with pytest.raises(compiler.CompileException):  # the operation is an expression
        core.compile_with_cache(reduction('KSCOPE_REGION("map"); x * x', ""))


@pytest.mark.parametrize("pinned", [False, True])
def test_a_region_whose_arithmetic_moved_out_of_a_loop_is_reported_when_it_is_compiled(frontend, gpu, source, pinned):
    frontend.enable(Recording())
    pin = "KSCOPE_PIN(y);" if pinned else ""
    loop = f"""float x = out[0];
    for (int i = 0; i < n; ++i) {{
        float y = x;
        {{ KSCOPE_REGION("products"); for (int k = 0; k < 128; ++k) y = y * y + 1.0f; {pin} }}
        out[i] = (int)y;
    }}"""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gpu.compile(source(loop))
    texts = [str(one.message) for one in caught]
    assert [text.partition(" between")[0] for text in texts] == (
        [] if pinned else ["kscope: kernel kernel: region 'products' (kern.cu:6) has no instruction"]
    )


def test_ptx_is_lowered_where_cupy_requests_ptx(frontend, gpu, source, monkeypatch):
    monkeypatch.setattr(compiler, "_use_ptx", True)
    frontend.enable(Recording())
    text = gpu.compile(source()).decode()
    assert ".target sm_90" in text
    assert "kscope_ctl" in text
    assert "//kscope" not in text


@pytest.mark.parametrize("why", ["there is nothing", "it refuses the text"])
def test_the_driver_gets_ptx_where_nothing_here_assembles(frontend, gpu, source, monkeypatch, why):
    assembler.assemble.cache_clear()
    if why == "there is nothing":
        monkeypatch.setattr(assembler, "ptxas", lambda *most: None)
        monkeypatch.setattr(assembler, "nvjitlink", lambda: None)
    else:
        monkeypatch.setattr(assembler, "flags", lambda options: ("-nonsense",))
    frontend.enable(Recording())
    text = gpu.compile(source()).decode()
    assert "kscope_ctl" in text
    assert "//kscope" not in text


TEXT = (
    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p){ .reg .b64 %r; "
    ".reg .b32 %x<3>; ld.param.u64 %r,[p]; ld.global.u32 %x1,[%r]; "
    "add.u32 %x2,%x1,1; st.global.u32 [%r], %x2; ret; }\n"
)


@pytest.mark.parametrize("by", ["ptxas", "nvjitlink"])
def test_each_assembler_reports_register_usage(by, monkeypatch):
    if getattr(assembler, by)() is None:
        pytest.skip(f"there is no {by} here")
    monkeypatch.setattr(assembler, "nvjitlink" if by == "ptxas" else "ptxas", lambda *most: None)
    assembler.assemble.cache_clear()
    found = assembler.assemble(TEXT, "sm_90", ("-lineinfo", "-Xptxas=-O1"))
    assert found.cubin.startswith(b"\x7fELF")
    assert found.usage.spill_bytes == 0
    assert 4 <= found.usage.registers <= 16
    assert found.usage.entries == (("k", found.usage.registers),)
    assert assembler.assemble("nonsense", "sm_90") is None


def test_ptx_refused_by_ptxas_goes_to_nvjitlink(tmp_path, monkeypatch):
    if assembler.nvjitlink() is None:
        pytest.skip("there is no nvJitLink here")
    old = tmp_path / "ptxas"
    old.write_text("#!/bin/sh\necho 'Unsupported .version' >&2\nexit 255\n")
    old.chmod(0o755)
    monkeypatch.setattr(assembler, "ptxas", lambda *most: str(old))
    assembler.assemble.cache_clear()
    assert assembler.assemble(TEXT, "sm_90").cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("release", "driver", "called"), [(13, None, False), (13, 12, False), (13, 13, True), (12, None, True)]
)
def test_a_ptxas_makes_no_cubin_that_the_driver_may_not_load(tmp_path, monkeypatch, release, driver, called):
    log = tmp_path / "called"
    program = tmp_path / "ptxas"
    version = f"Cuda compilation tools, release {release}.0, V{release}.0.1"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" && exit\ntouch {log}\nexit 255\n')
    program.chmod(0o755)
    monkeypatch.setattr("kscope.lowering.assembler.installed", lambda: (str(program),))
    monkeypatch.setattr(assembler, "nvjitlink", lambda: None)
    monkeypatch.setattr(assembler, "driver", lambda: driver)
    assembler.assemble.cache_clear()
    of_12 = f"//\n// Cuda compilation tools, release 12.8, V12.8.93\n//\n{TEXT}"
    assert assembler.assemble(of_12, "sm_90") is None
    assert log.exists() == called


def test_caches_keep_apart_what_drivers_of_different_releases_are_given(monkeypatch):
    tags = set()
    for release in (12, 13, None):
        monkeypatch.setattr(assembler, "driver", lambda release=release: release)
        tags.add(nvrtc.options(Recording()))
    assert len(tags) == 3


@pytest.mark.parametrize("wide", [False, True])
def test_too_few_registers_from_the_linker_give_a_warning(wide, monkeypatch):
    if assembler.nvjitlink() is None:
        pytest.skip("there is no nvJitLink here")
    monkeypatch.setattr(assembler, "ptxas", lambda *most: None)
    assembler.assemble.cache_clear()
    count = 90 if wide else 8
    loads = "".join(f"ld.volatile.global.u32 %x{n}, [%r+{4 * n}]; " for n in range(count))
    stores = "".join(f"st.volatile.global.u32 [%r+{4 * n}], %x{n}; " for n in range(count))
    text = TEXT.replace("%x<3>", "%x<99>").replace("ld.global.u32 %x1,[%r]; ", loads)
    text = text.replace("add.u32 %x2,%x1,1; st.global.u32 [%r], %x2; ", stores)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assembler.assemble(text, "sm_90")
    assert ["64 registers" in str(one.message) for one in heard] == [True] * wide


@pytest.mark.skipif(assembler.ptxas() is None, reason="there is no ptxas")
@pytest.mark.parametrize(("count", "most"), [(8, None), (48, 64), (70, None), (112, 128)])
def test_regions_do_not_exceed_the_register_limit_of_large_blocks(frontend, gpu, monkeypatch, count, most):
    def registers() -> int:
        cubin = gpu.compile(WIDE, (*INCLUDE, f"-DCOUNT={count}"))
        assert isinstance(cubin, bytes)
        return seen[-1].usage.registers

    seen, assemble = [], assembler.assemble
    monkeypatch.setattr(assembler, "assemble", lambda *given: seen.append(assemble(*given)) or seen[-1])
    frontend.enable(Recording())
    found = registers()
    assert most is None or most - 8 < found <= most
    if count == 8:
        assert found <= 64
        assert len(seen) == 3  # to measure, without and with registers spent on its loop, and to make


def test_a_function_that_is_not_inlined_is_refused_by_name(frontend, gpu, source):
    frontend.enable(Recording())
    apart = '__noinline__ __device__ void item(int* out) { KSCOPE_REGION("item"); out[0] += 1; }'
    with pytest.raises(UnsupportedError, match="regions in _Z4itemPi: the function was compiled separately"):
        gpu.compile(source(body="item(out); item(out + 1);", before=apart))


def test_regions_around_noinline_calls_compile(frontend, gpu, source):
    frontend.enable(Recording())
    apart = "__noinline__ __device__ void item(int* out) { out[0] += 1; }"
    assert b"kscope_ctl" in gpu.compile(source(body="item(out); item(out + 1);", before=apart))


def test_marks_that_do_not_pair_are_refused_by_name(frontend, gpu, source):
    frontend.enable(Recording())
    with pytest.raises(PairingError, match=r"kernel kernel: region 'open' is still open .* returns \(kern.cu:"):
        gpu.compile(source(body='KSCOPE_ENTER("open"); out[0] = n;'))


def test_regions_have_their_source_line(frontend, gpu, source):
    frontend.enable(Recording())
    inlined = '__device__ void item(int* out) {\n    KSCOPE_REGION("item");\n    out[0] += 1; }'
    cubin = gpu.compile(source(body='\nKSCOPE_INSTANT("here"); item(out);', before=inlined))
    for region, line in (("item", 3), ("work", 5), ("here", 6)):
        assert f'["{region}",null,"kern.cu:{line}"]'.encode() in cubin
    assert b".debug_line" not in cubin
    assert b".debug_line" in gpu.compile(
        source(body='\nKSCOPE_INSTANT("here"); item(out);', before=inlined), (LINE_INFO,)
    )


def test_two_types_of_one_name_are_refused(frontend, gpu, source):
    frontend.enable(Recording())
    body = '{ KSCOPE_REGION_V("a", 1); out[0] = n; } { KSCOPE_REGION_V("a", 1.0f); out[1] = n; }'
    with pytest.raises(UsageError, match=r"'a' has a value of type f32 at one place and i32 at another \(kern.cu:3\)"):
        gpu.compile(source(body=body))


def test_relocatable_code_stays_ptx_for_cupys_linker(frontend, gpu, source, monkeypatch):
    linked = []

    class LinkState:
        def add_ptr_data(self, data, name):
            linked.append(data)

        def add_ptr_file(self, path):
            """The device runtime."""

        def complete(self):
            return b"linked"

    monkeypatch.setattr(compiler.function, "LinkState", LinkState, raising=False)
    monkeypatch.setattr(compiler, "_get_cudadevrt_path", lambda: "")
    frontend.enable(Recording())
    assert gpu.compile(source(), ("-dc",)) == b"linked"
    assert b"kscope_ctl" in linked[0] and b"//kscope" not in linked[0]


@pytest.mark.skipif(cupy.__version__ < "14", reason="CuPy 13 makes none")
def test_ltoir_is_never_prepared(frontend, gpu, source):
    frontend.enable(Recording())
    found = compiler._compile_module_with_cache(source(), ("-std=c++17",), arch="90", to_ltoir=True)
    assert b"kscope" not in found
    assert gpu.backend.loaded == 0


@NEEDS_NVCC
@pytest.mark.parametrize("arch", ["80", "90", "100"])
def test_nvcc_goes_through_ptx_as_well(frontend, gpu, source, arch):
    gpu.arch = arch
    frontend.enable(Recording())
    assert b"kscope_ctl" in gpu.compile(source(), backend="nvcc")
    frontend.disable()
    assert b"kscope_ctl" not in gpu.compile(source(), INCLUDE, backend="nvcc")


@NEEDS_NVCC
def test_relocatable_code_of_nvcc_is_refused(frontend, gpu, source):
    frontend.enable(Recording())
    with pytest.raises(UnsupportedError, match="cannot be built as relocatable device code"):
        gpu.compile(source(), ("-dc",), backend="nvcc")


def test_the_cubin_is_what_ptxas_makes_of_the_same_text(frontend, gpu, source, tmp_path, monkeypatch):
    ptxas = assembler.ptxas()
    if ptxas is None:
        pytest.skip("there is no ptxas")
    texts = []
    assemble = assembler.assemble
    monkeypatch.setattr(assembler, "assemble", lambda text, *more: texts.append(text) or assemble(text, *more))
    frontend.enable(Recording())
    gpu.compile(source())
    Path(tmp_path, "k.ptx").write_text(texts[-1])
    subprocess.run([ptxas, "-arch=sm_90", tmp_path / "k.ptx", "-o", tmp_path / "k.cubin"], check=True)
    assert b"kscope_meta" in Path(tmp_path, "k.cubin").read_bytes()


def test_a_source_uses_the_header_that_its_headers_include(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "mine.cuh").write_text('#include "sub/timed.cuh"\n')
    (tmp_path / "sub" / "timed.cuh").write_text('#include "../mine.cuh"\n#include "macros.cuh"\n')
    (tmp_path / "sub" / "macros.cuh").write_text("#include <kscope.cuh>\n#define TIMED KSCOPE_REGION\n")
    (tmp_path / "other.cuh").write_text('#pragma once\n#include "sub/back.cuh"\n')
    (tmp_path / "sub" / "back.cuh").write_text('#include "../other.cuh"\n')
    folders = nvrtc.include_folders(("-lineinfo", f"-I{tmp_path}", "--include-path=/none"))
    assert folders == [str(tmp_path), "/none"]
    for text in ('KSCOPE_REGION("a");', "#include <kscope.cuh>"):
        assert source_uses_header(text, ())
    assert source_uses_header('#include "mine.cuh"', folders)
    assert not source_uses_header('#include "mine.cuh"', ())
    assert not source_uses_header('#include "other.cuh"\n#include <missing.cuh>', [*folders, kscope.cuda_include()])


def test_a_region_of_a_user_s_header_is_recorded(frontend, gpu, tmp_path):
    (tmp_path / "mine.cuh").write_text("#include <kscope.cuh>\n#define TIMED(name) KSCOPE_REGION(name)\n")
    text = '#include "mine.cuh"\nextern "C" __global__ void kernel(int* out) { TIMED("in a header"); out[0] = 1; }'
    frontend.enable(Recording())
    assert b"in a header" in gpu.compile(text, (f"-I{tmp_path}",))


def test_line_information_that_was_not_requested_is_removed_from_the_ptx(frontend, gpu, source, monkeypatch):
    monkeypatch.setattr(compiler, "_use_ptx", True)
    frontend.enable(Recording())
    bare, requested = (gpu.compile(source(), options).decode() for options in ((), (LINE_INFO,)))
    for directive in (".loc", ".file", ".debug_str"):
        assert directive not in bare
        assert directive in requested


def test_a_region_directly_before_its_closing_brace_is_refused(frontend, gpu, source):
    frontend.enable(Recording())
    with pytest.raises(
        UsageError, match=r'kern\.cu:\d+: KSCOPE_REGION\("empty"\); is directly before the closing brace'
    ):
        gpu.compile(source(body='\n{ KSCOPE_REGION("empty"); }\nout[0] = 1;'))
