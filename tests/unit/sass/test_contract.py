"""The contract's kernels in every language: recorded in machine code, or refused with a reason.

On a device: tests/gpu/test_placement_languages.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract import joined
from contract.programs import PROGRAMS, Program

from kscope.errors import UnsupportedError
from kscope.instrument import registry
from kscope.lowering import schedule_placement

from .kernels import needs_tools
from .loaded import meta, stores

pytestmark = needs_tools
LANGUAGES = ("triton", "gluon", "cupy", "numba", "cute")
OFTEN = ("straight_line", "partial_warps", "values", "pinned")
"""Programs of every run; of the rest, those that are recorded in every language are variations, others slow."""
EVERYWHERE = ("straight_line", "nested", "names", "grid_3d", "constants", "words")
"""Programs that are recorded in machine code in every language, but for:"""
WIDE = {("numba", "grid_3d")}
"""The number of a block is an int64, whose records have no form there."""
NOWHERE = ("stop", "globaltimer", "strategies", "first_lane", "any_lane", "points", "itself", "pinned", "wide")
"""Programs with options, strategies or marks that are not supported there."""
MARKED = [program for program in PROGRAMS if program.state != "plain" and not program.recording.survive]


def each() -> Iterator[Any]:
    """Every language with every program."""
    for name in LANGUAGES:
        for program in MARKED:
            rare = pytest.mark.variation if program.name in EVERYWHERE else pytest.mark.slow
            marks = () if program.name in OFTEN else (rare,)
            yield pytest.param(name, program, id=f"{name}-{program.name}", marks=marks)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Kernel -> why it was refused, empty for one that is recorded. The checkers have accepted these."""
    for cache in ("TRITON_CACHE_DIR", "CUTE_DSL_CACHE_DIR"):
        monkeypatch.setenv(cache, str(tmp_path))
    found: dict[str, str] = {}
    original = schedule_placement.record_machine_code

    def recorded(lowered: Any, *rest: Any) -> Any:
        (kernel,) = (one.name for one in lowered.meta.kernels)
        found[kernel] = "it raised another error"
        try:
            made = original(lowered, *rest)
        except UnsupportedError as error:
            found[kernel] = str(error)
            raise
        found[kernel] = ""
        assert made.cubin is not None and meta(made.cubin) == made.meta
        more = sum(len(about.records) - 1 for about in made.meta.layouts)  # a row is one store of several records
        assert stores(made.cubin) + more >= len({region.name for region in made.meta.regions})
        return made

    monkeypatch.setattr(schedule_placement, "record_machine_code", recorded)
    return found


@pytest.mark.parametrize(("name", "program"), list(each()))
def test_a_kernel_is_recorded_there_or_refused_with_a_reason(
    name: str, program: Program, tried: dict[str, str]
) -> None:
    module = joined.load(name)
    if reason := joined.absent(module, program):
        pytest.skip(reason)
    program = replace(program, recording=replace(program.recording, placement="schedule"))
    frontend = registry.frontend(module.FRONTEND)
    frontend.enable(program.recording)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(module, "assemble", module.compile)(program, 90)
    finally:
        frontend.disable()
    for kernel, why in tried.items():
        print(f"{name} {program.name} {kernel}: {why or 'recorded'}")
    assert tried
    if program.name in EVERYWHERE and (name, program.name) not in WIDE:
        assert set(tried.values()) == {""}
    if program.name in NOWHERE:
        assert all(tried.values())
