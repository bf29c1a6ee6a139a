"""auto="pipeline" in CuTe DSL: operations on barriers are found in the PTX, also of kernels without a mark."""

from __future__ import annotations

from collections import Counter

import pytest

from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection
from kscope.marks.operations import PIPELINE, of_name

from .conftest import Made, compile, load
from .test_kernels import GEMM
from .test_marks import metadata_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # CuTe's, of names that 4.4 still needs
    pytest.mark.filterwarnings("ignore:.*more bytes of registers spill"),
]
RECORDING = Recording(selection=Selection((PIPELINE,)))
PLAIN = "x[thread] = x[thread] + 1.0"
ALLOCATOR = "import cutlass.utils\nAllocator = getattr(cutlass, 'memory', cutlass.utils).SmemAllocator"
BARRIER = """
    at = Allocator().allocate_array(cutlass.Int64, 1)
    if thread == 0:
        cute.arch.mbarrier_init(at, 128)
    cute.arch.sync_threads()
    cute.arch.mbarrier_arrive(at)
    cute.arch.mbarrier_wait(at, 0)
    x[thread] = x[thread] + 1.0
"""


def operations(made: Made) -> Counter[str]:
    """Operation -> names of its records."""
    found = (of_name(region.name) for region in metadata_of(made).regions)
    return Counter(one.operation for one in found if one is not None)


def test_a_kernel_without_marks_records_its_barrier(make):
    made = make(BARRIER, before=ALLOCATOR, recording=RECORDING)
    assert operations(made) == {"init": 1, "arrive": 1, "wait": 1}


def test_a_kernel_without_barriers_stays_plain(make):
    plain = make(PLAIN, recording=None)
    assert "ks_" not in make(PLAIN, recording=RECORDING).ptx
    assert "ks_" not in plain.ptx


def test_without_the_kind_nothing_is_recorded(make):
    assert "ks_" not in make(BARRIER, before=ALLOCATOR).ptx


def test_a_gemm_in_clusters_records_every_kind_of_operation_and_names_what_is_not_known(frontend, monkeypatch):
    monkeypatch.syspath_prepend(str(GEMM.parent))
    module = load(GEMM)
    frontend.enable(RECORDING)
    made = compile(module.matmul, *module.fakes(2048), 132, module.driver.CUstream(0))
    assert operations(made).keys() >= {"init", "wait", "expect", "copy", "arrive", "commit", "drain"}
    (problem,) = [one for one in metadata_of(made).problems if one.kind == "pipeline"]
    assert "several blocks" in problem.text
