"""CuPy on a GPU: plain, prepared and armed kernels are never taken for one another."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import kscope

from .checks import doubts, python

cupy = pytest.importorskip("cupy")
RUN = """
import cupy
from pathlib import Path
from gpu import cupy_sources as c
out = c.ints(10)
c.four((10,), (128,), (out,))
cache = Path(sys.argv[2])
if sys.argv[1] == "on":
    with kscope.profile() as prof:
        c.four((10,), (128,), (out,))
    print(len(prof.trace), end=" ")
else:
    c.four((10,), (128,), (out,))
    print(0, end=" ")
assert bool((out == 4).all())
print(len(list(cache.glob("*.cubin"))))
"""


@pytest.fixture
def c() -> ModuleType:
    from . import cupy_sources

    return cupy_sources


def test_a_kernel_that_ran_plain_records_and_is_plain_again(c: ModuleType) -> None:
    kernel, out = c.fresh(c.FOUR, "four"), c.ints(10)
    plain = [kernel.num_regs, kernel.const_size_bytes]
    for _ in range(2):
        kernel((10,), (128,), (out,))
        with kscope.profile() as prof:
            kernel((10,), (128,), (out,))
            armed = [kernel.num_regs, kernel.const_size_bytes]
        assert len(prof.trace) == 10 * 4 * c.RECORDS
        assert not doubts(prof.trace)
        assert [kernel.num_regs, kernel.const_size_bytes] == plain != armed
    with kscope.profile(records=4, strategy=kscope.Lane0Warp0()) as prof:
        kernel((10,), (128,), (out,))
    assert len(prof.trace) == 10 * c.RECORDS


def test_other_processes_find_each_state_on_disk(c: ModuleType, tmp_path: Path) -> None:
    found = []
    for state in ("off", "on", "off", "on"):
        done = python(RUN, state, tmp_path, CUPY_CACHE_DIR=str(tmp_path))
        assert done.returncode == 0, done.stderr
        found.append([int(number) for number in done.stdout.split()])
    records = [numbers[0] for numbers in found]
    files = [numbers[1] for numbers in found]
    assert records == [0, 10 * 4 * 4, 0, 10 * 4 * 4]
    assert files[1] == files[2] == files[3] == files[0] + 1


def test_shared_memory_that_was_requested_is_requested_again(c: ModuleType) -> None:
    size, out = 100_000, c.ints(1)
    kernel = c.fresh(c.SHARED, "spread")
    kernel.max_dynamic_shared_size_bytes = size
    with kscope.profile() as prof:
        other = c.fresh(c.SHARED, "spread")
        other.max_dynamic_shared_size_bytes = size
        for each in (kernel, other):
            each((3,), (64,), (out, np.int32(size)), shared_mem=size)
            assert int(out[0]) == size // 4 - 1
    assert len(prof.trace) == 2 * 3 * 2
    for each in (kernel, other):
        out[0] = 0
        each((3,), (64,), (out, np.int32(size)), shared_mem=size)
        assert int(out[0]) == size // 4 - 1


def look_up(c: ModuleType, module: cupy.RawModule, values: list[int] | None = None) -> list[int]:
    """What a kernel finds in the module's constant, after the host wrote it where `values` are given."""
    out = c.ints(32)
    if values is not None:
        cupy.ndarray(4, cupy.int32, module.get_global("table"))[...] = cupy.asarray(values, cupy.int32)
    module.get_function("looked_up")((1,), (32,), (out,))
    found: list[int] = out[:4].get().tolist()
    return found


def test_a_module_whose_variables_were_written_plain_stays_plain_and_is_named(c: ModuleType) -> None:
    module = cupy.RawModule(code=c.TABLE, options=("-DONE", *c.INCLUDE))
    assert look_up(c, module, [1, 2, 3, 4]) == [1, 2, 3, 4]
    with kscope.profile() as prof:
        assert look_up(c, module) == [1, 2, 3, 4]
    assert len(prof.trace) == 0
    assert look_up(c, module) == [1, 2, 3, 4]


def test_a_kernel_whose_module_stays_plain_is_named(c: ModuleType) -> None:
    kernel, out = c.fresh(c.TABLE, "looked_up"), c.ints(32)
    kernel((1,), (32,), (out,))
    with kscope.profile() as prof:
        kernel((1,), (32,), (out,))
    assert "kernel looked_up was loaded before recording was enabled" in " ".join(p.text for p in prof.trace.problems)


def test_a_module_whose_variables_were_written_prepared_records_and_stays(c: ModuleType) -> None:
    module = cupy.RawModule(code=c.TABLE, options=("-DTWO", *c.INCLUDE))
    kscope.enable()
    assert look_up(c, module, [5, 6, 7, 8]) == [5, 6, 7, 8]
    with kscope.profile() as prof:
        assert look_up(c, module) == [5, 6, 7, 8]
    assert len(prof.trace) == 1
    kscope.disable()
    assert look_up(c, module) == [5, 6, 7, 8]
    assert look_up(c, module, [9, 9, 9, 9]) == [9, 9, 9, 9]


TAUGHT = """
import cupy, kscope, numpy as np
from cupyx import jit
from gpu import cupy_sources as c
from kscope_cuda.cupy import teach

cupy.disable_experimental_feature_warning = True
teach()

@jit.rawkernel()
def twice(x, n):
    i = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    with kscope.region("twice", value=n):
        x[i] = 2 * x[i]

bare = cupy.RawKernel(c.FOUR, "four")  # without the header's folder
x, out = cupy.ones(256, cupy.float32), c.ints(2)

def launch(step):
    twice((2,), (128,), (x, np.int32(step)))
    bare((2,), (128,), (out,))

launch(0)
with kscope.profile() as prof:
    launch(1)
launch(2)
assert len(prof.trace) == 2 * 4 * (1 + c.RECORDS), len(prof.trace)
assert bool((x == 8).all()) and bool((out == 4).all())
"""


def test_regions_run_unrecorded_after_teach(tmp_path: Path) -> None:
    script = tmp_path / "script.py"  # cupyx.jit reads kernels from files
    script.write_text(TAUGHT)
    done = python("import runpy; runpy.run_path(sys.argv[1])", script)
    assert done.returncode == 0, done.stderr


def test_an_nvcc_cubin_that_records_in_place_is_armed_when_cupy_loads_it(c: ModuleType, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).exists():
        pytest.skip("there is no nvcc")
    Path(tmp_path, "four.cu").write_text(c.FOUR)
    arch = f"-arch=sm_{cupy.cuda.Device().compute_capability}"
    command = [
        nvcc,
        "-cubin",
        arch,
        "-DKSCOPE=1",
        *c.INCLUDE,
        str(tmp_path / "four.cu"),
        "-o",
        str(tmp_path / "k.cubin"),
    ]
    subprocess.run(command, check=True)
    out = c.ints(10)
    early = cupy.RawModule(path=str(tmp_path / "k.cubin")).get_function("four")
    with kscope.profile() as prof:
        early((10,), (128,), (out,))
    assert not doubts(prof.trace)
    assert len(prof.trace) == 10 * 4 * c.RECORDS
