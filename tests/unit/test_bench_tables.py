"""bench/tables.py turns results of bench/gpu.py into the tables of docs/design/performance.md."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH, DOCUMENT = ROOT / "bench", ROOT / "docs" / "design" / "performance.md"


@pytest.fixture(autouse=True)
def _bench_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


@pytest.fixture
def rows(_bench_on_path: None) -> ModuleType:
    return import_module("rows")


@pytest.fixture
def tables(_bench_on_path: None) -> ModuleType:
    return import_module("tables")


def report(rows: ModuleType, name: str, measured: list[Any], **more: Any) -> Any:
    machine = {"gpu": "H200", "driver": "580", "most": "1980 MHz"}
    about = {"command": ["python", "bench/gpu.py"], "started": "2026-11-21", "machine": machine, "versions": {}}
    return rows.Report(sections=(rows.Section(name, 1.0, "ok", "", tuple(measured)),), **{**about, **more})


def lines(tables: ModuleType, one: Any) -> list[str]:
    return str(tables.made(one.sections[0].name, one, one.sections[0])).splitlines()


def test_the_region_table_has_the_best_and_median_place_per_row(tables: ModuleType, rows: ModuleType) -> None:
    notes = {"sass": 7, "records": "global memory"}
    found = [rows.row("kscope", where, "cycles", [cycles], **notes) for where, cycles in
             (("A", 32.0), ("A, median place", 40.0), ("B", 24.0), ("B, median place", 25.0))]  # fmt: skip
    assert "| kscope | 32.0, 40.0 | 24.0, 25.0 | 7 | global memory |" in lines(tables, report(rows, "regions", found))


def test_the_kernel_table_has_time_cost_and_registers_per_row(tables: ModuleType, rows: ModuleType) -> None:
    found = [
        rows.row("matmul", "off", "us", [27.5, 27.7, 27.9]), rows.row("matmul", "kscope", "us", [28.0, 29.0, 30.0]),
        rows.row("matmul, added", "kscope", "%", [4.7]), rows.row("matmul, registers", "kscope", "registers", [118]),
    ]  # fmt: skip
    made = lines(tables, report(rows, "triton", found))
    assert "| matmul: off | 27.70 (27.50 to 27.90) |  | - | - | - |" in made
    assert "| matmul: kscope | 29.00 (28.00 to 30.00) | +4.7 % | 118 | - | - |" in made


def test_the_kernel_table_marks_where_kscope_costs_more_than_proton(tables: ModuleType, rows: ModuleType) -> None:
    added = {"kscope at rest": 1.0, "kscope Elected": 6.0, "clock reads alone": 2.0, "Proton default": 9.0}
    found = []
    for kernel, scheduled in (("softmax", 4.5), ("matmul", 6.5)):
        found.append(rows.row(kernel, "off", "us", [10.0]))
        for where, percent in {**added, "Proton shared sched_stores": scheduled}.items():
            found.append(rows.row(f"{kernel}, added", where, "%", [percent]))
    made = lines(tables, report(rows, "triton", found))
    assert "| softmax | 10.00 | +1.0 | +6.0 | +2.0 | +9.0 | -, - | +4.5, - | **loses by 1.5** |" in made
    assert "| matmul | 10.00 | +1.0 | +6.0 | +2.0 | +9.0 | -, - | +6.5, - |  |" in made


def test_the_language_table_has_one_row_per_language(tables: ModuleType, rows: ModuleType) -> None:
    found = [rows.row("tasks, cute", "plain", "us", [30.0]), rows.row("tasks, cute, added", "recording", "%", [5.25])]
    assert "| tasks, cute | 30.0 | - % | +5.2 % | - | - |" in lines(tables, report(rows, "everywhere", found))


def test_the_growth_table_counts_records_and_losses(tables: ModuleType, rows: ModuleType) -> None:
    found = [rows.row("at rest", "10 blocks", "us", [10.0]),
             rows.row("recording", "10 blocks", "us", [1500.0], records=40, lost=0)]  # fmt: skip
    assert "| 10 blocks | 0.01 | 1.5 | - | - | 40 | 0 |" in lines(tables, report(rows, "growth", found))


def test_bench_tables_name_doubts_and_their_source(tables: ModuleType, rows: ModuleType) -> None:
    found = [rows.row("Proton", "A", "cycles", [60.0, 61.0, 62.0], doubt="2 FFMA are not between the marks")]
    made = lines(tables, report(rows, "loops", found))
    assert "* Proton, A: 2 FFMA are not between the marks" in made
    assert made[-1].startswith("H200 (driver 580, SM clock up to 1980 MHz);") and "`python bench/gpu.py`" in made[-1]


TEXT = (
    "before\n<!-- bench: loops -->\nold\n<!-- bench end -->\nbetween\n<!-- bench: warps -->\nold\n<!-- bench end -->\n"
)


def test_only_measured_sections_are_updated_from_the_last_report(tables: ModuleType, rows: ModuleType) -> None:
    first, last = (report(rows, "loops", [rows.row("kscope", "A", "cycles", [n])]) for n in (32.0, 31.0))
    text = tables.renewed(TEXT, [first, last])
    assert "| kscope | 31.0 |" in text and "32.0" not in text
    assert text.endswith("between\n<!-- bench: warps -->\nold\n<!-- bench end -->\n") and text.startswith("before\n")
    assert tables.renewed(text, [last]) == text


def test_a_dry_run_updates_no_document(tables: ModuleType, rows: ModuleType) -> None:
    dry = report(rows, "loops", [rows.row("kscope", "A", "instructions", [10])], command=["gpu.py", "--dry-run"])
    with pytest.raises(ValueError, match="dry run"):
        tables.renewed(TEXT, [dry])


def test_a_table_of_an_unknown_name_is_refused(tables: ModuleType) -> None:
    with pytest.raises(ValueError, match="no table is called lops; there are regions"):
        tables.renewed(TEXT.replace("loops", "lops"), [])


def test_the_document_has_a_place_for_every_section(tables: ModuleType) -> None:
    named = [match[2] for match in tables.MARKED.finditer(DOCUMENT.read_text())]
    listed = subprocess.run([sys.executable, BENCH / "gpu.py", "--list"], capture_output=True, text=True, check=True)
    assert sorted(named) == sorted(tables.TABLES) == sorted(line.split()[0] for line in listed.stdout.splitlines())


def test_one_command_renews_the_document(rows: ModuleType, tmp_path: Path) -> None:
    one = report(rows, "nested", [rows.row("kscope", "1", "cycles", [24.0])])
    (tmp_path / "x.json").write_text(json.dumps(rows.to_dict(one)))
    (tmp_path / "x.md").write_text(DOCUMENT.read_text())
    command = [sys.executable, BENCH / "tables.py", tmp_path / "x.json", "--document", tmp_path / "x.md"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("x.md: renewed nested\n")
    assert "| kscope | 24.0 |" in (tmp_path / "x.md").read_text()


def test_every_file_of_results_is_named_where_its_numbers_are_used() -> None:
    """By a page, or by the benchmark that writes it."""
    pages = [*(ROOT / "docs").rglob("*.md"), *BENCH.rglob("*.py")]
    text = "\n".join(page.read_text() for page in pages)
    assert [file.name for file in sorted((BENCH / "results").iterdir()) if file.name not in text] == []
