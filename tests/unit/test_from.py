"""docs/from: each table row runs, names an existing test or macro, or explains why it is not offered."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import fromtables
import pytest
from fromtables import PAGES, Row, rows

import kscope
from kscope import cli
from kscope.errors import KscopeError
from kscope.instrument import registry
from kscope.instrument.registry import Entry

ROWS = [row for page in PAGES for row in rows(page)]
THEIRS = {
    "cutracer": (
        "kernel hash", "--chrome-trace", "--cutracer-trace", "--cutracer-log", "--kernel-hash", "--output",
        "total_instruction_count", "KERNEL_FILTERS", "CUTRACER_ANALYSIS", "CUDA_INJECTION64_PATH",
        "TRITON_KERNEL_OVERRIDE", "proton.record", "mean", "golden", "chrome-only", "histogram-only", "launch id",
        "warp mismatch", "fused attention", "environment variables",
    ),
    "proton": (
        "dump_ttgir.sh", "insert_proton_records", "TRITON_KERNEL_OVERRIDE", "TRITON_OVERRIDE_DIR",
        "TRITON_ALWAYS_COMPILE", "--op-measure", "--warp-sampling", "--warp-ids", "--increase-accuracy", "clock32",
        "time_shift", "sched_stores", "sched_barriers", "buffer_type", "buffer_size", "sampling_strategy",
        "sampling_options", "circular buffer", "Finalize Time", ".chrome_trace", ".hatchet", "normalized_cycles",
        "1 GHz", "Gluon", "call stack",
    ),
    "transformer_nuggets": (
        "TagTable", "allocate_profile_buffer", "decode_events", "events_to_perfetto", "profile_session",
        "profile_region", "lane0_warp0_start", "warp_start", "elected_start", "profile_start", "read_globaltimer",
        "max_events", "overflow", "tid", "scoping", "region_start", "record", "compact", "post_process_events",
        "group_by_unit", "group_by_tag", "filter_by_tag", "compose", "rename", "TNUGGETS_ENABLE_PROFILING",
        "annotation boxes",
    ),
    "sm-profiler": (
        "sm_profiler_create_buffer", "sm_profiler_register_event", "sm_profiler_init_buffer",
        "sm_profiler_get_device_ptr", "sm_profiler_export_to_file", "sm_profiler_destroy_buffer",
        "sm_profiler_event_start", "sm_profiler_event_end", "sm_profiler_event_instant", "sm_profiler_get_lane_id",
        "sm_profiler_get_warp_id", "sm_profiler_get_block_idx", "sm_profiler_get_smid", "sm_profiler_get_timestamp",
        "SmProfiler(", "register_event", "get_buffer", "init_buffer", "print_stats", "profiler_init", "predicate",
        "enabled", "num_groups", "SM is a Process", "0-31", "2D/3D",
    ),
    "triton-distributed": (
        "Profiler.create", "group_id", "num_groups", "is_leader", "ENABLE_PROFILING", "record(is_start", "task_type",
        "ProfilerBuffer", "max_num_profile_slots", "trace_file", "task_names", "set_export_trace_on",
        "set_export_trace_off", "alloc_profiler_buffer", "reset_profiler_buffer", "export_to_perfetto_trace",
        "tg4perfetto", "get_sm_activity",
    ),
    "flashinfer": (
        "PROFILER_INIT", "PROFILER_EVENT_START", "PROFILER_EVENT_END", "PROFILER_EVENT_INSTANT", "profiler_buffer",
        "CudaProfiler", "finalize", "group_names", "warpscope", "Mirage", "write_thread_predicate", "SM grouping",
        "4.29 s",
    ),
    "iket": (
        "range_push", "range_start", "sentinel_token", "mark", "payload", "edges", "WarpLifeTime", "GPC", "graph",
        "--enabled-cluster", "pftrace", "sizing", "32-char", "run-iket", "DEFER_TRACE_READBACK",
    ),
    "mosaic": ("record", "bounds_check", "dump_path", "profiler.measure", "warpgroup", "overhead", "JSON", "smid"),
}  # fmt: skip
"""Features in each system's documentation, in its terms."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the files that the rows read. Only the simulator counts as imported."""
    with pytest.MonkeyPatch.context() as patch:
        _alone(patch)
        made = tmp_path_factory.mktemp("from")
        fromtables.files(made)
        yield made


def _alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(registry, "TABLE", {"sim": Entry("kscope_sim", "kscope_sim:SimFrontend", "")})
    patch.setattr("kscope.instrument.registry._announced", lambda path: {})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.page}:{row.line}")
def test_every_comparison_row_is_correct(row: Row, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _alone(monkeypatch)
    monkeypatch.chdir(folder)
    try:
        fromtables.check(row)
    finally:
        kscope.disable()


@pytest.mark.parametrize("page", THEIRS)
def test_migration_tables_cover_the_other_profilers_documentation(page: str) -> None:
    text = " ".join(row.theirs for row in ROWS if row.page == page)
    assert [word for word in THEIRS[page] if word not in text] == []


def test_every_page_has_a_table_and_is_linked() -> None:
    index = next(page for page in PAGES if page.stem == "README").read_text()
    pages = {page.stem for page in PAGES} - {"README"}
    assert pages == set(THEIRS) == {row.page for row in ROWS}
    assert all(f"({page}.md)" in index for page in pages)


def test_links_lead_to_files() -> None:
    for page in PAGES:
        prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.S)
        targets = [target for target in re.findall(r"\]\(([^)#]+)\)", prose) if "://" not in target]
        assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize(
    "here",
    [
        "`kscope.profil(warps=[0])`", '`with kscope.region("a", color=3): ...`', "`trace.no_such_thing`",
        "`kscope fly`",
        "`kscope summary run.kscope --no-such-flag`", "`kscope summary nothing.kscope`", "`KSCOPE_REGIO`",
        "`tests/unit/test_trace.py::test_nothing_of_that_name`", "`trace.filter(region='nothing')`", "words alone",
        "not offered", "`warp = 3 +`", "`if kscope.smid() < 0: kscope.instant('never')`",
    ],
)  # fmt: skip
def test_wrong_comparison_rows_fail_the_check(here: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _alone(monkeypatch)
    monkeypatch.chdir(folder)
    failures = (AssertionError, AttributeError, TypeError, SystemExit, KscopeError, SyntaxError, FileNotFoundError)
    with pytest.raises(failures):
        fromtables.check(Row("made up", 1, "theirs", here, "why"))
    kscope.disable()


def test_markdown_tables_are_parsed(tmp_path: Path) -> None:
    page = tmp_path / "x.md"
    page.write_text(
        "| a | kscope | note |\n|---|---|:-:|\n| `x` | `a \\| b`, `c` | d |\n\n| other | table |\n|--|--|\n| 1 | 2 |\n"
    )
    (row,) = rows(page)
    assert (row.theirs, row.code, row.note, row.line) == ("`x`", ["a | b", "c"], "d", 3)


def test_the_lines_of_kscope_can_be_parsed() -> None:
    shown = [block for page in PAGES for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.S)]
    lines = [line for block in shown for line in block.splitlines() if line.startswith("kscope ")]
    assert len(lines) >= 4
    parser = cli.parser()
    for line in lines:
        assert callable(parser.parse_args(shlex.split(line)[1:]).command)
