"""`kscope trust perturb SCRIPT`: a script without and with marks, with and without a stand-in for Nsight Compute."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscope import cli
from kscope.analysis.trust import nsight
from kscope.cli.trust import perturb
from kscope.errors import MissingError
from kscope.machine_code import disassembly, tools

HEAD = '"ID","Kernel Name","Block Size","Grid Size","Metric Name","Metric Unit","Metric Value"'

SCRIPT = """
    import os, sys
    from pathlib import Path
    from kscope.session import states
    from kscope.lowering import plan
    from kscope.instrument.selection import catalog
    from kscope.instrument.selection.catalog import KernelSites
    PTX = '''.version 8.0
    .target sm_90
    .address_size 64
    .visible .entry scale(.param .u64 p)
    {
        .reg .b64 %a;
        .reg .f32 %x;
        ld.param.u64 %a, [p];
        //kscope enter load - - with
        ld.global.f32 %x, [%a];
        //kscope exit load - - with
        st.global.f32 [%a+128], %x;
        ret;
    }
    '''
    def build(folder):
        import subprocess
        marked = plan.lower(PTX, states.recording(), frontend="test").text
        paths = folder / "plain.cubin", folder / "marked.cubin"
        for text, path in zip((plan.without_marks(PTX), marked), paths):
            path.with_suffix(".ptx").write_text(text)
            subprocess.run([os.environ["PTXAS"], "-arch=sm_90", path.with_suffix(".ptx"), "-o", path], check=True)
        return paths
    print("the script was here", *sys.argv[1:])
    catalog.add(KernelSites("test", "scale", "sm_90", (), build))
    catalog.add(KernelSites("test", "plain", "sm_90", (), lambda folder: None))
    sys.exit(int(os.environ.get("CODE", "0")))
"""

TRITON = """
    import triton, triton.language as tl, kscope
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    @triton.jit
    def double(x, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        with kscope.region("double"):
            tl.store(x + at, tl.load(x + at) * 2)
    triton.compile(ASTSource(double, {"x": "*fp32"}, {"BLOCK": 1024}), target=GPUTarget("cuda", 90, 32))
"""

SIMULATED = """
    import kscope, kscope_sim

    def work(warp):
        with kscope.region("work"):
            warp.work(100)

    kscope_sim.launch(work)
"""
NCU = """#!{python}
import subprocess, sys
at = sys.argv.index("--log-file") + 1
program = sys.argv[sys.argv.index("--metrics") + 2:]
marked = "kscope" in program
code = subprocess.run(program).returncode
row = '"{{}}","scale","(64, 2, 1)","({{}}, 1, 1)","{{}}","{{}}","{{}}"'
metrics = {{
    "gpu__time_duration.sum": ("ns", ["2,000", "2,100", "9,000"][0 if not marked else 1]),
    "launch__registers_per_thread": ("register/thread", 8),
    "launch__shared_mem_per_block_static": ("byte/block", 0),
    "launch__shared_mem_per_block_dynamic": ("byte/block", "65,536"),
    "smsp__inst_executed.sum": ("inst", "4,200" if marked else "1,400"),
}}
lines = ['==PROF== Connected to process 1', '{head}']
blocks = 132 if marked else {off}
for name, (unit, value) in metrics.items():
    lines += [row.format(n, blocks, name, unit, value) for n in (0, 1)]
    lines += [row.format(2, 1, name, unit, 1)]
message = {message!r} if marked or not {late} else []
open(sys.argv[at], "w").write("\\n".join(message or lines))
sys.exit(code or ({code} if message else 0))
"""


@pytest.fixture
def job(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script, where nothing called ncu is; run as on a user's command line."""
    try:
        for tool in ("ptxas", "nvdisasm", "cuobjdump"):
            monkeypatch.setenv(tool.upper(), tools.find(tool))
    except MissingError as error:
        pytest.skip(str(error))
    script = tmp_path / "job.py"
    script.write_text(dedent(SCRIPT))
    folders = [os.environ.get("PYTHONPATH", ""), str(root), *(str(root / name) for name in ("frontends", "runtime"))]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))
    monkeypatch.setattr(nsight, "_FOLDERS", (str(tmp_path / "none"), str(tmp_path / "none")))
    path = [folder for folder in os.environ["PATH"].split(os.pathsep) if not Path(folder, "ncu").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), *path]))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    return script


def ncu(folder: Path, message: list[str] | None = None, code: int = 0, off: int = 132, late: bool = False) -> None:
    """Put a stand-in for Nsight Compute on the path. off: blocks that it reports without marks; late: it fails only
    with marks."""
    (folder / "bin").mkdir()
    tool = folder / "bin" / "ncu"
    tool.write_text(NCU.format(python=sys.executable, head=HEAD, message=message or [], code=code, off=off, late=late))
    tool.chmod(0o755)


def test_one_command_compares_a_scripts_kernels(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ncu(job.parent)
    assert cli.main(["trust", "perturb", "--records", "32", str(job), "--its", "own"]) == 0
    captured = capfd.readouterr()
    assert captured.err.count("the script was here --its own") == 2
    assert captured.out.startswith("scale, sm_90, blocks of 128 threads\n")
    rows = {name: rest for name, *rest in (re.split(r"\s{2,}", line.strip()) for line in captured.out.splitlines())}
    assert rows["kernel time"] == ["2 us", "2.1 us", "+5.0%"]
    assert rows["executed in a launch"] == ["1,400", "4,200", "+2,800"]
    assert rows["dynamic shared, bytes"] == ["65,536", "65,536"]
    assert int(rows["instructions"][-1]) > 50
    assert rows["warps that fit on an SM"] == ["12", "12"]
    assert "kernel plain: its build without marks is unknown" in captured.out


def test_builds_and_capture_are_kept_where_they_are_requested(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept = job.parent / "kept"
    command = ["trust", "perturb", "--keep", str(kept), str(job)]
    assert cli.main(command) == 0
    assert {path.name for path in kept.iterdir()} >= {"run.kscope", "0"}
    assert disassembly.functions(tools.disassembly(kept / "0" / "marked.cubin"))[0].name == "scale"
    assert cli.main(command) == 2
    assert "that folder is not empty" in capfd.readouterr().err


def test_a_script_without_kernels_to_compare_is_reported_by_the_exit_code(
    job: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job.write_text("print('nothing to see')")
    assert cli.main(["trust", "perturb", str(job)]) == perturb.NOTHING
    captured = capfd.readouterr()
    assert captured.out.startswith("no kernel was compared") and "! no kernel with marks was compiled" in captured.out
    assert "nothing was recorded" not in captured.out
    assert "nothing to see" in captured.err


def test_a_kernel_of_the_simulator_has_no_machine_code_to_compare(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job.write_text(dedent(SIMULATED))
    assert cli.main(["trust", "perturb", str(job)]) == perturb.NOTHING
    out = capfd.readouterr().out
    assert "! work ran on the simulator, which has no machine code to compare" in out
    assert "was compiled" not in out and "name two cubins" not in out


def test_numbers_for_a_program_are_all_of_stdout(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ncu(job.parent)
    assert cli.main(["trust", "perturb", "--json", str(job)]) == 0
    [kernel] = json.loads(capfd.readouterr().out)["kernels"]
    assert (kernel["off_ns"], kernel["on_ns"], kernel["slowdown"]) == (2000.0, 2100.0, pytest.approx(0.05))
    assert kernel["on"]["registers"] >= kernel["off"]["registers"] > 0
    assert (kernel["threads"], kernel["dynamic_shared"]) == (128, 65536)


def test_no_kernel_time_is_compared_across_launch_shapes(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ncu(job.parent, off=66)
    assert cli.main(["trust", "perturb", str(job)]) == 0
    out = capfd.readouterr().out
    assert "kernel time" not in out
    assert "scale: without marks it had no launch of this shape" in out


def test_without_ncu_only_the_code_is_compared(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trust", "perturb", "--threads", "64", str(job)]) == 0
    out = capfd.readouterr().out
    assert "scale, sm_90, blocks of 64 threads" in out
    assert "kernel time" not in out.split("!")[0]
    assert "! ncu (Nsight Compute) is not installed" in out


def test_a_triton_kernel_is_compared_as_triton_builds_it(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton")
    job.write_text(dedent(TRITON))
    assert cli.main(["trust", "perturb", "--json", "--threads", "128", str(job)]) == 0
    captured = capfd.readouterr()
    found = json.loads(captured.out)
    [kernel] = found["kernels"]
    assert kernel["on"]["kernel"] == "double"
    assert "no kernel language" not in captured.err  # Triton was imported, wherever it may run
    assert kernel["on"]["instructions"] > kernel["off"]["instructions"] > 10
    assert any("nothing was recorded" in problem for problem in found["problems"])


@pytest.mark.parametrize("late", [False, True])
def test_without_ncu_permission_the_rest_is_reported(late: bool, job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    message = ["==PROF== Connected", "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"]
    ncu(job.parent, message, code=1, late=late)
    assert cli.main(["trust", "perturb", str(job)]) == 0
    out = capfd.readouterr().out
    assert "scale, sm_90" in out
    assert "ncu measured nothing: ERR_NVGPUCTRPERM" in out


@pytest.mark.parametrize("installed", [True, False])
def test_a_script_that_fails_fails_the_command(
    installed: bool, job: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed:
        ncu(job.parent)
    monkeypatch.setenv("CODE", "3")
    monkeypatch.setattr(tempfile, "tempdir", str(job.parent))
    assert cli.main(["trust", "perturb", str(job)]) == 2
    printed = capfd.readouterr().err
    assert "exit code 3" in printed
    for path in re.findall(r"/\S+\.kscope", printed):
        assert Path(path).exists(), path
    assert installed or ".failed.kscope" in printed


def test_flags_of_the_recording_reach_the_run_with_marks() -> None:
    options = cli.parser().parse_args(
        ["trust", "perturb", "--records", "64", "--fill", "stop", "--mark", "a=k.py:1-2", "--mark", "b=k.py:4",
         "--kernel", "attn_*", "job.py", "--records", "8"]
    )  # fmt: skip
    assert perturb._typed(options) == ["--records=64", "--fill=stop", "--mark=a=k.py:1-2", "--mark=b=k.py:4"]
    assert options.args == ["--records", "8"]


def test_a_missing_script_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trust", "perturb", "nowhere.py"]) == 2
    assert "nowhere.py: no such file" in capsys.readouterr().err


def test_flags_without_a_script_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trust", "perturb", "--times", "1us,2us", "job.py"]) == 2
    assert "apply to cubins, not scripts" in capsys.readouterr().err


def test_two_cubins_may_be_followed_by_flags(capsys: pytest.CaptureFixture[str], root: Path, tmp_path: Path) -> None:
    data = root / "tests" / "data" / "sass"
    text = (data / "loop_usage.txt").read_text() + (data / "loop_nvdisasm.txt").read_text()
    for name in ("off.txt", "on.txt"):
        (tmp_path / name).write_text(text)
    pair = [str(tmp_path / "off.txt"), str(tmp_path / "on.txt")]
    assert cli.main(["trust", "perturb", *pair, "--threads", "256", "--times", "10us,11us"]) == 0
    out = capsys.readouterr().out
    assert "blocks of 256 threads" in out
    assert "+10.0%" in out


def table(*rows: str) -> list[nsight.Launch]:
    return nsight.read("\n".join([HEAD, *rows]))


def test_ncu_tables_are_read_in_any_unit_with_missing_values_as_unknown() -> None:
    [first, second] = table(
        '"0","k","(32, 4, 2)","(7, 1, 1)","gpu__time_duration.sum","usecond","1,234.5"',
        '"0","k","(32, 4, 2)","(7, 1, 1)","launch__shared_mem_per_block_dynamic","Kbyte/block","16.384"',
        '"1","k","(32, 1, 1)","(7, 1, 1)","gpu__time_duration.sum","ms","2"',
        '"1","k","(32, 1, 1)","(7, 1, 1)","smsp__inst_executed.sum","inst","n/a"',
    )
    assert (first.ns, first.dynamic_shared, first.threads, first.grid) == (1_234_500.0, 16384, 256, (7, 1, 1))
    assert (second.ns, second.executed, second.registers) == (2e6, None, None)


def test_the_launch_shape_with_the_most_time_is_compared() -> None:
    rows = [
        f'"{n}","k","(32, 1, 1)","({grid}, 1, 1)","gpu__time_duration.sum","ns","{ns}"'
        for n, (grid, ns) in enumerate([(1, 50), (8, 30), (8, 30), (1, 5)])
    ]
    assert [one.grid[0] for one in nsight.longest(table(*rows))] == [8, 8]
    assert nsight.longest([]) == []


@given(st.text(max_size=200), st.integers(0, 400))
def test_arbitrary_ncu_output_parses_without_errors(text: str, cut: int) -> None:
    whole = f'{HEAD}\n"0","k","(32, 1, 1)","(7, 1, 1)","gpu__time_duration.sum","ns","50"\n{text}'
    for one in (*nsight.read(text), *nsight.read(whole[:cut])):
        assert one.ns is None or one.ns == one.ns


def test_kernel_patterns_become_ncu_regexes(tmp_path: Path) -> None:
    command = nsight.command("ncu", tmp_path / "log", ["python", "job.py"], ["attn_*", "mm"])
    assert command[command.index("--kernel-name") + 1] == "regex:^(?:attn_.*)$|^(?:mm)$"
    assert command[-2:] == ["python", "job.py"]
