"""SIGTERM during a session: records on the host are saved, and the process dies by the signal."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from waiting import PATIENCE_S

import kscope
from kscope.util import atomic_files

ROOT = Path(__file__).resolve().parents[3]
PATHS = [str(ROOT / folder) for folder in (".", "frontends", "runtime")]
SCRIPT = """
import asyncio, ctypes, os, signal, sys, threading, time
if sys.argv[1] == "with_an_early_child":
    os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
import kscope, kscope_sim

def kernel(warp):
    with kscope.region("work"):
        warp.work(100)

def in_c():
    "Blocks in C, where no Python signal handler runs: a mutex that is locked twice."
    c, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    c.pthread_mutex_lock(mutex)
    print("ready", flush=True)
    c.pthread_mutex_lock(mutex)

def in_python():
    "Sleeps in pieces: Python may miss a signal that arrives just before a sleep until it is over."
    print("ready", flush=True)
    end = time.monotonic() + 300
    while time.monotonic() < end:
        time.sleep(0.01)

def in_a_loop():
    async def sleeps():
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print)
        print("ready", flush=True)
        await asyncio.sleep(300)
    asyncio.run(sleeps())

def with_a_child():
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, b"!")
        signal.pause()
    os.read(read, 1)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)

def with_an_early_child():
    "It ends before kscope's own function after a fork runs: kscope was imported later than this one is registered."
    print(os.waitstatus_to_exitcode(os.waitpid(os.fork(), 0)[1]), flush=True)

def with_a_handler():
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(3))
    in_python()

def while_saving():
    from kscope.capture.capture import Capture
    save = Capture.save
    def slowly(capture, path):
        if threading.current_thread() is threading.main_thread():
            in_c()
        save(capture, path)
    Capture.save = slowly

def after():
    pass

with kscope.profile("run.kscope"):
    kscope_sim.launch(kernel)
    globals()[sys.argv[1]]()
if sys.argv[1] == "after":
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and signal.set_wakeup_fd(-1) == -1
    assert threading.active_count() == 1
    in_python()
"""


def _start(folder: Path, what: str, *launcher: str, script: str = SCRIPT) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(script)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}
    command = [sys.executable, *launcher, "script.py", what]
    return subprocess.Popen(command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _terminated(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Send SIGTERM once the script is ready: its exit status and stderr."""
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.terminate()
    return process.wait(PATIENCE_S), process.communicate()[1]


@pytest.mark.parametrize("what", ["in_c", "in_python", "in_a_loop", "while_saving"])
def test_the_recording_is_saved_and_the_last_good_capture_stays(tmp_path: Path, what: str) -> None:
    (tmp_path / "run.kscope").write_text("good")
    status, text = _terminated(_start(tmp_path, what))
    assert status == -signal.SIGTERM
    assert text == f"kscope: terminated; the recording up to then is in {tmp_path / 'run.failed.kscope'}\n"
    assert len(kscope.load(tmp_path / "run.failed.kscope")) == 1
    assert (tmp_path / "run.kscope").read_text() == "good"


def test_the_recording_of_kscope_run_is_saved_too(tmp_path: Path) -> None:
    script = SCRIPT.replace('with kscope.profile("run.kscope"):', "if True:")
    status, text = _terminated(_start(tmp_path, "in_c", "-m", "kscope", "run", script=script))
    assert status == -signal.SIGTERM and "terminated; the recording up to then is in" in text
    assert len(kscope.load(tmp_path / "script.failed.kscope")) == 1


def test_the_programs_signal_handler_replaces_the_sessions(tmp_path: Path) -> None:
    status, text = _terminated(_start(tmp_path, "with_a_handler"))
    assert status == 3 and text == ""
    assert len(kscope.load(tmp_path / "run.failed.kscope")) == 1


@pytest.mark.parametrize("what", ["with_a_child", "with_an_early_child"])
def test_a_crashing_child_does_not_affect_its_parent(tmp_path: Path, what: str) -> None:
    out, text = _start(tmp_path, what).communicate(timeout=PATIENCE_S)
    assert (out, text) == (f"{-signal.SIGTERM}\n", "")
    assert [path.name for path in tmp_path.glob("*.kscope")] == ["run.kscope"]


def test_the_default_action_is_back_after_the_session(tmp_path: Path) -> None:
    status, text = _terminated(_start(tmp_path, "after"))
    assert status == -signal.SIGTERM and text == ""
    assert len(kscope.load(tmp_path / "run.kscope")) == 1


def test_a_session_that_is_dropped_is_freed_at_once(tmp_path: Path) -> None:
    """Its capture may have gigabytes."""
    gc.disable()
    try:
        with kscope.profile(tmp_path / "run.kscope") as prof:
            pass
        session = weakref.ref(prof)
        del prof
        assert session() is None
    finally:
        gc.enable()


def test_temporary_files_of_killed_processes_are_removed_and_others_stay(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    prefix = atomic_files._prefix()
    old = {name: tmp_path / f"{prefix}{name}-1.part" for name in (f"{dead.pid}", f"{os.getpid()}", "x")}
    foreign = tmp_path / f".kscope-elsewhere-{dead.pid}-1.part"
    new = tmp_path / f"{prefix}{dead.pid}-2.part"
    for path in (*old.values(), foreign, new):
        path.write_text("part")
    for path in (*old.values(), foreign):
        os.utime(path, (0, 0))
    with atomic_files.replacing(tmp_path / "a.kscope") as file:
        file.write(b"whole")
    assert {path.name for path in tmp_path.iterdir()} == {
        "a.kscope", new.name, foreign.name, old[f"{os.getpid()}"].name, old["x"].name
    }  # fmt: skip
