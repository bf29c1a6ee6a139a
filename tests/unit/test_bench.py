"""The benchmarks without a GPU: rows, tables, files, and finding a loop's work in machine code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from nvcc import needs_nvcc

from kscope.errors import MissingError
from kscope.machine_code import tools

BENCH = Path(__file__).resolve().parents[2] / "bench"


def has(tool: str) -> bool:
    """True if the machine, or a package of this Python, has the tool."""
    try:
        return bool(tools.find(tool))
    except MissingError:
        return False


needs_sass = pytest.mark.skipif(not has("cuobjdump"), reason="needs cuobjdump")


@pytest.fixture(autouse=True)
def _bench_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


@pytest.fixture
def rows(_bench_on_path: None) -> ModuleType:
    return import_module("rows")


@pytest.fixture
def regions(_bench_on_path: None) -> ModuleType:
    return import_module("on_regions")


def report(rows: ModuleType) -> object:
    measured = (
        rows.row("kscope", "A", "cycles", [44.5, 44.1, 47.0], sass=11),
        rows.row("kscope", "B", "cycles", [27.0]),
        rows.row("Proton", "A", "cycles", [60.0, 61.0], doubt="2 of 64 FFMA are not between the marks"),
    )
    sections = (rows.Section("regions", 12.5, "ok", "", measured), rows.Section("cute", 1.0, "failed", "no cutlass"))
    return rows.Report(["python", "x"], "2026-01-01", {"gpu": "none"}, {"numpy": "2"}, sections)


def test_a_row_is_the_median_and_the_spread_of_its_runs(rows: ModuleType) -> None:
    one = rows.row("kscope", "A", "cycles", [47.0, 44.5, 44.1], sass=11)
    assert (one.value, one.least, one.most, one.runs, one.notes) == (44.5, 44.1, 47.0, 3, {"sass": 11})


def test_a_report_survives_its_file(rows: ModuleType) -> None:
    found = report(rows)
    assert rows.from_dict(json.loads(json.dumps(rows.to_dict(found)))) == found


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schema", 2), ("machine", []), ("sections", [{"name": "x"}]), ("sections", None), ("versions", "numpy"),
        ("sections", [{"name": "x", "seconds": 1, "state": "well", "message": "", "rows": []}]),
        ("sections", [{"name": "x", "seconds": 1, "state": "ok", "message": "", "rows": []}]),
    ],
)  # fmt: skip
def test_a_result_file_with_a_field_of_the_wrong_type_is_refused(rows: ModuleType, field: str, value: object) -> None:
    with pytest.raises(ValueError, match=r" is "):
        rows.from_dict({**json.loads(json.dumps(rows.to_dict(report(rows)))), field: value})


@pytest.mark.parametrize(
    "change", [{"value": float("nan")}, {"least": 50.0}, {"runs": 0}, {"what": 3}, {"more": 1}, {"value": "44"}]
)
def test_an_invalid_result_row_is_refused(rows: ModuleType, change: dict[str, object]) -> None:
    data = json.loads(json.dumps(rows.to_dict(report(rows))))
    data["sections"][0]["rows"][0].update(change)
    with pytest.raises(ValueError, match="a row"):
        rows.from_dict(data)


def test_the_table_shows_spreads_doubts_and_failures(rows: ModuleType) -> None:
    text = rows.table(report(rows))
    assert "| kscope | 44.5 (44.1 to 47) | 27 |" in text
    assert "| Proton | 60.5 (60 to 61) | - |" in text
    assert "! Proton, A: 2 of 64 FFMA are not between the marks" in text
    assert "failed: no cutlass" in text


def test_a_section_table_has_one_row_per_case(rows: ModuleType) -> None:
    many = tuple(rows.row("kscope", f"{n} warps", "cycles", [float(n)]) for n in range(9))
    text = rows.table(replace(report(rows), sections=(rows.Section("warps", 1.0, "ok", "", many),)))
    assert "| kscope | 8 warps | 8 | 8 | 8 | cycles |" in text


BODY = [
    "CS2R.32 R4, SR_CLOCKLO",
    "FFMA R0, R0, R1, R2",
    "FFMA R0, R0, R1, R2",
    "CS2R.32 R6, SR_CLOCKLO",
    "@P0 BRA 0x10",
]


def test_work_between_the_marks_is_accepted(regions: ModuleType) -> None:
    assert regions.doubt(BODY, {"FFMA": 2}) == ""


@pytest.mark.parametrize(
    ("body", "expected_text"),
    [
        ([BODY[1], BODY[0], *BODY[2:]], "1 of 2 FFMA are not between the marks"),
        ([BODY[0], BODY[1], BODY[3], BODY[2]], "1 of 2 FFMA are not between the marks"),
        (BODY[1:], "1 clock readings in its loop"),
        ([BODY[0], BODY[1], BODY[3]], "1 FFMA in its loop, expected 2"),
        ([], "0 clock readings in its loop"),
    ],
)
def test_work_that_left_its_marks_is_reported(regions: ModuleType, body: list[str], expected_text: str) -> None:
    assert regions.doubt(body, {"FFMA": 2}) == expected_text


def test_the_shortest_loop_with_the_work_is_measured(regions: ModuleType) -> None:
    code = [(0x10 * at, one) for at, one in enumerate(["NOP", *BODY, "EXIT", "SYNCS R1", "@P0 BRA 0x30"])]
    assert regions.loop_of(code, {"FFMA": 2}) == BODY
    assert regions.loop_of(code, {"LDG": 1}) == []


def test_loops_with_clock_reads_take_precedence_over_shorter_ones(regions: ModuleType) -> None:
    code = [(0x10 * at, one) for at, one in enumerate(["NOP", *BODY, "IADD3 R1, R1, 0x1", "@P0 BRA 0x60", "EXIT"])]
    assert regions.loop_of(code, {}) == BODY


@needs_nvcc
@needs_sass
@pytest.mark.parametrize(
    "name",
    [
        "kscope",
        pytest.param("kscope.cuh", marks=pytest.mark.slow),
        pytest.param("IKET, restated", marks=pytest.mark.slow),
    ],
)
def test_the_work_of_every_loop_lies_between_its_marks(regions: ModuleType, name: str, tmp_path: Path) -> None:
    (variant,) = (one for one in regions.VARIANTS if one.name == name)
    cubin = regions.build(variant, tmp_path, "sm_90a", tmp_path)
    found = regions.checked(cubin, [config for configs in regions.SECTIONS.values() for config in configs])
    assert {loop: doubts for loop, (_, doubts) in found.items() if doubts} == {}
    marked = {loop: int(loop.removeprefix("nested")) if loop.startswith("nested") else 1 for loop in found}
    assert all(5 < added < 40 * marked[loop] for loop, (added, _) in found.items())


def test_fixed_launch_cost_is_excluded_from_loop_rows(regions: ModuleType) -> None:
    requested: list[int] = []

    def taken(iterations: int) -> float:
        requested.append(iterations)
        return 2300 + 34 * iterations

    assert regions.per_iteration(taken, 2000, 3) == [34, 34, 34]
    assert requested == [2000] * 3 + [4000] * 3


def test_benchmark_places_with_equal_alignment_are_doubted(regions: ModuleType) -> None:
    assert regions.unmoved([0xEE0]) == []
    assert regions.unmoved([0xEE0 + 16 * place for place in range(8)]) == []
    assert regions.unmoved([0xEC0, 0xEC0, 0xED0, 0xEF0]) == []
    assert regions.unmoved([0xEE0] * 8) == ["8 places begin at 1 different addresses of a cache line"]


def test_measurements_with_lost_lanes_are_marked_as_doubtful(rows: ModuleType, regions: ModuleType) -> None:
    measured = [rows.row("kscope", "A", "cycles", [31.0]), rows.row("kscope", "B", "cycles", [9.0], doubt="no loop")]
    assert list(regions.doubted(measured, 0)) == measured
    doubts = [one.notes["doubt"] for one in regions.doubted(measured, 1056)]
    lost = "1,056 lanes found no room, and recorded nothing"
    assert doubts == [lost, f"no loop; {lost}"]


@needs_nvcc
@needs_sass
def test_work_moved_out_of_its_marks_is_detected(regions: ModuleType, tmp_path: Path) -> None:
    """The same loops, with the work after the end of its region, as a compiler might move it."""
    source = regions.SOURCE.read_text()
    loose = re.sub(r"( *x = work\.step\(x, i\);[^\n]*\n)( *AFTER\(kind\);[^\n]*\n)", r"\2\1", source)
    assert loose != source
    (tmp_path / "loose.cu").write_text(loose)
    cubin = import_module("driver").nvcc(tmp_path / "loose.cu", tmp_path / "loose.cubin", "sm_90a", "-DPEER=6")
    (config,) = (one for one in regions.SECTIONS["regions"] if one.where == "B")
    assert regions.checked(cubin, [config])["fmas"][1]


def test_every_section_can_be_listed_and_only_known_ones_run() -> None:
    listed = subprocess.run([sys.executable, BENCH / "gpu.py", "--list"], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in listed.stdout.splitlines()][:3] == ["regions", "triton", "placement"]
    wrong = subprocess.run(
        [sys.executable, BENCH / "gpu.py", "--sections", "nothing"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2


def test_a_section_that_takes_too_long_is_ended_and_reported(rows: ModuleType, tmp_path: Path) -> None:
    command = [sys.executable, BENCH / "gpu.py", "--dry-run", "--sections", "growth", "--timeout", "0"]
    done = subprocess.run([*command, "--json", tmp_path / "x.json"], capture_output=True, text=True, check=False)
    (section,) = rows.read(tmp_path / "x.json").sections
    assert done.returncode == 1
    assert (section.state, section.message) == ("failed", "it took more than 0 s")


def test_sections_that_come_too_late_are_left_out_and_reported(rows: ModuleType, tmp_path: Path) -> None:
    command = [sys.executable, BENCH / "gpu.py", "--dry-run", "--sections", "growth", "warps", "--budget", "1"]
    done = subprocess.run([*command, "--json", tmp_path / "x.json"], capture_output=True, text=True, check=False)
    found = rows.read(tmp_path / "x.json").sections
    assert done.returncode == 0
    assert [(one.state, one.message) for one in found] == [("skipped", "no time is left of 1 s")] * 2


@pytest.mark.slow
@needs_nvcc
def test_a_dry_run_writes_one_table_and_one_file(rows: ModuleType, tmp_path: Path) -> None:
    command = [sys.executable, BENCH / "gpu.py", "--dry-run", "--sections", "growth", "cuda"]
    done = subprocess.run([*command, "--json", tmp_path / "x.json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = rows.from_dict(json.loads((tmp_path / "x.json").read_text()))
    assert [(one.name, one.state) for one in found.sections] == [("growth", "ok"), ("cuda", "skipped")]
    assert "## growth" in done.stdout and found.versions["numpy"]


def test_the_bench_of_the_host_writes_one_table_and_one_file(rows: ModuleType, tmp_path: Path) -> None:
    command = [sys.executable, BENCH / "host.py", "--records", "2000", "--repeat", "3", "--reading"]
    done = subprocess.run(
        [*command, "--json", tmp_path / "x.json"], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = rows.read(tmp_path / "x.json")
    (section,) = found.sections
    summed = next(row for row in section.rows if row.what == "decode and summary")
    assert summed.runs == 3 and summed.least <= summed.value <= summed.most and summed.unit == "s"
    assert "| decode and summary " in done.stdout and found.machine["host"] and found.versions["numpy"]


def test_the_bench_of_launch_lines_prints_what_recording_adds() -> None:
    done = subprocess.run(
        [sys.executable, BENCH / "launch_lines.py", "--rounds", "3"], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\| 2 MiB \| \d+\.\d \| -?\d+\.\d\d \(", done.stdout, re.M), done.stdout


@pytest.fixture
def on_triton(_bench_on_path: None, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("triton")
    monkeypatch.syspath_prepend(str(BENCH.parent / "examples"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # unset, Triton 3.9 warns
    return import_module("on_triton")


def test_the_variants_of_a_triton_kernel_run_in_a_reproducible_random_order(on_triton: ModuleType) -> None:
    orders = [on_triton.order("softmax", repetition) for repetition in range(on_triton.REPETITIONS)]
    assert all(sorted(one) == sorted(on_triton.VARIANTS) for one in orders)
    assert len({tuple(one) for one in orders}) == len(orders) >= 12
    assert orders == [on_triton.order("softmax", repetition) for repetition in range(len(orders))]
    assert orders[0] != on_triton.order("splitk", 0) and orders[0] != on_triton.order("softmax", 0, seed=1)


@needs_sass
@pytest.mark.parametrize(
    "name",
    [
        "softmax",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("splitk", "backward", "grouped")),
    ],
)
def test_a_benchmark_kernel_compiles_in_every_variant(on_triton: ModuleType, name: str, tmp_path: Path) -> None:
    options = import_module("sections").Options(tmp_path, "sm_90", tmp_path, True, (name,))
    found = {one.where: one.value for one in on_triton.dry("triton", options) if one.what == f"{name}, instructions"}
    assert set(found) == set(on_triton.COMPILED) | set(import_module("protons").MODES)
    assert all(found["off"] < found[variant] for variant in found if variant != "off")


def test_every_round_of_the_placements_has_another_order(on_triton: ModuleType) -> None:
    """And what is added is that of one round: the first rounds do not count."""
    on_placement, seen = import_module("on_placement"), list[str]()

    def timed(name: str) -> float:
        seen.append(name)
        return float(len(seen))

    found = on_placement.rounds({name: name for name in ("off", "schedule", "fence")}, timed, 12, 0)
    orders = [tuple(seen[at : at + 3]) for at in range(0, len(seen), 3)]
    assert all(set(one) == set(found) for one in orders) and len(set(orders)) > 3
    assert all(len(values) == 12 - on_placement.DROPPED for values in found.values())
    assert on_placement.added([11.0, 12.0], [10.0, 10.0]) == pytest.approx([10, 20])


def test_the_kernels_that_can_be_selected_are_those_of_the_section(on_triton: ModuleType) -> None:
    assert tuple(on_triton.KERNELS) == import_module("sections").KERNELS
    wrong = [sys.executable, BENCH / "gpu.py", "--kernels", "softmax,nothing"]
    done = subprocess.run(wrong, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "unknown kernels nothing; known: matmul" in done.stderr


def test_commands_answer_the_truth_of_the_jobs_that_are_timed(tmp_path: Path, rows: ModuleType) -> None:
    ranks, many = import_module("ranks"), import_module("many")
    found = [*ranks.ranks(5, 1200, 1, tmp_path), *ranks.merge(3, 4, 60, ".pftrace", 1, tmp_path)]
    places = ["6,000 records"] * 3 + ["56 events, 60 records of 3 launches"] * 3
    assert [(one.where, one.unit) for one in found] == list(zip(places, ["s", "s", "GB"] * 2, strict=True))
    assert all(one.value > 0 for one in found)
    with pytest.raises(RuntimeError, match="exit code 2"):
        many.command("ranks", str(tmp_path / "none"))
