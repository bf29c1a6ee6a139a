"""`kscope run --dry-run` lists the marks and their costs, and leaves no files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from unannotated import CASES, FILE

from kscope.cli import main
from kscope.cli.running import dry_run
from kscope.instrument.selection.auto import Selection
from kscope.instrument.selection.catalog import KernelSites, Site

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import sys
import unannotated
for name in {names!r}:
    unannotated.compiled(name, 90)
print("the script speaks", sys.argv[1:])
{more}
"""
LOAD = CASES["softmax"].line("the load")
LOOP = CASES["softmax"].line("the loop")


@pytest.fixture
def dry(tmp_path):
    """Run kscope in a new process in a folder with a script; temporary files go to another one."""
    folder, temporary = tmp_path / "work", tmp_path / "temporary"
    folder.mkdir()
    temporary.mkdir()

    def run(*options, names=("softmax",), more="", arguments=()):
        (folder / "script.py").write_text(SCRIPT.format(names=names, more=more))
        paths = os.pathsep.join(str(ROOT / part) for part in (".", "frontends", "runtime", "tests"))
        done = subprocess.run(
            [sys.executable, "-m", "kscope", "run", *options, "script.py", *arguments],
            env={**os.environ, "PYTHONPATH": paths, "TMPDIR": str(temporary), "COLUMNS": "160"},
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert [path.name for path in folder.iterdir()] == ["script.py"]
        assert list(temporary.iterdir()) == []
        return done

    return run


def rows(text, kernel):
    """The table of a kernel: region -> (where, records, instructions); and its head and foot."""
    (part,) = (part for part in text.split("\n\n") if f"{kernel} (triton" in part)
    lines = part.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(f"{kernel} (triton"))
    cells = [re.split(r" {2,}", line.strip()) for line in lines[at + 2 : -1]]
    return lines[at], {(one[0], one[2]): one[3] for one in cells}, lines[-1]


def test_a_dry_run_lists_kernels_places_and_costs_every_time(dry):
    both = ("softmax", "specialized")
    first, second = dry("--auto", "--dry-run", names=both), dry("--auto", "--dry-run")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert first.stdout.split("\n\n")[0] == second.stdout.strip()  # kernels in the cache are listed as well
    head, found, foot = rows(first.stdout, "softmax")
    assert head == "softmax (triton, sm_90a): 6 places, 5 regions"
    assert (
        found[f"wait {FILE}:{LOAD}", f"1 per iteration of {FILE}:{LOOP}"] == "3"
    )  # the wait, its barrier, and the fence before the clock
    assert re.fullmatch(r"\d+ to \d+, which branch", found[f"load {FILE}:{LOAD}", "1 per launch"])
    assert re.fullmatch(r"  with all marks: \d+ -> \d+ registers, \d+ -> \d+ instructions", foot)
    _, found, _ = rows(first.stdout, "specialized")
    groups = {region.partition("[")[2] for region, _ in found}
    assert groups == {"default]", "partition0]", "partition1]"}


def test_a_dry_run_compares_the_code_that_is_loaded_with_placement_schedule(dry):
    store = "--dry-run", "--mark", f"store={FILE}:{CASES['softmax'].line('the store')}"
    fence, schedule = dry(*store), dry(*store, "--placement", "schedule")
    assert "placement='fence'" not in schedule.stderr
    (head, found, foot), (other_head, other_found, other_foot) = (
        rows(one.stdout, "softmax") for one in (schedule, fence)
    )
    assert (head, found.keys()) == (other_head, other_found.keys())
    assert foot != other_foot


def test_lines_and_kernels_are_selected_and_what_matches_none_is_named(dry):
    region = f"max={FILE}:{CASES['softmax'].line('the maximum')}"
    options = "--dry-run", "--mark", region, "--mark", "no=other.py:7", "--kernel", "soft*"
    done = dry(*options, names=("softmax", "leaving"), arguments=("--auto",))
    assert done.returncode == 0, done.stderr
    assert "the script speaks ['--auto']" in done.stdout
    _, found, _ = rows(done.stdout, "softmax")
    assert list(found) == [("max", f"1 per iteration of {FILE}:{LOOP}")]
    assert "leaving (triton, sm_90a): nothing to mark" in done.stdout
    assert "region no=other.py:7: no kernel has an operation at these lines" in done.stdout


def test_a_dry_run_of_a_failing_script_keeps_its_error_and_lists_all_kinds(dry):
    done = dry("--dry-run", more="raise ValueError('no')")
    assert done.returncode == 1
    assert "ValueError: no" in done.stderr
    _, found, _ = rows(done.stdout, "softmax")
    assert {region.partition(" ")[0] for region, _ in found} == {"async_wait", "load", "store", "loop", "iteration"}


def test_kernel_names_are_never_truncated(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    name = "triton_tem_fused__to_copy_flex_attention_ones_permute_select_slice_sort_sum_transpose_view_zeros_3"
    text = dry_run.show(
        [KernelSites("triton", name, "sm_90a", (Site("dot a.py:1", "dot", "a.py:1"),))], Selection(("dot",))
    )
    assert text.splitlines()[0] == f"{name} (triton, sm_90a): 1 place, 1 region"


def test_scripts_without_kernels_are_reported(tmp_path, capsys):
    (tmp_path / "empty.py").write_text("")
    assert main(["run", "--dry-run", str(tmp_path / "empty.py")]) == 0
    assert "no kernel is listed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--dry-run", "-o", "x.kscope"), "a dry run records nothing"),
        (("--kinds", "wiat"), "'wiat' is not a kind of operation; expected wait, async_wait"),
        (("--mark", "load=a.py"), "expected NAME=FILE:FIRST-LAST"),
    ],
)
def test_invalid_dry_run_options_are_refused_before_the_script_starts(tmp_path, capsys, options, reason):
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit('the script ran')")
    assert main(["run", *options, str(script)]) == 2
    assert reason in capsys.readouterr().err


ANNOTATED = """
import sys
sys.path[:0] = [{root!r}, {examples!r}]
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton_matmul import matmul
kinds = dict.fromkeys("abc", "*fp16") | dict.fromkeys("MNK", "i32")
kinds = {{name: kinds.get(name, "constexpr") for name in matmul.arg_names}}
divisible = {{(at,): [["tt.divisibility", 16]] for at in range(6)}}
made = ASTSource(matmul, kinds, dict(BM=128, BN=128, BK=64), divisible)
triton.compile(made, target=GPUTarget("cuda", 90, 32), options=dict(num_warps=8, num_stages=3))
"""


def test_loads_that_the_pipeline_issues_elsewhere_are_named_with_their_line(dry):
    more = ANNOTATED.format(root=str(ROOT / "tests"), examples=str(ROOT / "examples"))
    done = dry("--dry-run", "--kinds", "barrier", names=(), more=more)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    where = r"0x\w+ LDGSTS\S+ .*?triton_matmul\.py:35"
    assert re.search(rf"! region load: 9\d% of its lines' working instructions are outside of it: {where}", text)
    assert not re.search("! region (mainloop|dot|epilogue)", text), done.stdout
