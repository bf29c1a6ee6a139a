"""`kscope run`: the script behaves as usual, and its launches are in the capture."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import synth

import kscope
import kscope_sim
from kscope import cli
from kscope.cli.running import script_threads
from kscope.instrument import registry
from kscope.session import states
from kscope_sim.backend import SimBackend

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT / folder) for folder in (".", "frontends", "runtime")]
KERNEL = """
import kscope, kscope_sim

def kernel(warp):
    with kscope.region("work"):
        warp.work(60_000)

def launch():
    kscope_sim.launch(kernel, grid=2, block=64)
"""
RECORDS = 2 * 2


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory. The simulator is the only kernel language, whatever other tests imported."""
    assert kscope_sim.launch
    monkeypatch.setattr(registry, "table", lambda: {"sim": registry.TABLE["sim"]})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _script(folder: Path, *lines: str, name: str = "script.py") -> Path:
    path = folder / name
    path.write_text("\n".join([KERNEL, *lines]))
    return path


def _kscope(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}
    return subprocess.run(
        [sys.executable, "-m", "kscope", *argv], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


def _records(path: Path) -> int:
    return len(kscope.load(path))


def test_a_script_is_recorded_into_a_file_of_its_name(folder: Path) -> None:
    _script(folder, "launch()", "print('the script speaks')")
    done = _kscope("run", "script.py", cwd=folder)
    assert done.returncode == 0
    assert done.stdout == "the script speaks\n"
    assert done.stderr == "kscope: script.kscope: 4 records; kscope summary script.kscope\n"
    assert _records(folder / "script.kscope") == RECORDS


def test_a_module_is_recorded_with_m(folder: Path) -> None:
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").touch()
    _script(folder / "pkg", "launch()", name="job.py")
    done = _kscope("run", "-o", "out.kscope", "-m", "pkg.job", "--flag", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert _records(folder / "out.kscope") == RECORDS


def test_the_script_sees_its_own_arguments_name_and_path(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "beside.py").write_text("X = 1")
    _script(
        folder / "sub",
        "import sys, beside, os",
        "print(__name__, sys.argv, os.path.basename(__file__), sys.modules['__main__'].__name__)",
        "assert os.path.isabs(__file__) and launch.__code__.co_filename == __file__",
        "launch()",
    )
    done = _kscope("run", "-o", "x.kscope", "sub/script.py", "-o", "mine", "--records", "--", "-m", "x", cwd=folder)
    argv = ["sub/script.py", "-o", "mine", "--records", "--", "-m", "x"]
    assert done.stdout == f"__main__ {argv} script.py __main__\n", done.stderr


@pytest.mark.parametrize(
    ("leave", "code"), [("sys.exit()", 0), ("sys.exit(0)", 0), ("sys.exit(7)", 7), ("sys.exit('why')", 1)]
)
def test_the_scripts_exit_code_is_kept(folder: Path, leave: str, code: int) -> None:
    _script(folder, "import sys", "launch()", leave)
    done = _kscope("run", "script.py", cwd=folder)
    assert done.returncode == code
    assert ("why" in done.stderr) == ("why" in leave)
    assert _records(folder / ("script.failed.kscope" if code else "script.kscope")) == RECORDS


def test_an_error_of_the_script_is_shown_as_python_shows_it(folder: Path) -> None:
    _script(folder, "launch()", "def f():", "    raise ValueError('mine')", "f()")
    done = _kscope("run", "script.py", cwd=folder)
    assert done.returncode == 1
    assert "ValueError: mine" in done.stderr
    assert "script.py" in done.stderr
    assert "runpy" not in done.stderr
    assert "cli" not in done.stderr


def test_a_kscope_error_raised_by_the_script_keeps_its_traceback(folder: Path) -> None:
    _script(folder, "kscope.TargetWarp(99)")
    done = _kscope("run", "script.py", cwd=folder)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "TargetWarp(99): expected" in done.stderr


@pytest.mark.parametrize(
    ("own", "dry"),
    [
        ("kscope.enable()", ()),
        ("kscope.disable()", ()),
        ("with kscope.profile(): launch()", ()),
        ("with kscope.profile(): launch()", ("--dry-run",)),
    ],
)
def test_a_script_that_records_itself_is_refused(folder: Path, own: str, dry: tuple[str, ...]) -> None:
    _script(folder, own)
    done = _kscope("run", *dry, "script.py", cwd=folder)
    assert done.returncode == 1
    assert f"kscope.{'profile' if 'profile' in own else own[7:-2]}() inside a profile()" in done.stderr
    assert "run a script that calls profile() with python" in done.stderr


def test_a_dry_run_of_a_script_that_prepares_its_kernels_keeps_its_options(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = "print(states.recording().selection.lines[:1], states.STATE.hooked is not None)"
    _script(
        folder, "from kscope.session import states", "kscope.enable(records=64)", state, "launch()",
        "kscope.disable()", state, "kscope.enable()", state, "kscope.enable(records='many')",
    )  # fmt: skip
    assert cli.main(["run", "--dry-run", "--mark", "load=x.py:3", "script.py"]) == 1
    captured = capsys.readouterr()
    [prepared, plain, again] = captured.out.splitlines()[:3]
    assert prepared == again == plain.replace("False", "True") and "load" in prepared and "False" in plain
    assert captured.out.splitlines()[3].startswith("no kernel is listed: a dry run lists those that Triton")
    assert "records='many'" in captured.err
    assert states.STATE.active is states.STATE.prepared is states.STATE.hooked is None


def test_a_failed_run_leaves_the_last_good_capture(folder: Path) -> None:
    _script(folder, "import sys", "launch()", "if len(sys.argv) > 1: launch(); sys.exit(3)")
    assert _kscope("run", "script.py", cwd=folder).returncode == 0
    failed = _kscope("run", "script.py", "fail", cwd=folder)
    assert failed.returncode == 3
    assert "script.failed.kscope" in failed.stderr
    assert _records(folder / "script.kscope") == RECORDS
    assert _records(folder / "script.failed.kscope") == 2 * RECORDS


ODD = os.fsdecode(b"caf\xe9")
"""Non-UTF-8 bytes as Python decodes them."""


@pytest.mark.parametrize(
    "typed",
    [("script.py", ODD), (f"{ODD}/script.py",), ("--kernel", f"*{ODD[-1]}*", "script.py"), ("-m", "script", ODD)],
    ids=["an argument", "a folder", "a pattern", "an argument of a module"],
)
def test_run_accepts_non_utf8_arguments(folder: Path, typed: tuple[str, ...]) -> None:
    (folder / ODD).mkdir()
    _script(folder, "launch()")
    _script(folder / ODD, "launch()")
    done = _kscope("run", *typed, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert _records(folder / "script.kscope") == (0 if "--kernel" in typed else RECORDS)
    assert _kscope("run", "--dry-run", *typed, cwd=folder).returncode == 0


def test_failing_scripts_show_their_own_error(folder: Path) -> None:
    _script(folder, "launch()", "raise ValueError('mine')")
    done = _kscope("run", "script.py", ODD, cwd=folder)
    assert done.returncode == 1 and "ValueError: mine" in done.stderr
    assert _records(folder / "script.failed.kscope") == RECORDS


@pytest.mark.parametrize(("ends", "code"), [("raise ValueError('mine')", 1), ("sys.exit(7)", 7)])
def test_a_failing_script_keeps_its_error_when_saving_fails(folder: Path, ends: str, code: int) -> None:
    (folder / "script.failed.kscope").mkdir()
    _script(folder, "import sys", "launch()", ends)
    done = _kscope("run", "script.py", cwd=folder)
    assert done.returncode == code and ("mine" in done.stderr) == (code == 1)
    assert "script.failed.kscope' is a folder" in done.stderr
    assert "until then is in" not in done.stderr


def test_ctrl_c_in_the_wait_for_kernels_ends_with_130_and_leaves_the_last_good_capture(folder: Path) -> None:
    waits = "kscope_sim.SimBackend.wait = lambda self: signal.raise_signal(signal.SIGINT)"
    heeds = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    _script(folder, "import signal, sys", heeds, "launch()", "if len(sys.argv) > 1:", f"    launch(); {waits}")
    assert _kscope("run", "script.py", cwd=folder).returncode == 0
    done = _kscope("run", "script.py", "interrupted", cwd=folder)
    assert done.returncode == 130
    assert done.stderr == "kscope: interrupted; the recording up to then is in script.failed.kscope\n"
    assert _records(folder / "script.kscope") == RECORDS
    assert _records(folder / "script.failed.kscope") == 2 * RECORDS


THREADS = """
import sys, threading, time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

def later():
    time.sleep(0.3)
    launch()
"""


@pytest.mark.parametrize(
    "starts",
    [
        "threading.Thread(target=later).start()",
        "threading.Timer(0.1, threading.Thread(target=later).start).start()",
        "pool = ThreadPoolExecutor(2); pool.submit(later); pool.submit(int)",
        "ThreadPoolExecutor(2).submit(later)",
        "threading.Thread(target=lambda: (threading.main_thread().join(), later())).start()",
        "def watch():\n    while threading.main_thread().is_alive(): time.sleep(0.01)\n    later()\n"
        "threading.Thread(target=watch).start()",
        "pool = ThreadPoolExecutor(1)\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), pool.submit(later))).start()\npool.submit(int)",
        "many = ProcessPoolExecutor(1); many.submit(int).result(); threading.Thread(target=later).start()",
    ],
    ids=["thread", "of a thread", "executor", "lost executor", "joins main", "watches main", "late", "processes"],
)
@pytest.mark.parametrize(("leave", "code"), [("pass", 0), ("sys.exit(3)", 3)])
def test_threads_are_waited_for_and_recorded(folder: Path, starts: str, leave: str, code: int) -> None:
    _script(folder, THREADS, starts, leave)
    done = _kscope("run", "script.py", cwd=folder)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert _records(folder / ("script.failed.kscope" if code else "script.kscope")) == RECORDS


def test_the_main_thread_cannot_wait_for_itself(folder: Path) -> None:
    _script(folder, "import threading", "threading.main_thread().join()")
    assert "RuntimeError: cannot join current thread" in _kscope("run", "script.py", cwd=folder).stderr


def test_daemons_are_not_waited_for(folder: Path) -> None:
    _script(folder, THREADS, "launch()", "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()")
    assert _kscope("run", "script.py", cwd=folder).returncode == 0
    assert _records(folder / "script.kscope") == RECORDS


def test_an_error_is_shown_before_threads_have_ended(folder: Path) -> None:
    _script(folder, THREADS, "launch()", "threading.Thread(target=later).start()", "raise ValueError('mine')")
    done = _kscope("run", "script.py", cwd=folder)
    assert done.returncode == 1 and "ValueError: mine" in done.stderr
    assert _records(folder / "script.failed.kscope") == RECORDS


@pytest.mark.parametrize("leave", ["pass", "sys.exit()"])
def test_ctrl_c_while_threads_are_waited_for_saves_what_is_there(folder: Path, leave: str) -> None:
    handler = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell ignores it in background jobs
    interrupt = "def interrupt():\n    later()\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(0.1)"
    start = "threading.Thread(target=interrupt).start()"
    _script(folder, THREADS, "import os, signal", handler, "launch()", interrupt, start, leave)
    done = _kscope("run", "script.py", cwd=folder)
    assert done.returncode == 130 and "KeyboardInterrupt" in done.stderr
    assert _records(folder / "script.failed.kscope") == 2 * RECORDS


def test_session_threads_are_not_waited_for_at_exit() -> None:
    with ThreadPoolExecutor(1, f"{script_threads.OWN}drain 0") as own:
        script_threads.to_the_end(lambda: own.submit(int).result())
        assert own.submit(int).result() == 0
    assert threading.main_thread().is_alive() and "is_alive" not in vars(threading.main_thread())


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # Python 3.12
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("ends", "code", "expected_text"),
    [("pass", 0, ""), ("sys.exit(0)", 0, ""), ("sys.exit(7)", 7, ""), ("raise ValueError('mine')", 1, "mine\n")],
)
def test_a_forked_child_keeps_its_exit_code_and_output(
    folder: Path, ends: str, code: int, expected_text: str, dry: tuple[str, ...]
) -> None:
    _script(
        folder,
        "import os, sys",
        "launch()",
        "if (child := os.fork()) == 0:",
        f"    {ends}",
        "else:",
        "    print('child', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
    )
    done = _kscope("run", "-q", *dry, "script.py", cwd=folder)
    assert done.returncode == 0
    assert done.stdout.startswith(f"child {code}\n") and done.stdout.count("no kernel is listed") == len(dry)
    assert done.stderr.endswith(expected_text) and done.stderr.count("Traceback") == bool(expected_text)
    assert "kscope:" not in done.stderr
    assert [path.name for path in folder.glob("*.kscope")] == ["script.kscope"][: not dry]
    assert dry or _records(folder / "script.kscope") == RECORDS


def test_a_syntax_error_is_shown(folder: Path) -> None:
    (folder / "bad.py").write_text("def f(:\n")
    done = _kscope("run", "bad.py", cwd=folder)
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr
    assert "kscope/" not in done.stderr


def test_options_reach_the_session(folder: Path) -> None:
    _script(folder, "kscope_sim.launch(kernel, grid=8, block=64)")
    typed = ["--strategy", "lane0-warp0", "--block", "::2", "--records", "8", "--placement", "schedule"]
    assert cli.main(["run", "-q", *typed, "script.py"]) == 0
    capture = kscope.load_capture("script.kscope")
    assert (capture.options["strategy"], capture.options["placement"]) == ("lane0-warp0", "schedule")
    assert capture.options["records"] == 8
    assert len(kscope.decode(capture)) == 4


def test_argv_and_path_are_restored(folder: Path) -> None:
    _script(folder, "import sys", "sys.path.append('left behind')")
    before = list(sys.argv), list(sys.path)
    assert cli.main(["run", "-q", "script.py", "a"]) == 0
    assert (sys.argv, sys.path) == before


def test_empty_recordings_name_the_filters_that_may_be_the_cause(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "plain.py").write_text("print('hello')")
    assert cli.main(["run", "--sm", "7", "--strategy", "warps:9", "plain.py"]) == 0
    assert "no records; --strategy --sm may have excluded every kernel" in capsys.readouterr().err


def test_a_script_without_marks_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "plain.py").write_text("print('hello')")
    assert cli.main(["run", "plain.py"]) == 0
    first, reason = capsys.readouterr().err.splitlines()
    assert first.endswith("plain.kscope: no records:")
    assert reason.startswith("kscope: no records: no kernel with regions was loaded") and "--auto marks" in reason


def test_a_recording_that_lost_everything_names_the_full_pool_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimBackend, "collect", lambda backend, *, wait: [replace(synth.capture().devices[0], lost=5)])
    (folder / "plain.py").write_text("import kscope_sim")
    assert cli.main(["run", "plain.py"]) == 0
    assert capsys.readouterr().err.splitlines()[1:] == [
        "kscope: 5 warps found the pool full and did not record: raise pool="
    ]


def test_strict_turns_problems_into_an_exit_code(folder: Path) -> None:
    loop = [
        "def loop(warp):",
        "    for _ in range(50):",
        "        with kscope.region('x'):",
        "            warp.work(6000)",
    ]
    _script(folder, *loop, "kscope_sim.launch(loop, grid=1, block=32)")
    assert _kscope("run", "-q", "--strict", "--records", "8", "script.py", cwd=folder).returncode == 3
    assert _kscope("run", "-q", "--strict", "--records", "64", "script.py", cwd=folder).returncode == 0


BAD = [
    (["run", "nosuch.py"], "nosuch.py: no such file"),
    (["run", "-m", "no.such.module"], "no such module"),
    (["run", "folder"], "__main__.py"),
    (["run", "-o", "x.pftrace", "script.py"], "must end in .kscope"),
    (["run", "-o", "nowhere/x.kscope", "script.py"], "does not exist"),
    (["run", "-o", "folder.kscope", "script.py"], "folder"),
    (["run", "--strategy", "wrap", "script.py"], "expected 'lane0-warp0', 'elected', 'elected-any', 'all'"),
    (["run", "--records", "many", "script.py"], "--records many"),
    (["run", "--records", "0", "script.py"], "records=0"),
    (["run", "--fill", "grow", "script.py"], "fill='grow'"),
    (["run", "--clock", "sundial", "script.py"], "clock='sundial'"),
    (["run", "--placement", "behind", "script.py"], "placement='behind': expected 'fence'"),
    (["run", "--block", "a:b", "script.py"], "block a:b"),
    (["run", "--block", "9:3", "script.py"], "not empty"),
    (["run", "--warp", "x", "script.py"], "--warp x"),
    (["run", "--warp", "40", "script.py"], "0 to 31"),
    (["run", "--sm", "1-", "script.py"], "--sm 1-"),
    (["run", "--pool", "lots", "script.py"], "--pool lots"),
    (["run", "--pool", "0", "script.py"], "--pool 0: expected at least 16KiB"),
    (["run", "--pool", "1KiB", "script.py"], "--pool 1KiB: expected at least 16KiB"),
    (["run", "--pool", "999999999T", "script.py"], "expected at most 2207613190144 bytes"),
    (["run", "-o", "script.kscope", "script.kscope"], "which this command reads"),
    (["run", "--export", "script.json", "script.kscope"], "which this command reads"),
]


@pytest.mark.parametrize(("argv", "expected_text"), BAD, ids=[" ".join(argv) for argv, _ in BAD])
def test_impossible_run_options_are_refused_before_the_script_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], argv: list[str], expected_text: str
) -> None:
    _script(folder, "open('ran', 'w')")
    (folder / "folder").mkdir()
    (folder / "folder.kscope").mkdir()
    _script(folder, "open('ran', 'w')", name="script.kscope")
    (folder / "script.json").symlink_to("script.kscope")
    assert cli.main(argv) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("kscope: ")
    assert expected_text in captured.err
    assert captured.err.count("\n") == 1
    assert not (folder / "ran").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_that_may_not_be_written_is_refused_before_the_script_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _script(folder, "open('ran', 'w')")
    (folder / "x.kscope").touch(mode=0o400)
    assert cli.main(["run", "-o", "x.kscope", "script.py"]) == 2
    assert "may not be overwritten" in capsys.readouterr().err
    assert not (folder / "ran").exists()


def test_a_session_in_the_script_is_refused_because_one_records_already(folder: Path) -> None:
    _script(folder, "with kscope.profile():", "    launch()")
    done = _kscope("run", "script.py", cwd=folder)
    assert done.returncode == 1
    assert "one session records at a time" in done.stderr


def test_debug_shows_the_traceback(folder: Path) -> None:
    with pytest.raises(kscope.UsageError, match="no such file"):
        cli.main(["run", "--debug", "nosuch.py"])
