"""Sessions: the three states, what they refuse, and what comes out, with the simulator's frontend."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import kscope
import kscope_sim
from kscope import frontends, session, states
from kscope.capture import DeviceCapture, ModuleMeta, Problem
from kscope.errors import DriverError, MissingError, UnsupportedError, UsageError
from kscope.frontends import Backend, Entry, Frontend
from kscope.recording import Recording
from kscope.sampling import Sampling
from kscope_sim import Warp


def work(warp: Warp) -> None:
    with kscope.region("work"):
        warp.work(100)


def attention(warp: Warp) -> None:
    with kscope.region("attend"):
        warp.work(50)


def launch(kernel: Any = work) -> None:
    """Two blocks of one warp: two records."""
    kscope_sim.launch(kernel, grid=2, block=32)


class Noted(Frontend):
    """A frontend that writes down what it is told."""

    name: ClassVar[str] = "noted"
    backend: ClassVar[str] = "noted"
    log: ClassVar[list[str]] = []
    fails: ClassVar[Exception | None] = None

    def enable(self, recording: Recording) -> None:
        if self.fails is not None:
            raise self.fails
        self.log.append(f"enable {recording.records}")

    def disable(self) -> None:
        self.log.append("disable")

    def problems(self) -> tuple[Problem, ...]:
        return (Problem("plain", "kernel `old` was compiled before the session and launched in it"),)


class NotedBackend(Backend):
    """A backend that writes down what it is told."""

    fails: ClassVar[Exception | None] = None
    interrupted: ClassVar[bool] = False
    broken: ClassVar[tuple[Problem, ...]] = ()

    def module_loaded(self, module: int) -> None: ...

    def arm(self, epoch: int, sampling: Sampling, pool_bytes: int | None) -> None:
        if self.fails is not None:
            raise self.fails
        Noted.log.append(f"arm pool={pool_bytes}")

    def disarm(self) -> None:
        Noted.log.append("disarm")

    def resume(self) -> None:
        Noted.log.append("resume")

    def collect(self, *, wait: bool) -> list[DeviceCapture]:
        Noted.log.append(f"collect {wait}")
        if wait and self.interrupted:
            raise KeyboardInterrupt
        return []

    def modules(self) -> tuple[ModuleMeta, ...]:
        return ()

    def problems(self) -> tuple[Problem, ...]:
        return self.broken


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only the simulator is imported, whatever other tests have imported; nothing stays prepared."""
    monkeypatch.setattr(frontends, "_frontends", {})
    monkeypatch.setattr(frontends, "TABLE", {"sim": Entry("kscope_sim", "kscope_sim:SimFrontend", "")})
    monkeypatch.setattr(frontends.metadata, "entry_points", lambda group: ())
    yield
    states.STATE.active = states.STATE.arm = None
    kscope.disable()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The noted frontend stands in the table, and its DSL is imported; what it was told."""
    log: list[str] = []
    monkeypatch.setattr(Noted, "log", log)
    monkeypatch.setattr(frontends, "TABLE", {"noted": Entry("json", f"{__name__}:Noted", "")})
    monkeypatch.setattr(frontends, "BACKENDS", {"noted": f"{__name__}:NotedBackend"})
    monkeypatch.setattr(frontends, "_backends", {})
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Noted.__module__])
    return log


# what comes out


def test_a_session_records_what_is_launched_in_it() -> None:
    launch()
    with kscope.profile() as prof:
        launch()
    launch()
    assert len(prof.trace) == 2 and prof.capture.problems == ()
    assert prof.trace is prof.trace


def test_a_session_can_be_read_while_it_runs() -> None:
    with kscope.profile() as prof:
        launch()
        assert len(prof.trace) == 2
        launch()
        assert len(prof.trace) == 4


def test_a_pause_is_not_recorded() -> None:
    with kscope.profile() as prof:
        launch()
        with prof.paused():
            launch()
        launch()
    assert len(prof.trace) == 4


def test_a_reset_starts_again() -> None:
    with kscope.profile() as prof:
        launch()
        prof.reset()
        launch()
    assert len(prof.trace) == 2


def test_kernels_are_chosen_by_name() -> None:
    with kscope.profile(kernels="att*") as prof:
        launch(work)
        launch(attention)
    assert len(prof.trace) == 2 and set(prof.trace.kernels) == {"attention"}
    assert prof.capture.options["kernels"] == ["att*"]


def test_the_capture_says_what_it_is() -> None:
    options = {"strategy": kscope.Lane0Warp0(), "records": 64, "blocks": 1, "warps": 0, "pool": 1 << 20}
    with kscope.profile(**options) as prof:
        launch()
    assert prof.capture.options == {
        "strategy": "block", "records": 64, "fill": "ring", "clock": "cycles", "live": False,
        "blocks": [0, 1, 1], "warps": [0], "pool": 1 << 20,
    }  # fmt: skip
    assert len(prof.trace) == 1
    host = prof.capture.host
    assert host["versions"]["kscope"] == kscope.__version__ and host["started"] < host["ended"]


def test_every_session_has_an_epoch_of_its_own() -> None:
    with kscope.profile() as first:
        launch()
    with kscope.profile() as second:
        launch()
    assert first.capture.epoch != second.capture.epoch


def test_a_session_without_any_language_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontends, "TABLE", {"triton": Entry("no_such_module", "x:y", "triton")})
    with kscope.profile() as prof:
        pass
    assert [problem.kind for problem in prof.capture.problems] == ["nothing"]


def test_kernels_that_were_compiled_plain_are_named(log: list[str]) -> None:
    with kscope.profile() as prof:
        pass
    assert [problem.kind for problem in prof.capture.problems] == ["plain"]


# the three states


def test_plain_armed_plain(log: list[str]) -> None:
    with kscope.profile(records=64, pool=1000):
        log.append("body")
    assert log == ["enable 64", "arm pool=1000", "body", "disarm", "collect True", "disarm", "disable"]


def test_a_prepared_process_is_armed_without_compiling_again(log: list[str]) -> None:
    kscope.enable(records=64)
    log.clear()
    with kscope.profile():
        log.append("body")
    assert log == ["arm pool=None", "body", "disarm", "collect True", "disarm"]


def test_a_session_with_other_options_goes_back_to_what_was_prepared(log: list[str]) -> None:
    kscope.enable(records=64)
    with kscope.profile(records=128):
        log.append("body")
    assert [word for word in log if word.startswith(("enable", "body", "disable"))] == [
        "enable 64", "enable 128", "body", "enable 64",
    ]  # fmt: skip


def test_disable_goes_back_to_plain(log: list[str]) -> None:
    kscope.enable()
    kscope.disable()
    assert log == ["enable auto", "disable"]
    assert not [finder for finder in sys.meta_path if type(finder).__module__ == "kscope.watching"]


def test_a_frontend_that_cannot_work_leaves_the_process_plain(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noted, "fails", UnsupportedError("noted 0.1 has no hook"))
    with pytest.raises(UnsupportedError), kscope.profile():
        pass
    with pytest.raises(UnsupportedError):
        kscope.enable()
    monkeypatch.setattr(Noted, "fails", None)
    with kscope.profile():
        pass


def test_a_device_that_is_not_there_is_said_before_the_body(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NotedBackend, "fails", MissingError("the NVIDIA driver sees no GPU"))
    with pytest.raises(MissingError, match="no GPU"), kscope.profile():
        log.append("body")
    assert "body" not in log and log[-1] == "disable"


def test_a_language_that_is_imported_later_joins(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_dsl.py").write_text("loaded = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(frontends, "TABLE", {"noted": Entry("late_dsl", f"{__name__}:Noted", "")})
    monkeypatch.delitem(sys.modules, "late_dsl", raising=False)
    with kscope.profile():
        log.append("body")
        import late_dsl  # type: ignore[import-not-found]  # written above

        assert late_dsl.loaded
        log.append("imported")
    assert log[:4] == ["body", "enable auto", "arm pool=None", "imported"]
    assert "exec_module" not in vars(late_dsl.__spec__.loader)
    monkeypatch.delitem(sys.modules, "late_dsl")


def test_an_import_after_the_session_is_left_alone(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "later_dsl.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(frontends, "TABLE", {"noted": Entry("later_dsl", f"{__name__}:Noted", "")})
    with kscope.profile():
        pass
    import later_dsl  # type: ignore[import-not-found]  # written above

    assert later_dsl and log == []
    monkeypatch.delitem(sys.modules, "later_dsl")


# what is refused


def test_a_session_in_a_session_is_refused() -> None:
    with (
        kscope.profile() as prof,
        pytest.raises(UsageError, match="one session records at a time"),
        kscope.profile(),
    ):
        pass
    assert prof.capture


def test_a_session_in_another_thread_is_refused() -> None:
    errors: list[UsageError] = []

    def other() -> None:
        try:
            with kscope.profile():
                pass
        except UsageError as error:
            errors.append(error)

    with kscope.profile():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(errors) == 1


@pytest.mark.parametrize("call", [kscope.enable, kscope.disable])
def test_the_state_is_not_changed_under_a_session(call: Callable[[], None]) -> None:
    with kscope.profile(), pytest.raises(UsageError, match=r"kscope\.(en|dis)able\(\) inside"):
        call()


def test_a_session_is_used_once() -> None:
    with kscope.profile() as prof:
        pass
    with pytest.raises(UsageError, match="recorded already"), prof:
        pass


def test_nothing_is_there_before_the_body() -> None:
    with pytest.raises(UsageError, match="before the body"):
        _ = kscope.profile().capture


@pytest.mark.parametrize("what", ["reset", "paused"])
def test_what_belongs_in_the_body_is_refused_outside(what: str) -> None:
    with kscope.profile() as prof:
        pass
    with pytest.raises(UsageError, match="outside of the body"):
        (prof.paused().__enter__ if what == "paused" else prof.reset)()


@pytest.mark.parametrize(
    "options",
    [
        {"records": 0},
        {"records": "many"},
        {"strategy": "warp"},
        {"fill": "grow"},
        {"clock": "wall"},
        {"pool": 0},
        {"pool": "1G"},
        {"blocks": range(0)},
        {"warps": 32},
        {"sms": -1},
        {"kernels": ()},
        {"kernels": 3},
    ],
    ids=str,
)
def test_options_that_mean_nothing_are_refused_before_anything_runs(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        kscope.profile(**options)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # Python 3.12
def test_a_forked_child_may_not_use_its_parents_session() -> None:
    read, write = os.pipe()
    with kscope.profile():
        child = os.fork()
        if child == 0:
            try:
                with kscope.profile():
                    os.write(write, b"no error")
            except UsageError as error:
                os.write(write, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    assert b"forked" in os.read(read, 1000)


# where it goes


def fail_in(prof: session.Session) -> None:
    with prof:
        launch()
        launch()
        _ = 1 / 0


def leave_in(prof: session.Session) -> None:
    with prof:
        launch()
        sys.exit(0)


def test_a_path_gets_the_capture(tmp_path: Path) -> None:
    with kscope.profile(tmp_path / "run.kscope"):
        launch()
    assert len(kscope.decode(kscope.load(tmp_path / "run.kscope"))) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run.kscope"]


def test_a_body_that_fails_leaves_the_last_good_capture(tmp_path: Path) -> None:
    with kscope.profile(tmp_path / "run.kscope"):
        launch()
    good = (tmp_path / "run.kscope").read_bytes()
    with pytest.raises(ZeroDivisionError) as error:
        fail_in(prof := kscope.profile(tmp_path / "run.kscope"))
    assert (tmp_path / "run.kscope").read_bytes() == good
    assert len(kscope.decode(kscope.load(tmp_path / "run.failed.kscope"))) == 4 == len(prof.trace)
    if sys.version_info >= (3, 11):
        assert "run.failed.kscope" in error.value.__notes__[0]


def test_a_device_that_broke_leaves_the_last_good_capture(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.kscope").write_text("the last good one")
    monkeypatch.setattr(NotedBackend, "broken", (Problem("driver", "device 0: it trapped"),))
    with pytest.warns(RuntimeWarning, match="it trapped; saved as .*failed"), kscope.profile(tmp_path / "run.kscope"):
        pass
    assert (tmp_path / "run.kscope").read_text() == "the last good one"
    assert (tmp_path / "run.failed.kscope").exists()


def test_a_program_that_ends_with_exit_0_did_not_fail(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        leave_in(kscope.profile(tmp_path / "run.kscope"))
    assert (tmp_path / "run.kscope").exists()


def test_ctrl_c_does_not_wait_for_kernels(log: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt), kscope.profile():
        raise KeyboardInterrupt
    assert "collect False" in log and "collect True" not in log


def test_ctrl_c_in_the_wait_at_the_end_saves_what_is_there(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NotedBackend, "interrupted", True)
    with kscope.profile() as prof:
        pass
    assert log[-4:] == ["collect True", "collect False", "disarm", "disable"] and prof.capture


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("run.pftrace", "ends in .kscope"),
        ("none/run.kscope", "does not exist: mkdir -p"),
        ("folder.kscope", "is a folder"),
        ("/proc/run.kscope", "nothing can be written"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path, path: str, said: str) -> None:
    (tmp_path / "folder.kscope").mkdir()
    with pytest.raises(UsageError, match=said):
        kscope.profile(tmp_path / path)


def test_an_error_at_the_end_leaves_the_process_plain(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: NotedBackend, *, wait: bool) -> list[DeviceCapture]:
        raise DriverError("cuCtxSynchronize", "CUDA_ERROR_UNKNOWN", 999)

    monkeypatch.setattr(NotedBackend, "collect", fail)
    with pytest.raises(DriverError), kscope.profile():
        pass
    assert log[-1] == "disable" and states.STATE.active is None
