"""Which region each instruction of a kernel that is recorded in machine code belongs to, by its text."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from kscope.analysis.samples.stalls import stalls
from kscope.capture import sample_section
from kscope.capture.samples import ROW, SampledFunction, Samples
from kscope.machine_code import code_map, instruction_regions

from .kernels import needs_tools

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")


@pytest.fixture(scope="module")
def softmax() -> SampledFunction:
    from gpu.sass_kernels import made

    found = made("softmax")
    [function] = code_map.with_instructions(
        [SampledFunction("softmax")], found.recorded.data, found.meta.regions, found.meta.layouts
    )
    return function


@needs_tools
@needs_triton
def test_instructions_belong_to_the_region_of_their_text(softmax: SampledFunction) -> None:
    assert len(softmax.ranged) == len(softmax.at) and not softmax.unresolved
    lines = {region.name: (region.first, region.last) for region in softmax.regions}
    right = wrong = 0
    for one, text in enumerate(softmax.text):
        stack, place = softmax.stack(one), [line for _, line in softmax.chain(one)]
        if "MUFU.EX2" in text:
            right += stack == ("reduce",)
            wrong += stack != ("reduce",)
        if stack == ("load",) and place and "LDG" in text:
            assert any(lines["load"][0] <= line <= lines["load"][1] for line in place)
    assert right > 4 and not wrong
    own = [one for one, text in enumerate(softmax.text) if "SR_CLOCKLO" in text]
    assert {softmax.stack(one) for one in own} == {()}  # kscope's own instructions are in no region
    assert {softmax.between_reads(one)[-1:] for one in own} > {("load",)}
    assert any(softmax.stack(one) != softmax.between_reads(one) for one in range(len(softmax.at)))


@needs_tools
@needs_triton
def test_rows_have_both_and_a_capture_keeps_both(softmax: SampledFunction) -> None:
    rows = np.zeros(len(softmax.at), ROW)
    rows["pc"], rows["count"] = softmax.at, 1
    samples = Samples(1024, ("wait",), (softmax,), rows)
    found = {row.name: row for row in stalls(samples).rows}
    for name in ("load", "reduce", "store"):
        by_text = sum(softmax.stack(one)[-1:] == (name,) for one in range(len(softmax.at)))
        by_reads = sum(softmax.between_reads(one)[-1:] == (name,) for one in range(len(softmax.at)))
        assert (found[name].samples, found[name].between_reads) == (by_text, by_reads)
    assert "between reads" in str(stalls(samples))
    assert sample_section.from_bytes(sample_section.to_bytes(samples)).functions == (softmax,)


def test_runs_are_written_once_and_damaged_ones_are_none() -> None:
    stacks = {0: None, 16: (), 32: ("a",), 48: ("a",), 64: ("a", "b"), 80: None}
    made = instruction_regions.with_segments(b"\0k\0", "k", stacks)
    assert made.startswith(b"\0k\0\0kscope segments {") and made.endswith(b"\0")
    assert made.count(b"[64,") == 1 and b"[48," not in made
