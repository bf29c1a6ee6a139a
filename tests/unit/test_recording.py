"""Options for which kernels are compiled, and their tag."""

from __future__ import annotations

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
from kscope.instrument.recording import Recording, emitting_files, log2_records
from kscope.instrument.selection.auto import Selection
from kscope.marks.strategies import AllThreads, TargetWarp

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
    monkeypatch.setattr(recording, "_digest", lambda own: "what an older one would be")
    assert Recording().tag() != ours


def test_another_version_of_a_frontend_has_another_tag(tmp_path: Path) -> None:
    def tag(name: str, code: str) -> str:
        (tmp_path / name).mkdir()
        (tmp_path / name / "placing.py").write_text(code)
        return Recording().tag(tmp_path / name)

    assert tag("one", "u32") == tag("same", "u32") != tag("other", "i32") != Recording().tag()


def test_the_tag_covers_exactly_the_code_imported_by_the_lowering() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in emitting_files() if path.suffix == ".py"
    ]
    seen, work = set[str](), ["kscope.lowering.plan", "kscope.lowering.register_budget", "kscope.language.regions"]
    while work:
        if (name := work.pop()) not in seen:
            seen.add(name)
            work += arrows(name)
    interfaces = {
        f"kscope.instrument.{name}"
        for name in ("backend", "frontend", "peaks", "peer_side", "registry", "sampled", "subset")
    }
    listed = {name.removesuffix(".__init__") for name in names}
    tools = {"kscope.machine_code.tools", *(f"kscope.util.{one}" for one in ("bounded_reading", "cuda_home", "memory"))}
    data = {f"kscope.capture.{one}" for one in ("blocks", "capture_data", "pools", "samples")}
    data |= {f"kscope.capture.pools.{one}" for one in ("batch_check", "pool_file", "pool_layout", "held_memory")}
    data |= {"kscope.errors", "kscope.native", "kscope.util.processes", "kscope.util.text"}
    assert seen - interfaces - tools - data <= listed
    packages = {name.removesuffix(".__init__") for name in names if name.endswith(".__init__")}
    by_frontends = {one for name in modules() if name.startswith("kscope_") for one in arrows(name)}
    assert listed - packages <= seen | by_frontends | {one for name in by_frontends & listed for one in arrows(name)}
    assert len(names) < 140


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
