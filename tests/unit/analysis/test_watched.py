"""Long operations report progress, as a bar in terminals."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
import traces

from kscope import cli
from kscope.analysis.overlap import overlap, waits
from kscope.capture.capture import load_capture
from kscope.cli.common import filters

GOLDEN = Path(__file__).parents[2] / "golden"


def test_overlap_progress_reaches_all_records() -> None:
    trace = traces.trace(traces.lanes(random.Random(3), blocks=9, launches=3))
    for work in (overlap, waits):
        reported: list[int] = []
        work(trace, step=reported.append)
        assert sum(reported) == len(trace)


def test_a_capture_shows_how_much_of_its_file_is_read() -> None:
    path, reported = GOLDEN / "attention.kscope", list[int]()
    assert load_capture(path, step=reported.append).devices
    assert path.stat().st_size * 0.9 < sum(reported) < path.stat().st_size


def test_long_operations_show_a_progress_bar_in_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import kscope.util.progress as progress

    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    shown = []
    for terminal, least in ((True, 1), (True, 1 << 30), (False, 1)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal, raising=False)
        with filters.progress(10, "waits", least) as step:
            step(5)
        shown.append("50 %" in capsys.readouterr().err)
    assert shown == [True, False, False]


@pytest.mark.parametrize("rich", [True, False], ids=["rich", "plain"])
@pytest.mark.parametrize(
    "words",
    [["summary"], ["compare", str(GOLDEN / "attention.kscope")], ["occupancy"], ["assert", "dropped == 0"],
     ["trust", "overhead", "--cost", "28,2"], ["summary", "--region", "*"]],
    ids=lambda words: " ".join(words[:2]).split("/")[0],
)  # fmt: skip
def test_commands_show_a_moving_bar_while_they_compute(
    words: list[str], rich: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import kscope.util.progress as progress

    if not rich:
        monkeypatch.setattr(progress, "find_spec", lambda name: None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(filters.busy_bar, "__defaults__", (1,))
    first = words[:2] if words[0] == "trust" else words[:1]
    assert cli.main([*first, str(GOLDEN / "attention.kscope"), *words[len(first) :]]) == 0
    captured = capsys.readouterr()
    what = {"assert": "conditions", "trust": "overhead"}.get(words[0], words[0])
    assert what in captured.err and what not in captured.out.splitlines()[0]
    if "--region" in words:
        assert "selecting records" in captured.err


def test_json_output_contains_no_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["gaps", str(GOLDEN / "attention.kscope"), "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("{")
    assert "%" not in captured.err
