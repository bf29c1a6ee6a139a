"""A device's entry in the head of a capture."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from .capture_data import BegunLaunch, ClockSync, DeviceCapture, TimerReading
from .head_values import list_of, number


def to_dict(device: DeviceCapture) -> dict[str, Any]:
    """A device's entry in the head, without its data."""
    return {
        "ordinal": device.ordinal,
        "name": device.name,
        "sms": device.sms,
        "lost": device.lost,
        "tick_ns": device.tick_ns,
        "max_clock_khz": device.max_clock_khz,
        "uuid": device.uuid,
        "read_ns": device.read_ns,
        "begun": [[launch.kernel, launch.grid_id, launch.time] for launch in device.begun],
        "readings": [[one.kernel, one.first, one.last] for one in device.readings],
        "syncs": [[sync.host_before, sync.globaltimer, sync.host_after] for sync in device.syncs],
    }


def from_dict(head: dict[str, Any], lines: npt.NDArray[np.uint32]) -> DeviceCapture:
    """The device of an entry. Raises FormatError."""
    syncs = []
    for row in list_of(head, "syncs"):
        match row:
            case [int(before), int(timer), int(after)]:
                syncs.append(ClockSync(before, timer, after))
            case _:
                raise FormatError(f"invalid head: a clock sync is {str(row)[:60]}")
    name, uuid = head.get("name"), head.get("uuid", "")  # earlier captures do not have a UUID
    if not isinstance(name, str) or not isinstance(uuid, str):
        raise FormatError(f"invalid head: a device's name and UUID are {str((name, uuid))[:120]}")
    ordinal, sms = number(head, "ordinal", 0, 1 << 20), number(head, "sms", 0, 1 << 20)
    lost, tick = number(head, "lost", 0, 1 << 62), number(head, "tick_ns", 0, 1 << 40)
    clock = number({"max_clock_khz": 0, **head}, "max_clock_khz", 0, 1 << 30)  # earlier captures do not have it
    read = number({"read_ns": 0, **head}, "read_ns", 0, (1 << 63) - 1)
    begun = tuple(_begun(row) for row in list_of({"begun": [], **head}, "begun"))
    readings = tuple(_reading(row) for row in list_of({"readings": [], **head}, "readings"))
    return DeviceCapture(ordinal, name, lines, sms, lost, tick, tuple(syncs), clock, uuid, read, begun, readings)


def _reading(row: object) -> TimerReading:
    match row:
        case [str(kernel), int(first), int(last)] if 0 <= first <= last < 1 << 62:
            return TimerReading(kernel, first, last)
        case _:
            raise FormatError(f"invalid head: a timer reading is {str(row)[:60]}")


def _begun(row: object) -> BegunLaunch:
    match row:
        case [int(), int(), int()] if all(0 <= one < 1 << 64 for one in row):
            return BegunLaunch(*row)
        case _:
            raise FormatError(f"invalid head: a launch that began is {str(row)[:60]}")
