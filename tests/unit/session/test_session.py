"""Sessions: the three states and their results, with the simulator's frontend."""

from __future__ import annotations

import importlib
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from noted import Noted, NotedBackend, attention, launch, work
from waiting import PATIENCE_S

import kscope
from kscope.capture.capture_data import DeviceCapture, LaunchCount
from kscope.capture.model import Problem
from kscope.errors import DriverError, MissingError, UnsupportedError
from kscope.instrument import registry
from kscope.instrument.registry import Entry
from kscope.instrument.selection.auto import Lines, Selection
from kscope.session import states
from kscope.session.kernel_filter import Patterns, only

# results


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


def test_an_empty_session_explains_why_it_is_empty() -> None:
    with kscope.profile() as prof:
        pass
    (problem,) = prof.trace.problems
    assert problem.kind == "blank"
    assert "no records: no kernel with regions was loaded while recording was on" in problem.text
    with kscope.profile(block=range(100, 101)) as prof:
        launch(work)
    (problem,) = prof.trace.problems
    assert "no records: kernels with regions were loaded (work), but none was launched in the session" in problem.text


def test_kernels_are_selected_by_name() -> None:
    with kscope.profile(kernel="att*") as prof:
        launch(work)
        launch(attention)
    assert len(prof.trace) == 2 and set(prof.trace.kernels) == {"attention"}
    assert prof.capture.options["kernel"] == ["att*"]


def test_a_pattern_that_no_kernel_matches_is_reported() -> None:
    with kscope.profile(kernel="conv_*") as prof:
        launch(work)
    (problem,) = prof.trace.problems
    assert len(prof.trace) == 0
    assert problem.kind == "nothing"
    assert "conv_*" in problem.text
    assert "work" in problem.text


def test_selected_kernels_without_records_are_reported_beside_those_with_records() -> None:
    with kscope.profile() as both:
        launch(work)
        launch(attention)
    with kscope.profile() as one:
        launch(work)
    known = replace(one.capture, modules=both.capture.modules)
    (problem,) = only(known, Patterns.of("att*")).problems
    assert (problem.kind, problem.text) == ("nothing", "no kernel that matches kernel=att* recorded; these did: work")
    assert only(known, Patterns.of("wo*")).problems == ()


def test_problems_of_regions_in_other_kernels_are_left_out() -> None:
    with kscope.profile() as prof:
        launch(work)
        launch(attention)
    of_work, of_attention = (Problem("empty", "nothing", kernel=name, region="r") for name in ("work", "attention"))
    capture = replace(prof.capture, problems=(of_work, of_attention))
    assert only(capture, Patterns.of("att*")).problems == (of_attention,)


def test_captures_contain_their_options() -> None:
    options = {"strategy": kscope.Lane0Warp0(), "records": 64, "block": "0:1", "warp": 0, "pool": 1 << 20}
    with kscope.profile(**options) as prof:
        launch()
    assert prof.capture.options == {
        "strategy": "lane0-warp0", "records": 64, "fill": "ring", "clock": "cycles", "placement": "fence",
        "block": [0, 1, 1], "warp": [0], "pool": 1 << 20,
    }  # fmt: skip
    assert len(prof.trace) == 1
    host = prof.capture.host
    assert host["versions"]["kscope"] == kscope.__version__ and host["started"] < host["ended"]


def test_every_session_has_its_own_epoch() -> None:
    with kscope.profile() as first:
        launch()
    with kscope.profile() as second:
        launch()
    assert first.capture.epoch != second.capture.epoch


def test_a_session_without_an_installed_language_reports_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "TABLE", {"triton": Entry("no_such_module", "x:y", "triton")})
    with kscope.profile() as prof:
        pass
    assert [problem.kind for problem in prof.capture.problems] == ["nothing"]


def test_kernels_that_were_compiled_plain_are_named(log: list[str]) -> None:
    with kscope.profile() as prof:
        pass
    assert [problem.kind for problem in prof.capture.problems] == ["plain"]


def test_launches_that_certainly_recorded_are_in_the_capture(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {5: LaunchCount(2)}
    monkeypatch.setattr(Noted, "launches", lambda self: dict(seen))
    with kscope.profile() as prof:
        assert prof.capture.launches == {}  # they may wait in a stream
        seen[5] = LaunchCount(3, 7)
    assert prof.capture.launches == {5: LaunchCount(3, 7)}
    with kscope.profile() as prof, prof.paused():
        pass
    assert prof.capture.launches == {}
    with pytest.raises(KeyboardInterrupt), kscope.profile() as prof:
        raise KeyboardInterrupt
    assert prof.capture.launches == {}


def test_launches_of_autotuning_are_in_the_capture(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noted, "tuning_launches", lambda self: 40)
    with kscope.profile() as prof:
        assert prof.capture.tuning_launches == 40
    assert prof.capture.tuning_launches == prof.trace.tuning_launches == 40


def test_prepared_frontends_are_notified_of_each_session(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noted, "begin", lambda self: log.append("begin"))
    kscope.enable()
    for _ in range(2):
        with kscope.profile() as prof:
            log.append("body")
            prof.reset()
    assert [word for word in log if word in ("begin", "body")] == ["begin", "body", "begin"] * 2


# the three states


def test_a_session_arms_and_disarms_in_order(log: list[str]) -> None:
    with kscope.profile(records=64, pool=1000):
        log.append("body")
    assert log == ["enable 64", "arm pool=1000", "body", "wait", "disarm", "collect True", "disarm", "disable"]


def test_interrupting_the_body_skips_the_final_wait(log: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt), kscope.profile():
        raise KeyboardInterrupt
    assert "wait" not in log and "collect False" in log


def test_a_prepared_process_is_armed_without_compiling_again(log: list[str]) -> None:
    kscope.enable(records=64)
    log.clear()
    with kscope.profile():
        log.append("body")
    assert log == ["arm pool=None", "body", "wait", "disarm", "collect True", "disarm"]


def test_sessions_restore_the_prepared_options(log: list[str]) -> None:
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
    assert not [finder for finder in sys.meta_path if type(finder).__module__ == "kscope.util.import_hook"]


def test_a_failing_frontend_leaves_the_process_uninstrumented(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noted, "fails", UnsupportedError("noted 0.1 has no hook"))
    with pytest.raises(UnsupportedError), kscope.profile():
        pass
    with pytest.raises(UnsupportedError):
        kscope.enable()
    monkeypatch.setattr(Noted, "fails", None)
    with kscope.profile():
        pass


def test_a_missing_device_is_reported_before_the_body_runs(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NotedBackend, "fails", MissingError("the NVIDIA driver sees no GPU"))
    with pytest.raises(MissingError, match="no GPU"), kscope.profile():
        log.append("body")
    assert "body" not in log and log[-1] == "disable"


def test_arming_a_device_can_be_retried(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.TABLE, "other", Entry("json", "noted:Other", ""))
    monkeypatch.setitem(registry.BACKENDS, "other", "noted:OtherBackend")
    other = type("OtherBackend", (NotedBackend,), {"fails": DriverError("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", 2)})
    monkeypatch.setattr("noted.OtherBackend", other, raising=False)
    monkeypatch.setattr("noted.Other", type("Other", (Noted,), {"name": "other", "backend": "other"}), raising=False)
    prof = kscope.profile()
    with pytest.raises(DriverError), prof:
        pass
    assert log.count("arm pool=None") == 1 and log.count("disarm") == 2
    monkeypatch.setattr(other, "fails", None)
    log.clear()
    with prof:
        assert log.count("arm pool=None") == 2


def test_a_language_imported_during_reset_or_snapshot_joins_afterwards(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["in_a_reset", "in_a_look"]
    for name in names:
        (tmp_path / f"{name}_dsl.py").write_text("")
        monkeypatch.setitem(registry.TABLE, name, Entry(f"{name}_dsl", "noted:Late", ""))
        monkeypatch.setitem(registry.BACKENDS, name, "noted:NotedBackend")
    monkeypatch.syspath_prepend(tmp_path)

    def arrives(self: NotedBackend, *arguments: object, **options: object) -> list[DeviceCapture]:
        if names:
            monkeypatch.setattr("noted.Late", type("Late", (Noted,), {"backend": names[0]}), raising=False)
            importing = threading.Thread(target=importlib.import_module, args=(f"{names.pop(0)}_dsl",))
            importing.start()
            importing.join()
        return []

    with kscope.profile() as prof:
        monkeypatch.setattr(NotedBackend, "arm", arrives)
        prof.reset()
        monkeypatch.setattr(NotedBackend, "collect", arrives)
        assert prof.capture.devices == ()
    assert states.STATE.names == [] and names == []


def test_a_language_that_is_imported_later_joins(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_dsl.py").write_text("loaded = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "TABLE", {"noted": Entry("late_dsl", "noted:Noted", "")})
    monkeypatch.delitem(sys.modules, "late_dsl", raising=False)
    with kscope.profile():
        log.append("body")
        import late_dsl  # type: ignore[import-not-found]  # written above

        assert late_dsl.loaded
        log.append("imported")
    assert log[:4] == ["body", "enable auto", "arm pool=None", "imported"]
    assert "exec_module" not in vars(late_dsl.__spec__.loader)
    monkeypatch.delitem(sys.modules, "late_dsl")


def test_languages_imported_after_the_session_are_not_hooked(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "later_dsl.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "TABLE", {"noted": Entry("later_dsl", "noted:Noted", "")})
    with kscope.profile():
        pass
    import later_dsl  # type: ignore[import-not-found]  # written above

    assert later_dsl and log == []
    monkeypatch.delitem(sys.modules, "later_dsl")


def test_an_import_in_another_thread_does_not_wait_for_a_session_that_ends(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_dsl.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(registry.TABLE, "slow", Entry("slow_dsl", "noted:Noted", ""))
    importing = threading.Thread(target=importlib.import_module, args=("slow_dsl",))

    def wait(self: NotedBackend) -> None:
        importing.start()
        importing.join(PATIENCE_S)
        log.append("waited" if importing.is_alive() else "imported")

    monkeypatch.setattr(NotedBackend, "wait", wait)
    kscope.enable(records=64)
    with kscope.profile(records=16):
        log.clear()
    importing.join()
    assert log[:2] == ["imported", "disarm"] and log[-1] == "enable 64"
    assert states.STATE.names == ["noted", "slow"]
    monkeypatch.delitem(sys.modules, "slow_dsl")


def test_a_broken_language_imported_at_the_end_loses_no_records(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lacking(Noted):
        fails = UnsupportedError("lacking 1.0 has no hook")

    (tmp_path / "lacking_dsl.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(registry.TABLE, "lacking", Entry("lacking_dsl", "noted:Lacking", ""))
    monkeypatch.setattr("noted.Lacking", Lacking, raising=False)
    importing = threading.Thread(target=importlib.import_module, args=("lacking_dsl",))

    def wait(self: NotedBackend) -> None:
        importing.start()
        importing.join()

    monkeypatch.setattr(NotedBackend, "wait", wait)
    kscope.enable(records=16)
    with pytest.warns(RuntimeWarning, match="no hook: its kernels are not"), kscope.profile(tmp_path / "kept.kscope"):
        pass
    assert (tmp_path / "kept.kscope").exists()
    monkeypatch.delitem(sys.modules, "lacking_dsl")


def test_an_unsupported_dsl_does_not_stop_others_from_recording(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old DSL that happens to be imported; and its import, which a program may only try."""

    class Old(Noted):
        name, fails = "old", UnsupportedError("old 0.1 is installed; kscope needs 1.0 or later")

    (tmp_path / "old_dsl.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(registry.TABLE, "old", Entry("old_dsl", "noted:Old", ""))
    monkeypatch.setattr("noted.Old", Old, raising=False)
    with kscope.profile(), pytest.warns(RuntimeWarning, match="old 0.1 is installed.*: its kernels are not recorded"):
        importlib.import_module("old_dsl")
    with pytest.warns(RuntimeWarning, match="old 0.1 is installed"), kscope.profile():
        assert states.STATE.names == ["noted"]
    monkeypatch.delitem(sys.modules, "old_dsl")


# unannotated kernels


def test_profile_selection_reaches_the_compiler(log: list[str]) -> None:
    with kscope.profile(auto="load,waits", mark="one=a.py:3-4", kernel="att*") as prof:
        pass
    assert prof._recording.selection == Selection(("wait", "load"), (Lines("one", "a.py", 3, 4),), ("att*",))
    assert prof.capture.options["auto"] == ["wait", "load"]
    assert prof.capture.options["mark"] == ["one=a.py:3-4"]


def test_sessions_inherit_prepared_options_unless_changed(log: list[str]) -> None:
    kscope.enable(auto="wait", kernel="att*")
    with kscope.profile(kernel="other") as inherited:
        pass
    with kscope.profile(auto=False) as nothing:
        pass
    assert inherited._recording.selection == Selection(("wait",), (), ("att*",))
    assert not nothing._recording.selection


def test_selections_without_a_supporting_frontend_are_reported() -> None:
    with kscope.profile(auto=True, mark="one=a.py:3") as prof:
        launch()
    assert len(prof.trace) == 2
    texts = [problem.text for problem in prof.trace.problems]
    assert any("region one=a.py:3: no kernel that ran has an operation at these lines" in text for text in texts)
    requested = "auto= (kinds of operation) and mark= (lines of source)"
    assert f"{requested}: not supported by the imported DSLs (sim)" in texts
