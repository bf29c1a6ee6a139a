"""The verdict detects lost records and unexpected lanes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contract import frontend_sim
from contract.programs import BY_NAME
from contract.verdict import verdict

from kscope.capture import layout
from kscope.capture.capture import Capture

EVERY_KIND = ("nested", "scarce_pool", "sampled_sms", "replayed")


def without_a_lane(capture: Capture) -> Capture:
    """The capture without the first slab that has records."""
    (device,) = capture.devices
    lines = device.lines.copy()
    starts = [at for at in range(len(lines)) if lines[at, 0] == layout.HEADER_WORD]
    lines[next(at for at in starts if lines[at + 1, 13])] = 0  # HEADER["count"]
    return replace(capture, devices=(replace(device, lines=lines),))


def with_lost(capture: Capture, more: int) -> Capture:
    (device,) = capture.devices
    return replace(capture, devices=(replace(device, lost=device.lost + more),))


@pytest.mark.parametrize("name", EVERY_KIND)
def test_missing_lanes_are_detected(name: str) -> None:
    program = BY_NAME[name]
    assert verdict(program, frontend_sim.run(program)) == []
    assert verdict(program, without_a_lane(frontend_sim.run(program))) != []


@pytest.mark.parametrize("name", [*EVERY_KIND, "empty_pool", "off"])
def test_unexpected_lost_lanes_are_detected(name: str) -> None:
    program = BY_NAME[name]
    assert any("lanes lost" in text for text in verdict(program, with_lost(frontend_sim.run(program), 1)))


def test_lanes_of_unselected_sms_are_detected() -> None:
    program = BY_NAME["sampled_sms"]
    assert any("not chosen" in text for text in verdict(program, frontend_sim.run(program.whole)))


@pytest.mark.parametrize("name", ["off", "prepared"])
def test_lanes_recorded_outside_a_session_are_detected(name: str) -> None:
    program = BY_NAME[name]
    assert verdict(program, frontend_sim.run(replace(program, state="armed"))) != []


def test_lanes_with_a_wrong_sm_are_detected() -> None:
    program = BY_NAME["words"]
    capture = frontend_sim.run(program)
    (device,) = capture.devices
    lines = device.lines.copy()
    at = next(at for at in range(len(lines)) if lines[at, 0] == layout.HEADER_WORD)
    lines[at, 11] ^= 1 << layout.SMID_SHIFT
    lines[at, 15] ^= 1 << layout.SMID_SHIFT
    assert any("'sm'" in text for text in verdict(program, replace(capture, devices=(replace(device, lines=lines),))))
