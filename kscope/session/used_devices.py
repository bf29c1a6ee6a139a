"""The devices that a capture lists."""

from __future__ import annotations

from collections.abc import Sequence

from ..capture.capture_data import DeviceCapture


def used(devices: Sequence[DeviceCapture]) -> tuple[DeviceCapture, ...]:
    """Leave out the devices that did nothing in a session in which others recorded, such as an idle simulator.

    A process keeps every device that it has used once, and each is armed with every session.

    Args:
        devices: every armed device.

    Returns:
        Those with data, lost warps, launches before a fault or readings of the timer, in order. All if none has any:
        an empty capture tells where nothing was recorded.
    """
    kept = tuple(one for one in devices if len(one.lines) or one.lost or one.begun or one.readings)
    return kept or tuple(devices)
