"""Compares a frontend's recording of a program, and its losses, with the simulator's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from contract import frontend_sim
from contract.judge import check_times, compare, judge
from contract.programs import Program
from contract.reader import Lane, Record, read

from kscope.capture.capture import Capture


def verdict(program: Program, got: Capture) -> list[str]:
    """Every deviation of a recording from the contract; none if it conforms."""
    have, lost = lanes(program, got), sum(device.lost for device in got.devices)
    if program.some:
        return [*_some(program, have, lost)]
    want, missing = definition(program)
    return [*judge(want, have), *([f"{lost} lanes lost, expected {missing}"] if lost != missing else [])]


@lru_cache
def definition(program: Program) -> tuple[list[Lane], int]:
    """The simulator's records: lanes, and how many were lost."""
    capture = frontend_sim.run(program)
    return lanes(program, capture), sum(device.lost for device in capture.devices)


def lanes(program: Program, capture: Capture) -> list[Lane]:
    """The lanes. A slab size chosen by the frontend is not compared; a kernel named like a keyword has an underscore
    appended."""
    found = [replace(lane, kernel=lane.kernel.rstrip("_"), records=_placed(lane)) for lane in read(capture)]
    return found if program.recording.records != "auto" else [replace(lane, capacity=0) for lane in found]


def _placed(lane: Lane) -> tuple[Record, ...]:
    """The records; the value of "sm" is whether it equals the lane's SM, which the machine assigns."""
    return tuple(replace(one, value=one.value == lane.smid) if one.region == "sm" else one for one in lane.records)


def _some(program: Program, have: list[Lane], lost: int) -> Iterator[str]:
    """Any lanes of the whole program, each with all its records; the others were lost, or lie on other SMs."""
    whole, _ = definition(program.whole)
    keys = {lane.key for lane in have if lane.count}
    yield from compare([lane for lane in whole if lane.key in keys], have)
    yield from check_times(have)
    sms = program.subset.sm
    if sms is not None:
        yield from (f"a lane of SM {lane.smid} recorded, which was not chosen" for lane in have if lane.smid not in sms)
        blocks = {lane.block for lane in have if lane.count}
        missing = {lane.key for lane in whole if lane.block in blocks} - keys
        yield from (f"{key} did not record, and others of its block did" for key in missing)
    expected = 0 if program.pool is None else len(whole) - len(keys)
    if lost != expected:
        yield f"{lost} lanes lost, expected {expected}: {len(whole)} lanes run, {len(keys)} recorded"
