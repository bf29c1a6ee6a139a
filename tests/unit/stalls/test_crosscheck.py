"""kscope crosscheck on simulated kernels: clocks beside samples, and the machine code alone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kscope.analysis.samples.crosscheck import Crossed, crosscheck, doubts
from kscope.capture.capture import Capture
from kscope.cli import main
from kscope.trace import decode

from . import programs


def crossed(capture: Capture) -> dict[str, Crossed]:
    assert capture.samples is not None
    return {row.region: row for row in crosscheck(decode(capture), capture.samples).rows}


def test_clocks_and_samples_agree_within_a_point(path: str, capture: Capture, capsys) -> None:
    found = crossed(capture)
    assert set(found) == {"load", "math", "inner"}
    assert all(row.verdict == "agrees" and abs(row.clocks - row.samples) < 0.01 for row in found.values())
    assert sum(row.clocks for row in found.values()) == pytest.approx(1)
    assert main(["crosscheck", path]) == 0
    assert capsys.readouterr().out.count("agrees") == 3


def test_instructions_of_other_lines_inside_a_region_are_named(tmp_path: Path, capture: Capture, capsys) -> None:
    function = programs.function(capture)
    load = next(one for one, text in enumerate(function.text) if "work" in text and function.stack(one) == ("load",))
    math = next(one for one, text in enumerate(function.text) if "work" in text and function.stack(one) == ("math",))
    opened = list(function.opened)
    opened[math] = function.opened[load]  # the compiler moved the arithmetic into the load
    moved = programs.changed(capture, opened=tuple(opened))
    found = crossed(moved)
    assert found["load"].verdict == "moved" and found["math"].verdict == "moved"
    assert f"(programs.py:{programs.line('warp.work(3400)')})" in found["load"].foreign[0]
    assert found["math"].missing == found["load"].foreign
    assert found["inner"].verdict != "moved"
    moved.save(tmp_path / "moved.kscope")
    assert main(["crosscheck", str(tmp_path / "moved.kscope")]) == 1
    assert "are at instructions of other lines" in (text := capsys.readouterr().out) and "outside of it" in text
    assert main(["summary", str(tmp_path / "moved.kscope")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "! kernel three: region load: " in text and "samples are at other lines' instructions; kscope" in text
    assert "! kernel three: region math: 99% of its lines' samples are outside of it" in text


def test_doubts_need_no_clocks(capture: Capture) -> None:
    function = programs.function(capture)
    load = next(one for one in range(len(function.at)) if function.stack(one) == ("load",))
    opened = tuple(function.opened[load] if "math" in function.stack(one) else number
                   for one, number in enumerate(function.opened))  # fmt: skip
    for one in (capture, programs.changed(capture, opened=opened)):
        trace, samples = decode(one), programs.samples(one)
        assert list(doubts(trace, samples)) == list(crosscheck(trace, samples).doubts)
        assert bool(list(doubts(trace, samples))) == (one is not capture)


def test_instructions_of_the_header_of_marks_are_nobody_s(capture: Capture) -> None:
    function = programs.function(capture)
    load = next(one for one, text in enumerate(function.text) if "work" in text and function.stack(one) == ("load",))
    places = list(function.places)
    places[function.place[load]] = (("/x/kscope.cuh", 5), (programs.FILE, 1))  # a mark's code, called from elsewhere
    found = crossed(programs.changed(capture, places=tuple(places)))["load"]
    assert (found.verdict, found.foreign) == ("agrees", ())
    places[function.place[load]] = (("/x/other.h", 5), (programs.FILE, 1))
    assert crossed(programs.changed(capture, places=tuple(places)))["load"].verdict == "moved"


def test_a_region_without_instructions_is_empty_and_one_without_readings_unknown(capture: Capture) -> None:
    function = programs.function(capture)
    inner = [one for one in range(len(function.at)) if "inner" in function.stack(one)]
    text = [("CS2R.32 R4, SR_CLOCKLO" if one in inner else words) for one, words in enumerate(function.text)]
    assert crossed(programs.changed(capture, text=tuple(text)))["inner"].verdict == "empty"
    assert crossed(programs.changed(capture, unresolved=("load",)))["load"].verdict == "unknown"


def loading_more(capture: Capture) -> Capture:
    """The capture with twice the samples of its load."""
    samples = programs.samples(capture)
    more = samples.rows.copy()
    more["count"][more["reason"] == samples.reasons.index("long_scoreboard")] *= 2
    return replace(capture, samples=replace(samples, rows=more))


def test_shares_that_differ_without_moved_instructions_are_perturbed(capture: Capture) -> None:
    found = crossed(loading_more(capture))
    assert {found[name].verdict for name in ("load", "math")} == {"perturbed"}


def test_shares_that_differ_where_each_warp_has_few_samples_are_unknown(
    capture: Capture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sampler takes warps in turns: a few samples of each are of the same moments of every launch."""
    more = loading_more(capture)
    rows = programs.samples(more).rows.copy()
    rows["count"] //= 600
    few = replace(more, samples=replace(programs.samples(more), rows=rows))
    assert rows["count"].sum() < 10 * len(decode(few).warps) < programs.samples(more).rows["count"].sum()
    assert {crossed(few)[name].verdict for name in ("load", "math")} == {"unknown"}
    few.save(tmp_path / "few.kscope")
    assert main(["crosscheck", str(tmp_path / "few.kscope")]) == 1
    assert "each warp has few samples: pass a shorter period" in " ".join(capsys.readouterr().out.split())


def test_shares_of_some_warps_that_differ_from_those_of_all_are_partial(
    capture: Capture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = replace(loading_more(capture), options={"block": [0, 1, 1]})
    assert {crossed(some)[name].verdict for name in ("load", "math")} == {"partial"}
    some.save(tmp_path / "some.kscope")
    assert main(["crosscheck", str(tmp_path / "some.kscope")]) == 1
    assert "only some warps recorded, and all were sampled" in " ".join(capsys.readouterr().out.split())
    assert {row.verdict for row in crossed(replace(capture, options={"block": [0, 1, 1]})).values()} == {"agrees"}


def without_samples(capture: Capture) -> Capture:
    """The capture with the kernel's machine code alone."""
    samples = programs.samples(capture)
    return replace(capture, samples=replace(samples, rows=samples.rows[:0], windows=samples.windows[:0]))


def test_without_samples_a_crosscheck_judges_regions_by_the_machine_code(
    tmp_path: Path, capture: Capture, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "run.kscope")
    function = programs.function(capture)
    opcodes = {"load": "LDG.E R2, [R4]", "math": "FFMA R2, R3, R4, R5"}
    every = range(len(function.at))
    work = {name: next(one for one in every if function.text[one] == "work" and function.stack(one) == (name,))
            for name in opcodes}  # fmt: skip
    text = [next((opcodes[name] for name, one in work.items() if one == at), "NOP") for at in every]
    code = without_samples(programs.changed(capture, text=tuple(text)))
    code.save(path)
    found = crossed(code)
    assert {name: one.verdict for name, one in found.items()} == {"load": "pure", "math": "pure", "inner": "empty"}
    assert found["load"].clocks > 0.55 and main(["crosscheck", path]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "! kernel three: it has no samples; its regions are judged by the machine code alone" in shown
    opened = list(function.opened)
    opened[work["math"]] = function.opened[work["load"]]
    without_samples(programs.changed(capture, text=tuple(text), opened=tuple(opened))).save(path)
    assert main(["crosscheck", path]) == 1
    shown = capsys.readouterr().out
    assert re.search(r"load: 50% of its working instructions are of other lines:\n +0x\w+ FFMA", shown)
    assert re.search(r"math +3\d\.\d% .* empty", shown)
    assert main(["summary", path]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "! kernel three: region load: 50% of its working instructions are of other lines; kscope" in shown
    assert "! kernel three: region inner: no instruction is between its clock readings" in shown
    for command in ("stalls", "annotate"):
        assert main([command, path]) == 2
        assert f"{path}: no stall was sampled; kscope info {path} says why" in capsys.readouterr().err
    for file in ("x.html", "x.pftrace", "x.json"):
        assert main(["export", path, "-o", str(tmp_path / file)]) == 0


def test_a_kernel_without_samples_is_a_problem(capture: Capture) -> None:
    samples = replace(programs.samples(capture), functions=(replace(programs.function(capture), kernel=None),))
    found = crosscheck(decode(capture), samples)
    assert not found.agrees and found.problems == ("kernel three: it has no samples",)


def test_a_crosscheck_shows_the_samples_at_lines_beside_the_regions(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    load, math = (f"programs.py:{programs.line(text)}" for text in ("warp.work(6000", "warp.work(3400"))
    assert main(["crosscheck", path, "--mark", f"load={load}", "--mark", f"mine={math}"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"load +6\d\.\d% +6\d\.\d% .* lines\n", text) and re.search(r"mine +- +3\d\.\d% .* lines\n", text)
    assert text.count("agrees") == 3 and "wherever the compiler has put them" in " ".join(text.split())


def test_samples_outside_the_code_have_no_region(capture: Capture) -> None:
    rows = programs.samples(capture).rows.copy()
    rows["pc"] += np.uint32(8)
    found = crossed(replace(capture, samples=replace(programs.samples(capture), rows=rows)))
    assert {row.count for row in found.values()} == {0}
