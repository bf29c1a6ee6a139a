"""Lines and kinds of statements of unannotated CUDA C++, through CuPy's compilers and caches."""

from __future__ import annotations

import warnings
from pathlib import Path
from random import Random

import cupy
import pytest
from cupy.cuda import compiler
from unit.cuda.cpp_programs import program

import kscope_cuda
from kscope.capture import metadata, wire
from kscope.errors import UsageError
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalog
from kscope.instrument.selection.auto import KINDS, Lines, Selection
from kscope_cuda import select
from kscope_cuda.cupy import functions

SCALE = r"""
extern "C" __global__ void scale(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = x[i];
    float b = a * 2;
#pragma unroll 4
    for (int k = 0; k < n; ++k) {
        if (k == 100) break;
        b += x[k];
    }
    __syncthreads();
    out[i] = b;
}

extern "C" __global__ void other(float* out) { out[0] = 1; }
"""
OPERATION = """
float t = x;
y = t * 2;
"""
HERE = Path(__file__).name
FIRST = next(
    number for number, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.startswith("SCALE")
)
"""The line number of the source's first line in this file."""
LOADS, LOOP = "load=scale:5-6", "loop=scale:8-11"


def recording(*regions, kinds=(), kernels=()):
    return Recording(selection=Selection(kinds, tuple(map(Lines.of, regions)), kernels))


def is_marked(cubin):
    return wire.CTL_SYMBOL.encode() in cubin


def names(cubin):
    return {region.name: region.where for found in layout_metas(cubin) for region in found.regions}


def layout_metas(cubin):
    at = cubin.find(b'{"frontend"')
    assert at >= 0
    return [metadata.from_json(cubin[at : cubin.find(b"\0", at)])]


@pytest.mark.parametrize("arch", ["80", "90", "100"])
@pytest.mark.parametrize("region", [LOADS, LOOP, "all=scale:2-14", "guard=scale:4", "body=scale:9-10", "last=scale:13"])
def test_lines_become_a_region(frontend, gpu, arch, region):
    gpu.arch = arch
    plain = gpu.compile(SCALE)
    frontend.enable(recording(region))
    cubin = gpu.compile(SCALE)
    assert is_marked(cubin) and not is_marked(plain)
    name, _, place = region.partition("=scale:")
    first = max(3, int(place.partition("-")[0]))
    assert names(cubin) == {name: f"kern.cu:{first}"}


def test_selected_lines_match_source_literals_in_the_file(frontend, gpu):
    frontend.enable(recording(f"load={HERE}:{FIRST + 4}-{FIRST + 5}"))
    ours = gpu.compile(SCALE)
    frontend.enable(recording(LOADS))
    assert names(ours) == names(gpu.compile(SCALE)) == {"load": "kern.cu:5"}


def test_lines_of_a_file_that_the_program_read(frontend, gpu, tmp_path):
    path = tmp_path / "kernels.cu"
    path.write_text(f"#define A 1\n{SCALE}")
    frontend.enable(recording(f"load={path}:6-7"))
    assert names(gpu.compile(path.read_text())) == {"load": "kern.cu:6"}


@pytest.mark.parametrize("line", [5, 9, 13])
def test_errors_of_the_compiler_name_the_line_of_the_user(frontend, gpu, line):
    rows = SCALE.splitlines()
    rows[line - 1] += " unknown = 1;"
    frontend.enable(recording(LOADS, LOOP, "all=scale:3-13"))
    with pytest.raises(compiler.CompileException) as caught:
        gpu.compile("\n".join(rows))
    assert f"kern.cu({line}): error: identifier" in str(caught.value)


def test_lines_cutting_a_loop_are_refused_by_name_and_line(frontend, gpu):
    frontend.enable(recording("r=scale:8-9"))
    with pytest.raises(UsageError, match="region r=scale:8-9: the lines cut through the loop at lines 8 to 11"):
        gpu.compile(SCALE)


def test_a_source_that_is_not_selected_is_byte_identical(frontend, gpu):
    plain = gpu.compile("__global__ void f(int* x) {\n    x[0] = 1;\n}\n")
    frontend.enable(recording(LOADS, f"here={HERE}:1-900"))
    assert gpu.compile("__global__ void f(int* x) {\n    x[0] = 1;\n}\n") == plain


def test_kernels_are_selected_by_name(frontend, gpu):
    plain = gpu.compile(SCALE)
    frontend.enable(recording(LOADS, kernels=("oth*",)))
    assert gpu.compile(SCALE) == plain
    frontend.enable(recording(LOADS, kernels=("sc*",)))
    assert is_marked(gpu.compile(SCALE))


def test_the_disk_cache_keeps_selections_apart(frontend, gpu):
    found = {}
    for state in (None, LOADS, LOOP, None, LOOP, LOADS):
        if state is None:
            frontend.disable()
        else:
            frontend.enable(recording(state))
        found.setdefault(state, set()).add(gpu.compile(SCALE))
    assert all(len(cubins) == 1 for cubins in found.values())
    assert len({cubin for cubins in found.values() for cubin in cubins}) == 3
    assert len(gpu.compiled) == 3


def test_modules_in_memory_are_those_of_the_state(frontend, gpu):
    kernel = cupy.RawModule(code=SCALE)
    kernel.compile()
    plain = kernel.module
    frontend.enable(recording(LOADS))
    marked = cupy.RawModule(code=SCALE)
    assert isinstance(marked.module, functions.PreparedModule) and gpu.backend.loaded == 1
    frontend.disable()
    assert cupy.RawModule(code=SCALE).module is plain
    frontend.enable(recording(LOADS))
    assert cupy.RawModule(code=SCALE).module is marked.module


def test_modules_with_global_variables_are_not_reloaded(frontend, gpu):
    code = f"__constant__ float c[4];\n{SCALE}"
    module = cupy.RawModule(code=code)
    module.compile()
    frontend.enable(recording("load=scale:6-7"))
    assert cupy.RawModule(code=code).module is module.module


def test_lines_of_a_literal_inside_a_larger_source_are_marked(frontend, gpu):
    kernel = f'extern "C" __global__ void f(const float* a, float* b) {{ float x = a[0], y; {OPERATION} b[0] = y; }}'
    row = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text == "y = t * 2;")
    selected = recording(f"op={HERE}:{row - 1}-{row}")
    assert select.touches(OPERATION, selected.selection)
    frontend.enable(selected)
    assert names(gpu.compile(kernel)) == {"op": "kern.cu:2"}


def test_literals_with_escaped_newlines_are_not_matched_to_lines(frontend, gpu):
    one_line = "float t = 1;\nout[0] = t;"
    row = next(
        n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.startswith("    one_line")
    )
    assert not select.touches(one_line, recording(f"op={HERE}:{row}").selection)


def test_kinds_of_statements_of_raw_kernels_are_marked_and_listed(frontend, gpu, tmp_path):
    plain = cupy.RawModule(code=SCALE)
    plain.compile()
    with catalog.listing() as found:
        frontend.enable(recording(kinds=tuple(KINDS)))
        cupy.RawModule(code=SCALE).compile()
        assert is_marked(gpu.loaded())
    frontend.disable()
    assert cupy.RawModule(code=SCALE).module is plain.module
    assert [(kernel.kernel, kernel.target) for kernel in found] == [("scale", "sm_90"), ("other", "sm_90")]
    assert [(site.region, site.where, site.loops) for site in found[0].sites] == [
        ("load scale:5", "scale:5", ()),
        ("loop scale:8", "scale:8-11", ()),
        ("iteration scale:8", "scale:9-10", ("scale:8",)),
        ("load scale:10", "scale:10", ("scale:8",)),
        ("barrier scale:12", "scale:12", ()),
        ("store scale:13", "scale:13", ()),
    ]
    assert found[0].build is not None
    off, on = (path.read_bytes() for path in found[0].build(tmp_path))
    assert not is_marked(off) and is_marked(on)


def test_an_annotated_kernel_is_listed_with_its_two_builds(frontend, gpu, tmp_path):
    annotated = SCALE.replace("float b = a * 2;", 'KSCOPE_REGION("twice"); float b = a * 2;')
    with catalog.listing() as found:
        frontend.enable(Recording())
        cupy.RawModule(code="#include <kscope.cuh>\n" + annotated).compile()
    frontend.disable()
    assert {(kernel.kernel, kernel.sites) for kernel in found} == {("scale", ()), ("other", ())}
    off, on = (path.read_bytes() for path in found[0].build(tmp_path))
    assert not is_marked(off) and is_marked(on)


def test_a_dry_run_leaves_nothing_on_disk(frontend, gpu, tmp_path):
    with catalog.listing():
        frontend.enable(recording(LOADS))
        cupy.RawModule(code=SCALE).compile()
    assert not [path for path in (tmp_path / "disk").rglob("*") if path.is_file()]


def test_regions_with_a_return_inside_a_macro_are_dropped_and_reported(frontend, gpu, tmp_path):
    (tmp_path / "checks.h").write_text("#define CHECK(x) if (!(x)) return\n")
    code = '#include "checks.h"\n__global__ void f(int* out, int n) {\n    CHECK(n > out[0]);\n    out[1] = n;\n}\n'
    frontend.enable(recording("r=f:3-4", "all=f:4"))
    with pytest.warns(UserWarning, match="'r'"):
        cubin = gpu.compile(code, (f"-I{tmp_path}",))
    (meta,) = layout_metas(cubin)
    assert [problem.kind for problem in meta.problems] == ["pairing"]
    assert "'r'" in meta.problems[0].text


def test_lines_may_be_selected_beside_macros(frontend, gpu):
    annotated = SCALE.replace("float b = a * 2;", 'KSCOPE_REGION("twice"); float b = a * 2;')
    frontend.enable(recording(LOADS, LOOP))
    assert names(gpu.compile(annotated)) == {"load": "kern.cu:5", "loop": "kern.cu:8", "twice": "kern.cu:6"}


@pytest.mark.skipif(cupy.cuda.get_nvcc_path() is None, reason="there is no nvcc")
def test_nvcc_gets_the_marked_source(frontend, gpu):
    frontend.enable(recording(LOADS, LOOP))
    assert names(gpu.compile(SCALE, backend="nvcc")).keys() == {"load", "loop"}


def test_cupys_built_in_kernels_are_not_marked(frontend, gpu):
    plain = gpu.compile(SCALE)
    frontend.enable(recording(kinds=("load", "store")))
    assert gpu.compile(SCALE) == plain  # not through RawKernel or RawModule


def test_marked_returns_the_source_for_programs_calling_nvrtc_directly():
    assert kscope_cuda.Compilation().marked(SCALE) == SCALE
    marked = kscope_cuda.Compilation(recording(LOADS)).marked(SCALE)
    assert marked.count("//kscope enter load") == 1
    assert marked.count("\n") == SCALE.count("\n")


DEVICE = """
__device__ int state; __device__ int out[64];
static __device__ __forceinline__ int nxt() { state = state * 1664525 + 1013904223; return state >> 16 & 7; }
static __device__ __forceinline__ void emit(int x) { out[x & 63] = x; }
"""


def test_random_lines_of_random_kernels_compile_and_pair(frontend, gpu):
    """Every region that the compiler keeps is paired on every path; the pass reports where one is not."""
    selected = 0
    for seed in range(12):
        text, random = program(seed, device=True), Random(seed)
        count = text.count("\n")
        first = random.randint(6, count - 3)
        region = Lines("r", "f", first, min(count - 2, first + random.choice([0, 1, 3, 8])))
        try:
            found = select.marked(text, Selection(("loop",), (region,)))
        except UsageError:
            found = select.marked(text, Selection(("loop", "iteration")))
        if found is None:
            continue
        selected += 1
        kernel = '\nextern "C" __global__ void k(int* x) { x[threadIdx.x] = f(x[0]); }\n'
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", ".*more bytes of registers spill.*")
            frontend.enable(Recording())
            source = f"// KSCOPE_\n{DEVICE}{found.text}{kernel}"
            cubin = gpu.compile(source, ("-std=c++17", "-diag-suppress=1866"))
        assert not [problem for meta in layout_metas(cubin) for problem in meta.problems if problem.kind == "pairing"]
    assert selected >= 8
