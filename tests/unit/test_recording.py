"""Options for which kernels are compiled, and their tag."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from imports import ROOT, arrows, modules

from kscope.capture.layout import MAX_LOG2_RECORDS, MIN_LOG2_RECORDS
from kscope.errors import UsageError
from kscope.instrument import recording
from kscope.instrument.recording import Placement, Recording, emitting_files, log2_records
from kscope.instrument.selection.auto import Selection
from kscope.marks.strategies import AllThreads, TargetWarp

SCHEDULE = "kscope.lowering.schedule_placement"
OTHERS: dict[str, Any] = {
    "strategy": AllThreads(),
    "records": 64,
    "fill": "stop",
    "clock": "globaltimer",
    "placement": "schedule",
    "survive": "shm",
    "pending": 3,
    "selection": Selection(("wait",)),
}


@pytest.mark.parametrize("option", OTHERS)
def test_every_option_changes_the_tag(option: str) -> None:
    assert replace(Recording(), **{option: OTHERS[option]}).tag() != Recording().tag()


def test_another_version_of_kscope_has_another_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Recording().tag()
    monkeypatch.setattr(recording, "_digest", lambda placement, own: "what an older one would be")
    assert Recording().tag() != ours


def test_another_version_of_a_frontend_has_another_tag(tmp_path: Path) -> None:
    def tag(name: str, code: str) -> str:
        (tmp_path / name).mkdir()
        (tmp_path / name / "placing.py").write_text(code)
        return Recording().tag(tmp_path / name)

    assert tag("one", "u32") == tag("same", "u32") != tag("other", "i32") != Recording().tag()


INTERFACES = {
    f"kscope.instrument.{name}"
    for name in ("backend", "frontend", "peaks", "peer_side", "registry", "raw_samples", "subset")
}
TOOLS = {"kscope.machine_code.tools", *(f"kscope.util.{one}" for one in ("bounded_reading", "cuda_home", "memory"))}
DATA = {
    *(f"kscope.capture.{one}" for one in ("blocks", "capture_data", "pools", "samples")),
    *(f"kscope.capture.pools.{one}" for one in ("batch_check", "pool_file", "pool_layout", "held_memory")),
    *("kscope.errors", "kscope.native", "kscope.util.processes", "kscope.util.text"),
}
UNEMITTED = {
    *(f"kscope.instrument.{one}" for one in ("compile_warnings", "hooks", "launch_counts", "live_objects")),
    *(f"kscope.instrument.{one}" for one in ("loaded_code", "source_texts", "two_forms")),
    *("kscope", "kscope.language.cuda_header", "kscope.language.mistakes", "kscope.machine_code.fatbin"),
    *("kscope.session.bind", "kscope.session.states", "kscope.capture.capture_data", "kscope.util.import_hook"),
}
"""Names that frontends import for other purposes than emitting text: hooks, loaded modules, refusals, sessions."""


def _names(placement: Placement) -> set[str]:
    """The modules that a tag covers."""
    files = (path.relative_to(ROOT) for path in emitting_files(placement) if path.suffix == ".py")
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files}


def _used(frontends: Iterable[str]) -> set[str]:
    return {target for name in frontends for target in arrows(name) if target.split(".")[0] == "kscope"}


@pytest.mark.parametrize("placement", ["fence", "schedule"])
def test_the_tag_covers_exactly_the_code_imported_by_the_lowering(placement: Placement) -> None:
    roots = (*(f"lowering.{one}" for one in ("plan", "register_budget", "empty_regions")), "language.selected_scopes")
    seen, work = set[str](), [f"kscope.{one}" for one in roots]
    while work:
        if (name := work.pop()) not in seen and (placement == "schedule" or name != SCHEDULE):
            seen.add(name)
            work += arrows(name)
    listed = _names(placement)
    assert seen - INTERFACES - TOOLS - DATA <= listed
    packages = {name for name in listed if modules()[name].name == "__init__.py"}
    by_frontends = _used(name for name in modules() if name.startswith("kscope_"))
    assert listed - packages <= seen | by_frontends | {one for name in by_frontends & listed for one in arrows(name)}


def test_the_tag_covers_what_frontends_emit_with() -> None:
    compiling = [name for name in modules() if name.startswith(("kscope_triton", "kscope_numba", "kscope_cu"))]
    assert _used(compiling) - INTERFACES - DATA - UNEMITTED <= _names("fence")


def test_code_that_places_in_machine_code_is_only_in_the_tags_of_kernels_with_it() -> None:
    fence, schedule = _names("fence"), _names("schedule")
    assert {name for name in fence if name.startswith("kscope.sass")} == {"kscope.sass.cubin.attributes"}
    assert {name for name in modules() if name.startswith("kscope.sass.")} <= schedule
    assert fence < schedule and SCHEDULE in schedule - fence
    assert len(fence) < 80


def test_every_option_is_tested_above() -> None:
    assert set(OTHERS) == set(Recording.__dataclass_fields__)


def test_target_warps_change_the_tag() -> None:
    assert Recording(strategy=TargetWarp(0)).tag() != Recording(strategy=TargetWarp(1)).tag()


def test_equal_recordings_have_one_tag_in_every_process() -> None:
    assert Recording(records=64).tag() == Recording(records=64).tag()
    assert Recording().tag().isascii()
    assert len(Recording().tag()) == len("kscope-") + 16


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("strategy", "warp", "lane0-warp0"),
        ("records", 0, "'auto' or 1 to"),
        ("records", (1 << MAX_LOG2_RECORDS) + 1, "'auto' or 1 to"),
        ("records", 1.5, "'auto' or 1 to"),
        ("records", "many", "'auto' or 1 to"),
        ("fill", "grow", "'ring'"),
        ("clock", "cycle", "'globaltimer'"),
        ("pending", -1, "store in place"),
        ("pending", 65, "64"),
    ],
)
def test_invalid_options_name_the_typed_and_possible_values(option: str, value: object, expected: str) -> None:
    with pytest.raises(UsageError, match=expected) as failure:
        Recording(**{option: value})  # type: ignore[arg-type]  # the error is the test
    assert f"{option}={value!r}" in str(failure.value)


@given(st.integers(1, 1 << MAX_LOG2_RECORDS))
def test_a_slab_is_the_smallest_power_of_two_that_holds_the_records(records: int) -> None:
    log2 = log2_records(records)
    assert records <= 1 << log2
    assert log2 == MIN_LOG2_RECORDS or 1 << log2 - 1 < records
