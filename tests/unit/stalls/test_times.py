"""When samples were taken: windows in the capture, and counters over time in timelines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from replay import replay

from kscope.capture import sample_section
from kscope.capture.samples import Samples, joined_samples
from kscope.errors import FormatError
from kscope.export import sample_counters
from kscope.trace import Trace, decode

from . import programs


@pytest.fixture(scope="module")
def trace() -> Trace:
    return decode(programs.recorded())


def samples(trace: Trace) -> Samples:
    assert trace.samples is not None
    return trace.samples


def launch(trace: Trace) -> tuple[float, float]:
    """Begin and end of the one launch, UNIX ns."""
    return trace.origin + trace.warps.start_ns.min(), trace.origin + trace.warps.end_ns.max()


def test_windows_have_all_samples_and_are_within_the_launch(trace: Trace) -> None:
    windows = samples(trace).windows
    assert int(windows["count"].sum()) == len(samples(trace)) > 1000
    begin, end = launch(trace)
    assert windows["begin"][0] >= begin - 200 and windows["end"][-1] <= end + 200
    assert len(windows) > 100


def area(time: np.ndarray, rate: np.ndarray) -> float:
    """Samples: the counter over its time."""
    return float((np.diff(time) / 1000 * rate[:-1]).sum())


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_a_timeline_has_a_counter_of_each_kernel_s_samples(suffix: str, trace: Trace, tmp_path: Path) -> None:
    file = tmp_path / f"x{suffix}"
    trace.export(file)
    begin, end = launch(trace)
    if suffix == ".json":
        data = json.loads(file.read_text())
        found = [one for one in data["traceEvents"] if one["ph"] == "C"]
        assert {one["name"] for one in found} == {"stall samples: three"}
        time = np.array([round(one["ts"] * 1000) for one in found]) + data["baseTimeNanoseconds"]
        rate = np.array([one["args"]["samples per us"] for one in found])
    else:
        read = replay(file)
        [(gpu, name)] = {track for track, _, _ in read.counters}
        assert gpu == "simulated" and name == "stall samples: three"
        time = np.array([clock for _, clock, _ in read.counters]) + read.realtime
        rate = np.array([value for _, _, value in read.counters])
    assert time[0] >= begin - 1 and time[-1] <= end + 1 and rate[-1] == 0
    assert area(time, rate) == pytest.approx(len(samples(trace)), rel=1e-3)


def test_samples_of_a_window_are_drawn_while_launches_ran(trace: Trace) -> None:
    window = np.array([(0, 10_000, 0, 600), (20_000, 30_000, 0, 50)], samples(trace).windows.dtype)
    begin, end, rate = sample_counters._drawn(window, [(1000, 2000), (1500, 3000), (9000, 11_000)])
    assert list(zip(begin.tolist(), end.tolist(), rate.tolist(), strict=True)) == [
        (1000, 3000, 200.0), (9000, 10_000, 200.0), (20_000, 30_000, 5.0),
    ]  # fmt: skip
    time, steps = sample_counters._steps(begin, end, rate)
    assert time.tolist() == [1000, 3000, 9000, 10_000, 20_000, 30_000]
    assert steps.tolist() == [200, 0, 200, 0, 5, 0]


def test_a_wide_window_is_drawn_within_the_launch(trace: Trace, tmp_path: Path) -> None:
    begin, end = launch(trace)
    wide = np.array([(int(begin) - 10**6, int(end) + 10**6, 0, 48_000)], samples(trace).windows.dtype)
    replace(trace, samples=replace(samples(trace), windows=wide)).export(tmp_path / "x.pftrace")
    read = replay(tmp_path / "x.pftrace")
    [(_, first, rate), (_, last, zero)] = read.counters
    assert abs(read.realtime + first - begin) <= 256 and abs(last - first - (end - begin)) <= 256 and zero == 0
    assert rate == pytest.approx(48_000 / ((last - first) / 1000))


def test_of_a_part_of_the_launches_the_windows_are_drawn_as_they_are(trace: Trace, tmp_path: Path) -> None:
    trace.filter(block=0).export(tmp_path / "x.pftrace")
    read = replay(tmp_path / "x.pftrace")
    assert len(read.counters) > 100


def test_a_capture_keeps_the_windows_and_older_ones_have_none(trace: Trace) -> None:
    data = sample_section.to_bytes(samples(trace))
    assert (sample_section.from_bytes(data).windows == samples(trace).windows).all()
    without = sample_section.to_bytes(replace(samples(trace), windows=samples(trace).windows[:0]))
    older = without.replace(b'"windows":0,', b"")
    older = (int.from_bytes(older[:8], "little") - len(b'"windows":0,')).to_bytes(8, "little") + older[8:]
    assert len(sample_section.from_bytes(older).windows) == 0


@pytest.mark.parametrize("field", ["begin", "end", "function", "count"])
def test_damaged_windows_are_refused(field: str, trace: Trace) -> None:
    windows = samples(trace).windows.copy()
    windows[field][5] = {"begin": -1, "end": 0, "function": 9, "count": 1 << 63}[field]
    with pytest.raises(FormatError, match="a time"):
        sample_section.from_bytes(sample_section.to_bytes(replace(samples(trace), windows=windows)))
    with pytest.raises(FormatError, match="damaged"):
        sample_section.from_bytes(sample_section.to_bytes(samples(trace))[:-101])


def test_windows_of_several_devices_and_of_some_functions_keep_their_functions(trace: Trace) -> None:
    both = joined_samples([samples(trace), samples(trace)])
    assert both is not None and set(both.windows["function"].tolist()) == {0, 1}
    second = both.of([1])
    assert set(second.windows["function"].tolist()) == {0}
    assert int(second.windows["count"].sum()) == len(samples(trace))
