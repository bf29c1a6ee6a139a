"""The seeded kernels, compiled for real: the machine code alone says that the work of a region is elsewhere."""

from __future__ import annotations

import pytest
from seeded_regions import DRIFTED, EMPTIED

from kscope.capture.samples import SampledFunction
from kscope.instrument.recording import Recording
from kscope.machine_code import code_map, tools
from kscope.machine_code.moved_instructions import PlacedRegion, placed_regions


def regions(frontend, gpu, source: str, name: str) -> dict[str, PlacedRegion]:
    frontend.enable(Recording())
    cubin = gpu.compile(source, options=("-lineinfo",))
    (meta,) = tools.modules_in(cubin)
    (code,) = code_map.with_instructions([SampledFunction(name)], cubin, meta.regions, meta.layouts)
    return {one.region: one for one in placed_regions(code)}


def test_arithmetic_that_drifted_is_named_in_both_regions(frontend, gpu):
    found = regions(frontend, gpu, DRIFTED, "drifted")
    assert (found["products"].verdict, found["rest"].verdict) == ("moved", "moved")
    assert found["products"].missing == found["rest"].foreign
    assert sum(" FFMA" in one for one in found["rest"].foreign) >= 60


def test_a_region_that_the_compiler_emptied_is_reported_when_it_is_compiled_too(frontend, gpu):
    with pytest.warns(UserWarning, match=r"region 'products' \(kern.cu:\d+\) has no instruction between its clock"):
        found = regions(frontend, gpu, EMPTIED, "emptied")
    assert (found["products"].verdict, found["load"].verdict) == ("empty", "pure")
