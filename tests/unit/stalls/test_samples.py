"""Samples of stalls: what is recorded, what the file keeps, and which region and line each belongs to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kscope
import kscope_sim
from kscope.analysis.samples.stalls import NO_REGION, StallRow, stalls
from kscope.capture import sections
from kscope.capture.capture import Capture
from kscope.capture.samples import ROW, CodeRegion, SampledFunction, Samples, joined_samples
from kscope.errors import FormatError, UsageError
from kscope.trace import decode

from . import programs


@pytest.fixture(scope="module")
def capture() -> Capture:
    return programs.recorded()


def samples_of(capture: Capture) -> Samples:
    assert capture.samples is not None
    return capture.samples


def rows(samples: Samples, by: str = "region") -> dict[str, StallRow]:
    return {row.name: row for row in stalls(samples, by).rows}


def test_each_region_has_its_share_and_its_reason(capture: Capture) -> None:
    found = rows(samples_of(capture))
    marked = sum(found[name].samples for name in ("load", "math", "inner"))
    # reading the clock takes 7 cycles behind each begin
    assert found["load"].samples / marked == pytest.approx(6007 / (6007 + 3407 + 7 + 7 + 143), abs=2e-3)
    assert list(found["load"].reasons) == ["long_scoreboard"] and list(found["math"].reasons) == ["wait"]
    assert found["inner"].samples / marked == pytest.approx(150 / 9571, abs=2e-3)
    assert found[NO_REGION].reasons.keys() == {"barrier"}


def test_lines_are_those_of_the_source(capture: Capture) -> None:
    found = rows(samples_of(capture), "line")
    load = found[f"programs.py:{programs.line('warp.work(6000')}"]
    assert load.where == "load"
    assert load.samples == max(row.samples for row in found.values())


def test_sums_are_the_same_by_every_key(capture: Capture) -> None:
    samples = samples_of(capture)
    totals = {by: sum(row.samples for row in stalls(samples, by).rows) for by in ("region", "line", "instruction")}
    assert set(totals.values()) == {len(samples)}
    assert [row.samples for row in stalls(samples, "kernel").rows] == [len(samples)]


def test_subsets_of_samples_that_did_not_issue_are_not_counted_twice(capture: Capture) -> None:
    samples = samples_of(capture)
    extra = samples.rows.copy()
    extra["reason"] = len(samples.reasons)
    doubled = replace(
        samples, reasons=(*samples.reasons, "long_scoreboard_not_issued"), rows=np.concatenate([samples.rows, extra])
    )
    assert len(doubled) == len(samples)
    assert rows(doubled) == rows(samples)


def test_a_capture_keeps_its_samples(tmp_path: Path, capture: Capture) -> None:
    capture.save(tmp_path / "x.kscope")
    read, samples = samples_of(kscope.load_capture(tmp_path / "x.kscope")), samples_of(capture)
    assert (read.functions, read.reasons, read.period) == (samples.functions, samples.reasons, samples.period)
    assert read.rows.tolist() == samples.rows.tolist()
    assert read.sources == {programs.FILE: Path(programs.FILE).read_text()}
    found = decode(kscope.load_capture(tmp_path / "x.kscope")).filter(region="load").samples
    assert found is not None and len(found) == len(samples)


def test_a_capture_without_samples_is_as_before(tmp_path: Path) -> None:
    with kscope.profile(tmp_path / "x.kscope") as prof:
        kscope_sim.launch(programs.three, 1, 32, (1,))
    assert prof.capture.samples is None
    assert b'"sections"' not in (tmp_path / "x.kscope").read_bytes()


def test_damaged_samples_are_refused(tmp_path: Path, capture: Capture) -> None:
    path = tmp_path / "x.kscope"
    capture.save(path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match="the samples are damaged"):
        kscope.load_capture(path)
    path.write_bytes(data[:-1])
    with pytest.raises(FormatError, match="truncated"):
        kscope.load_capture(path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": np.array([(9, 0, 0, 1)], ROW)},
        {"rows": np.array([(0, 0, 99, 1)], ROW)},
        {"functions": (SampledFunction("k", at=(0, 16), text=("a",), place=(-1,), opened=(0,)),)},
        {"functions": (SampledFunction("k", at=(16, 0), text=("a", "b"), place=(-1, -1), opened=(0, 0)),)},
        {"functions": (SampledFunction("k", stacks=((3,),), regions=(CodeRegion("a"),)),)},
        {"functions": (SampledFunction("k", at=(0,), text=("a",), place=(4,), opened=(0,)),)},
        {"period": 0},
    ],
)
def test_samples_that_contradict_themselves_are_refused(
    tmp_path: Path, capture: Capture, wrong: dict[str, object]
) -> None:
    changed = replace(samples_of(capture), **wrong)  # type: ignore[arg-type]  # fields of Samples
    replace(capture, samples=changed).save(tmp_path / "x.kscope")
    with pytest.raises(FormatError, match="invalid samples"):
        kscope.load_capture(tmp_path / "x.kscope")


def test_a_section_of_a_newer_kscope_is_left_out(tmp_path: Path, capture: Capture, monkeypatch) -> None:
    data = sections.pack(capture)[0]
    monkeypatch.setattr(sections, "pack", lambda capture: (replace(data, name="newer"), data))
    capture.save(tmp_path / "x.kscope")
    assert len(samples_of(kscope.load_capture(tmp_path / "x.kscope"))) == len(samples_of(capture))


def test_a_pause_is_not_sampled() -> None:
    with kscope.profile(stalls=True, period=64) as prof:
        kscope_sim.launch(programs.three, 1, 32, (1,))
        with prof.paused():
            kscope_sim.launch(programs.plain, 4, 32, (50,))
    assert prof.capture.samples is not None
    sampled = {prof.capture.samples.functions[one].name for one in prof.capture.samples.rows["function"]}
    assert sampled == {"three"}


def test_a_reset_drops_samples() -> None:
    with kscope.profile(stalls=True, period=64) as prof:
        kscope_sim.launch(programs.three, 1, 32, (50,))
        prof.reset()
        kscope_sim.launch(programs.three, 1, 32, (1,))
    assert 0 < len(samples_of(prof.capture)) < 9700 // 64


def test_only_the_kept_kernels_have_samples() -> None:
    with kscope.profile(stalls=True, period=64, kernel="thr*") as prof:
        kscope_sim.launch(programs.plain, 1, 32, (5,))
        kscope_sim.launch(programs.three, 1, 32, (5,))
    samples = samples_of(prof.capture)
    assert [one.name for one in samples.functions] == ["three"]
    assert set(samples.rows["function"].tolist()) == {0} and "load" in rows(samples)


def test_the_period_is_in_the_options_and_needs_stalls() -> None:
    assert programs.recorded(period=128).options["period"] == 128
    with pytest.raises(UsageError, match="expected stalls=True beside it"):
        kscope.profile(period=1024)
    for wrong in (100, 16, 1 << 32, True, "1024"):
        with pytest.raises(UsageError, match="expected a power of two from 32"):
            kscope.profile(stalls=True, period=wrong)  # type: ignore[arg-type]  # the point of the test


def test_a_session_that_sampled_nothing_reports_it() -> None:
    with kscope.profile(stalls=True) as prof:
        kscope_sim.launch(programs.three, 1, 32, (0,))
    assert any(one.kind == "unsampled" and "no stall was sampled" in one.text for one in prof.trace.problems)


def test_samples_of_several_devices_become_one_table(capture: Capture) -> None:
    one = samples_of(capture)
    other = replace(one, reasons=("new", *one.reasons), rows=_shifted(one), dropped=3)
    both = joined_samples([one, other])
    assert both is not None
    assert len(both) == 2 * len(one) and both.dropped == 3
    assert rows(both)["load"].reasons == rows(one)["load"].reasons  # each function has its own row


def _shifted(samples: Samples) -> np.ndarray:
    moved = samples.rows.copy()
    moved["reason"] += 1
    return moved
