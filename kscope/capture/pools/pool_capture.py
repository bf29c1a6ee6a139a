"""The records of a pool file (pool_layout.py) as a capture: that of a session that was cut short, or still records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...util.text import counted
from .. import wire
from ..capture_data import CaptureData, DeviceCapture
from ..clock_rows import Layouts
from ..counted_problems import note
from ..expand import Expander
from ..heads import finished
from ..model import Problem
from .pool_arrays import book, drained_slabs, units
from .pool_reading import Pool, entry_of, journal, modules, slabs


def capture_of(pool: Pool) -> CaptureData:
    """The records of a pool file, as the capture of a session that was cut short."""
    # expanding reads a slab's size several times, and trusts it: what may still be written is copied first
    if pool.is_running() or (pool.is_copy and not pool.state["is_final"]):
        pool = replace(pool, data=memoryview(bytes(pool.data)))
    entries = journal(pool)
    device, host = entry_of(entries, "device"), entry_of(entries, "host")
    at, every = np.asarray(slabs(pool)[0], np.int64), units(pool)
    before, lost = drained_slabs(pool)
    heads = every[at]
    described = modules(entries)
    expander = Expander(pool.epoch, pool.header["max_clock_khz"] / 1e6, layouts=Layouts(described))
    entry = book(pool)[heads[:, 0] >> np.uint32(wire.SLOT_SHIFT)]
    stripe, position = np.full(len(at), wire.MAX_SMS + 1, np.uint32), at.astype(np.uint32)
    lines = np.concatenate([before, expander.expand(every, at, entry, stripe, position)])
    open_ = int((~finished(heads)).sum())
    problems = [_cut(pool, open_), *expander.problems()]
    text = " of drained records were overwritten: the pool file keeps the newest"
    note(problems, "overwritten", lost, "batch", text)
    problems += [
        Problem("driver", str(one["text"])) for one in entries if one.get("kind") == "problem" and "text" in one
    ]
    found = DeviceCapture(
        ordinal=pool.header["device"],
        name=str(device.get("name", "")),
        lines=lines,
        sms=pool.header["sms"],
        tick_ns=pool.header["tick_ns"],
        max_clock_khz=pool.header["max_clock_khz"],
    )
    options, facts = host.get("options"), host.get("facts")
    return CaptureData(
        epoch=pool.epoch,
        devices=(found,),
        modules=described,
        options=options if isinstance(options, dict) else {},
        problems=tuple(problems),
        host=facts if isinstance(facts, dict) else {},
    )


def _cut(pool: Pool, unfinished: int) -> Problem:
    process = f"process {pool.pid}"
    if pool.has_ended:
        why = f"{process} ended its session; this is what its pool held then"
    elif pool.is_running():
        why = f"{process} is still running: this is a part of its session, up to now"
    else:
        why = f"{process} is gone and did not end its session: the recording is cut there"
    warps = f"; {counted(unfinished, 'warp')} had not finished" if unfinished else ""
    return Problem("unclosed", f"{why}{warps} (kscope watch {pool.path})", max(1, unfinished))
