"""The devices that a capture lists."""

from __future__ import annotations

from collections.abc import Sequence

from ..capture.capture_data import DeviceCapture


def used_devices(devices: Sequence[DeviceCapture]) -> tuple[DeviceCapture, ...]:
    """Leave out devices that recorded nothing while others did, such as an idle simulator.

    A process keeps every device that it has used, and every session arms them all.

    Args:
        devices: every armed device.

    Returns:
        The devices with data, lost warps, launches before a fault or readings of the timer, in order; all devices if
        there are none, because an empty capture names the devices without records.
    """
    kept = tuple(one for one in devices if len(one.lines) or one.lost or one.begun or one.readings)
    return kept or tuple(devices)
