"""Why a session has no records, if no other problem says so."""

from __future__ import annotations

from dataclasses import replace

from ..capture.capture import Capture
from ..capture.model import DeviceCapture, Problem
from ..decoding import slabs

_MOST_NAMES = 8
_FIRST = 1 << 14


def explained(capture: Capture) -> Capture:
    """The capture; with a problem added if it has neither records nor problems."""
    if capture.problems or any(_has_slabs(device, capture.epoch) for device in capture.devices):
        return capture
    return replace(capture, problems=(Problem("nothing", f"no records: {_reason(capture)}"),))


def _has_slabs(device: DeviceCapture, epoch: int) -> bool:
    parts = (device.lines[:_FIRST], device.lines)  # the first slabs are enough, and reading all takes time
    return any(len(slabs.find(lines, epoch)[0].header) > 0 for lines in parts)


def _reason(capture: Capture) -> str:
    names = sorted({kernel.name for module in capture.modules for kernel in module.kernels})
    if not names:
        return (
            "no kernel with regions was loaded while recording was on; kernels that were compiled before, also by an "
            "earlier process into a library's own cache, have no regions: compile them within the session"
        )
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (
        f"kernels with regions were loaded ({', '.join(names[:_MOST_NAMES])}{more}), but none was launched in the "
        "session, no region was reached, or a strategy, a sampling option or a predicate excluded every warp"
    )
