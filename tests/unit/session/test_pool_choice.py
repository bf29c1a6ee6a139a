"""survive="auto" records where the expected rate of records costs least, and says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import kscope
import kscope_sim
from kscope.capture.capture import load_capture
from kscope.capture.capture_data import DeviceCapture
from kscope.capture.pools.pool_file import PoolDevice
from kscope.cli import main
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset
from kscope.marks.strategies import AllThreads, Elected
from kscope.session.pool_choice import Rates, choice, densest
from kscope.session.survival import Survival
from kscope_sim.machine import GHZ

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
H200 = PoolDevice(0, "NVIDIA H200", 132, can_keep=True)
ALL, SIXTEENTH, FEW = Subset(), Subset.of(block="::32"), Subset.of(block="0:8")


def chosen(subset: Subset, device: PoolDevice = H200, rates: Rates | None = None) -> tuple[str, str]:
    found = choice(device, subset, Elected(), rates or Rates())
    return found.how, found.why


def device(cycles: int, records: int, warps: int = 4) -> DeviceCapture:
    """The simulator's device, as if it had recorded so many records in so many cycles."""
    with kscope.profile() as prof:
        kscope_sim.launch(recorded, grid=warps, block=32, args=(records // warps, cycles))
    (found,) = prof.capture.devices
    return replace(found, name=H200.name, sms=H200.sms)


def recorded(warp: kscope_sim.Warp, records: int, cycles: int) -> None:
    for _ in range(records):
        with kscope.region("r"):
            warp.work(cycles // records)


def test_without_a_reason_to_expect_few_a_keeper_takes_any_rate() -> None:
    assert chosen(ALL) == ("keeper", "all blocks record, at an unknown rate")
    assert choice(H200, FEW, AllThreads(), Rates()).how == "keeper"


def test_where_no_process_can_keep_memory_it_is_a_file() -> None:
    how, why = chosen(ALL, replace(H200, can_keep=False))
    assert how == "shm" and "no second process" in why


@pytest.mark.parametrize("subset", [SIXTEENTH, FEW, Subset.of(sm=range(11))])
def test_sampling_that_leaves_few_sms_needs_no_keeper(subset: Subset) -> None:
    how, why = chosen(subset)
    assert how == "shm" and "SMs that are sampled" in why


@pytest.mark.parametrize("subset", [Subset.of(block="::4"), Subset.of(sm=range(12)), Subset.of(warp=0)])
def test_sampling_that_leaves_many_does_not_help(subset: Subset) -> None:
    assert chosen(subset)[0] == "keeper"


def test_what_an_earlier_session_recorded_decides() -> None:
    rates = Rates()
    rates.learn([device(1_000_000, 4000)], 0, ALL)
    assert chosen(ALL, rates=rates)[0] == "keeper", "of another session: nothing was learned"
    one = device(1_000_000, 4000)
    (epoch,) = {int(number) for number in one.lines[one.lines[:, 0] >> 16 == 0x4B53][:, 1]}
    rates.learn([one], epoch, ALL)
    how, why = chosen(ALL, rates=rates)
    assert how == "shm" and "as dense as an earlier session's" in why
    assert chosen(Subset.of(warp=0), rates=rates)[0] == "keeper", "of other warps nothing is known"
    rates.learn([one], epoch, Subset.of(block="::100"))
    assert chosen(ALL, rates=rates)[0] == "keeper", "a hundredth of the blocks recorded so many"
    assert chosen(Subset.of(block="::100"), rates=rates)[0] == "shm"


def test_the_densest_part_counts_and_not_the_mean() -> None:
    with kscope.profile() as prof:
        kscope_sim.launch(recorded, grid=1, block=32, args=(100, 100_000))
        kscope_sim.launch(recorded, grid=1, block=32, args=(100, 10_000_000))
    (one,) = prof.capture.devices
    assert densest(one, prof.capture.epoch) == pytest.approx(GHZ * 1e6, rel=0.1)


def test_the_capture_has_where_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KSCOPE_SURVIVE_FOLDER", str(tmp_path / "pools"))
    with kscope.profile(tmp_path / "run.kscope", survive="auto") as prof:
        kscope_sim.launch(recorded, grid=1, block=32, args=(4, 1000))
    assert prof.capture.host["survive"] == {"sim0": "shm (simulated memory is the host's)"}
    assert load_capture(tmp_path / "run.kscope").host["survive"] == prof.capture.host["survive"]
    assert main(["info", str(tmp_path / "run.kscope")]) == 0
    assert "survive, sim0  shm (simulated memory is the host's)" in capsys.readouterr().out


def test_a_pool_file_has_where_and_why_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSCOPE_SURVIVE_FOLDER", str(tmp_path / "pools"))
    survival = Survival(Recording(survive="auto"), FEW, 1, 0, {})
    file = survival.open(H200, 1 << 16)
    try:
        why = load_capture(file.path).host["survive"]["gpu0"]
        assert why.startswith("shm (chosen by auto: 200 M records/s expected")
        assert not file.is_copy
    finally:
        survival.end(keep=False)
