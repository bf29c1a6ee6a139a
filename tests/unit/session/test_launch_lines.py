"""profile(launch_stacks=True): the line of Python that made each launch."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from simulated import marked

import kscope
import kscope_sim
from kscope import native
from kscope.cli import main
from kscope.errors import FormatError
from kscope.instrument.launch_lines import LINES, LaunchLines
from kscope.instrument.launch_places import PROGRAM, places
from kscope.trace import Trace, decode


@pytest.fixture(autouse=True, params=["C", "Python"])
def _recorded_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "Python":
        monkeypatch.setenv("KSCOPE_NATIVE", "0")
    elif native.module() is None:
        pytest.skip("kscope was installed without a C compiler or Python's headers")


def one(**options: Any) -> None:
    kscope_sim.launch(marked, grid=2, **options)


def other(warp: kscope_sim.Warp) -> None:
    with kscope.region("work"):
        warp.work(10)


def two() -> None:
    kscope_sim.launch(marked, grid=2)
    kscope_sim.launch(other)


LINE = one.__code__.co_firstlineno + 1
ONE, TWO = f"one({LINE})", f"two({two.__code__.co_firstlineno + 1})"
OTHER = f"two({two.__code__.co_firstlineno + 2})"


def lines(trace: Trace) -> list[str]:
    """The calls' lines as function(line); empty for those without."""
    found = []
    for call in trace.calls:
        place, _, function = call.line.partition("): ")
        file, _, number = place.partition("(")
        assert not file or file.endswith("test_launch_lines.py")
        found.append(f"{function}({number})" if file else "")
    return found


def test_each_launch_has_the_line_of_the_program_that_made_it(tmp_path: Path) -> None:
    with kscope.profile(tmp_path / "s.kscope", launch_stacks=True) as prof:
        one()
        two()
        one()
    assert lines(prof.trace) == [ONE, TWO, OTHER, ONE]
    assert kscope.load(tmp_path / "s.kscope").calls == prof.trace.calls


def test_without_the_option_there_are_no_calls() -> None:
    with kscope.profile(launch_stacks=True):
        one()
    with kscope.profile() as prof:
        one()
    assert prof.trace.calls == ()
    assert not LINES.enabled


def test_a_summary_is_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kscope.profile(tmp_path / "s.kscope", launch_stacks=True):
        one()
        two()
    assert main(["summary", str(tmp_path / "s.kscope"), "--by", "line", "--csv"]) == 0
    out = capsys.readouterr().out
    assert f"test_launch_lines.py({LINE}): one" in out
    assert "): two" in out


def test_the_flag_of_run_records_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.py").write_text("from simulated import marked\nimport kscope_sim\n\nkscope_sim.launch(marked)\n")
    assert main(["run", "--launch-stacks", "-o", str(tmp_path / "s.kscope"), str(tmp_path / "s.py")]) == 0
    [call] = kscope.load(tmp_path / "s.kscope").calls
    assert call.line.endswith("s.py(4): <module>")


def test_replays_have_no_line_and_a_kernel_with_other_launches_too_has_none_at_all() -> None:
    with kscope.profile(launch_stacks=True) as prof:
        one()
        one(replays=3)
        two()
    assert lines(prof.trace) == ["", "", "", "", "", OTHER]
    [problem] = prof.trace.problems
    assert problem.kind == "lines"
    assert "launches of marked have no line" in problem.text


def test_after_a_reset_only_later_launches_count() -> None:
    with kscope.profile(launch_stacks=True) as prof:
        two()
        prof.reset()
        one()
    assert lines(prof.trace) == [ONE]


def test_lines_of_several_threads_are_not_ordered() -> None:
    def threaded(*functions: Any) -> Trace:
        with kscope.profile(launch_stacks=True) as prof:
            for function in functions:
                thread = threading.Thread(target=function)
                thread.start()
                thread.join()
                one()
        return prof.trace

    assert lines(threaded(one, one)) == [ONE] * 4
    found = threaded(two)
    assert [line for one, line in zip(found.launches, lines(found), strict=True) if one.kernel == "marked"] == [""] * 2


@pytest.fixture
def library(tmp_path: Path) -> Any:
    """A function of an installed package that launches."""
    folder = tmp_path / "site-packages" / "fancy"
    folder.mkdir(parents=True)
    file = folder / "launching.py"
    file.write_text("def launched(function, *arguments):\n    function(*arguments)\n")
    module = ModuleType("fancy")
    exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    return module.launched


def test_the_line_is_the_programs_and_not_the_packages_that_it_calls(library: Any) -> None:
    found = LaunchLines()
    found.begin(True)

    def here() -> None:
        library(found.add, 7)

    for _ in range(3):
        here()
    found.add(7)
    names = [function for _, _, function in found.found()["lines"]]
    assert names == ["here", "test_the_line_is_the_programs_and_not_the_packages_that_it_calls"]
    assert found.found()["launched_at"] == {7: (0, 0, 0, 1)}


def test_a_launch_by_a_packages_own_thread_has_the_packages_line(library: Any) -> None:
    found = LaunchLines()
    found.begin(True)
    thread = threading.Thread(target=library, args=(found.add, 7))
    thread.start()
    thread.join()
    [(file, line, function)] = found.found()["lines"]
    assert (Path(file).name, line, function) == ("launching.py", 2, "launched")


def test_the_file_of_a_line_is_shown_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    found = LaunchLines()
    found.begin(True)
    found.add(7)
    assert found.found()["lines"][0][:2] == ("test_launch_lines.py", sys._getframe().f_lineno - 1)


@pytest.mark.parametrize(
    "damage", [{"lines": (("a.py", "x", "f"),)}, {"launched_at": {1: (5,)}}], ids=["line", "index"]
)
def test_damaged_lines_are_refused(tmp_path: Path, damage: dict[str, Any]) -> None:
    with kscope.profile(launch_stacks=True) as prof:
        one()
    replace(prof.capture, **damage).save(tmp_path / "s.kscope")
    with pytest.raises(FormatError, match="invalid head: "):
        kscope.load(tmp_path / "s.kscope")


def test_launches_that_are_not_as_many_as_the_lines_have_none() -> None:
    with kscope.profile(launch_stacks=True) as prof:
        one()
        two()
    capture = prof.capture
    fewer = replace(capture, launched_at={kernel: at[:1] for kernel, at in capture.launched_at.items()})
    assert lines(decode(fewer)) == ["", "", OTHER]


def test_places_are_whole_while_others_are_added() -> None:
    found = places(lambda frame: PROGRAM)

    def more(*_: Any) -> None:
        exec("add(7)", {"add": found.add})

    for _ in range(40):
        more()
    before, others = gc.get_threshold(), []
    gc.callbacks.append(more)
    try:
        gc.set_threshold(1)
        for _ in range(40):
            others.append(found.places())
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(more)
    assert len(others[0]) >= 40
    assert all(isinstance(place, tuple) and len(place) == 3 for each in others for place in each)


LITTLE_MEMORY = """
import resource
from kscope.instrument.launch_places import PROGRAM, places
found = places(lambda frame: PROGRAM)
pages = int(open("/proc/self/statm").read().split()[0])
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (3 << 20), before[1]))
add, many = found.add, 600_000
for _ in range(many):
    add(7)
resource.setrlimit(resource.RLIMIT_AS, before)
assert 1000 < len(found.launches()) // 16 < many
"""


def test_launches_that_memory_has_no_room_for_are_left_out_and_do_not_fail() -> None:
    subprocess.run([sys.executable, "-c", LITTLE_MEMORY], check=True)
