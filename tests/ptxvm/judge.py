"""The verdict on a launch: the memory it leaves must follow from the protocol and the oracle. Each check raises
Wrong with a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from kscope.capture import layout, wire
from kscope.instrument.recording import Recording

from .host import STRIPE_OFFSET, Claim, Host, Slab
from .machine import Grid, Thread
from .oracle import Ideal

M32 = 0xFFFFFFFF
Key = tuple[int, int, int, int]


class Wrong(AssertionError):  # noqa: N818  # reads as a verdict
    """The emitted text did something that it must not."""


def require(true: bool, sentence: str) -> None:
    if not true:
        raise Wrong(sentence)


def stores_stay_inside_claimed_slabs(host: Host, units: int) -> None:
    """Every store to the pool is inside a slab granted to the storing thread, and starts at its own line; the
    control block is only added to, and of the launch table only the launch's entry is written."""
    granted: dict[Thread, range] = {}
    for claim in host.claims():
        require(claim.units == units, f"a claim of {claim.units} units where a slab has {units}")
        if claim.granted:
            require(claim.thread not in granted, "a thread was granted two slabs")
            granted[claim.thread] = range(claim.address, claim.address + units * wire.UNIT)
    pool = [range(ring.base, ring.base + len(ring.data)) for ring in host.rings]
    control, table = range(host.control.base, host.control.base + len(host.control.data)), host.launches
    for access in host.memory.log:
        if access.address in table:
            thread, at = access.thread, access.address - table.start
            require(thread.key == (0, 0, 0, 0), f"line {access.line}: an entry written by {thread.key}")
            first = thread.special["%gridid"] % wire.SLOTS * wire.LAUNCH_BYTES
            require(
                access.op == "st" and first <= at and at + access.size <= first + 4 * (wire.CHECK_WORD + 1),
                f"line {access.line}: a store outside of the launch's entry",
            )
        elif access.address in control:
            require(access.op == "add", f"line {access.line}: the control block is written by {access.op}")
            offset = (access.address - control.start - wire.STRIPES_AT) % wire.STRIPE_BYTES
            words = [STRIPE_OFFSET[name] for name in ("head", "skipped", "lost")]
            require(offset in words, f"line {access.line}: an add to byte {offset} of a stripe")
        elif any(access.address in ring for ring in pool):
            own = granted.get(access.thread, range(0))
            require(
                access.address in own and access.address + access.size <= own.stop,
                f"line {access.line}: a store outside of the slab that the thread was granted",
            )


def claims_account_for_every_unit(host: Host, slabs: Sequence[Slab], units: int, recording_threads: set[Key]) -> None:
    """head - skipped moved by the units of the slabs found; lanes without a slab are counted as lost; each
    lane tried its own stripe and then the reserve, and each again where only the ring's edge was in the way. It may
    look at the reserve first, not try where nothing is left, and give up after its last claim."""
    for n, ring in enumerate(host.pool.rings):
        now = host.stripe(n)
        claimed = (int(now["head"]) - ring.head) & M32
        skipped = (int(now["skipped"]) - ring.skipped) & M32
        found = sum(slab.units for slab in slabs if slab.stripe == n)
        require(claimed - skipped == found, f"stripe {n}: {claimed} claimed - {skipped} skipped != {found} found")
        require(int(now["limit"]) == ring.limit and int(now["mask"]) == ring.units - 1, "the host's words changed")
    by_thread: dict[Thread, list[Claim]] = {}
    for claim in host.claims():
        by_thread.setdefault(claim.thread, []).append(claim)
    lost, room = Counter[int](), host.room_when_lost()
    for thread, claims in by_thread.items():
        home = min(thread.special["%smid"], host.pool.stripes)
        stripe: int | None = home
        for claim in claims:
            require(claim.stripe == stripe, f"{thread.key} claimed from stripe {claim.stripe}, expected {stripe}")
            if not claim.edge:
                stripe = None if claim.granted or stripe == host.pool.stripes else host.pool.stripes
        hopeless = stripe == host.pool.stripes != home and room.get(thread, units) < units
        tried = len(claims) == wire.MOST_CLAIMS
        require(stripe is None or hopeless or tried, f"{thread.key} gave up, though stripe {stripe} was left to try")
        if not claims[-1].granted:
            lost[home] += 1
    for n in range(len(host.rings)):
        require(
            int(host.stripe(n)["lost"]) == lost[n], f"stripe {n}: lost is not the {lost[n]} lanes that found no room"
        )
    keys = [slab.key for slab in slabs]
    require(len(set(keys)) == len(keys), "two slabs of one lane")
    require({thread.key for thread in by_thread} == recording_threads, "not the lanes that should have claimed")
    without = {thread.key for thread, claims in by_thread.items() if not claims[-1].granted}
    require(set(keys) == recording_threads - without, "not every granted claim left a slab")


def heads_tell_where_the_lane_was(host: Host, slabs: Sequence[Slab], ideals: Mapping[Key, Ideal]) -> None:
    """Every word of a head has the value determined by the launch."""
    granted = {claim.address: claim for claim in host.claims() if claim.granted}
    for slab in slabs:
        require(granted[slab.address].thread.key == slab.key, f"{slab.key}: not the lane that claimed the slab")
        require(granted[slab.address].stripe == slab.stripe, f"{slab.key}: a slab in another stripe's ring")
        records = (granted[slab.address].units - wire.HEAD_UNITS) * wire.RECORDS_PER_UNIT
        expected = expected_head(host, ideals[slab.key], records.bit_length() - 1)
        for name in wire.HEAD.names:
            found = int(slab.head[name])
            require(found == expected[name], f"{slab.key}: {name} = {found:#x}, expected {int(expected[name]):#x}")


def expected_head(host: Host, one: Ideal, log2: int) -> np.void:
    """HEAD of a finished lane."""
    thread, h = one.thread, np.zeros(1, wire.HEAD)
    special = thread.special
    block = special["%ctaid.x"] + special["%nctaid.x"] * (
        special["%ctaid.y"] + special["%nctaid.y"] * special["%ctaid.z"]
    )
    h["who"] = (
        thread.warp
        | (host.epoch & 1) << wire.EPOCH_SHIFT
        | special["%smid"] << wire.SM_SHIFT
        | special["%gridid"] % wire.SLOTS << wire.SLOT_SHIFT
    )
    h["block"] = thread.lane << wire.LANE_SHIFT | block % (1 << wire.BLOCK_BITS) << wire.BLOCK_SHIFT
    (start_clock, start_time, start_width), (end_clock, end_time, end_width) = one.start, one.end
    h["start_clock"], h["start_time"] = start_clock & M32, start_time // 32 % (1 << 27) | log2 << wire.LOG2_SHIFT
    h["end_clock"], h["end_time"] = end_clock & M32, end_time // 32 & M32
    h["count"] = len(one.events)
    high_start, high_end = ((clock >> 32 & 255) << 8 | time >> 32 & 255 for clock, time, _ in (one.start, one.end))
    h["seal"] = (
        min(255, max(start_width, end_width) // 4 + 1)
        | (special["%gridid"] >> 16 & 0xFF) << wire.GRID_SHIFT
        | (high_end - high_start) % (1 << 16) << wire.TURNS_SHIFT
    )
    found = h[0]
    assert isinstance(found, np.void)
    return found


def entries_describe_the_launch(
    host: Host, slabs: Sequence[Slab], first: Ideal, shape: Grid, recording: Recording, kernel: int, about: int
) -> None:
    """Each slab has a valid entry, and every word of it the value determined by the launch. first: the first thread of
    block 0; about: log2 of the records and, from bit 5 on, the flags of the strategy."""
    cx, cy, cz = shape.cluster
    flags = layout.FLAG_GLOBALTIMER * (recording.clock == "globaltimer") | layout.FLAG_STOP * (recording.fill == "stop")
    e = np.zeros(1, wire.LAUNCH)
    e["grid_id"], e["kernel"] = first.thread.special["%gridid"], kernel
    e["nctaid_x"], e["nctaid_yz"] = shape.grid[0], shape.grid[1] | shape.grid[2] << 16
    e["ntid"] = shape.block[0] - 1 | shape.block[1] - 1 << 10 | shape.block[2] - 1 << 20
    e["cluster"] = cx << 8 | cy << 16 | cz << 24 if cx * cy * cz > 1 else 0
    e["time"] = first.start[1]
    e["layout"] = about << layout.LOG2_SHIFT | flags << layout.FLAG_SHIFT
    e["check"] = wire.launch_check(e, host.epoch)
    for slab in slabs:
        require(slab.entry is not None, f"{slab.key}: its launch has no entry")
        for name in wire.LAUNCH.names:
            found = None if slab.entry is None else slab.entry[name]
            require(bool(np.all(found == e[0][name])), f"entry.{name} = {found}, expected {e[0][name]}")


def records_are_the_marks_in_order(slabs: Sequence[Slab], ideals: Mapping[Key, Ideal], recording: Recording) -> None:
    """Each slab holds exactly the newest (ring) or oldest (stop) of the lane's records, in order of their
    ends, and cleared memory behind them."""
    for slab in slabs:
        size = len(slab.ring)
        events = ideals[slab.key].events
        kept = events[:size] if recording.fill == "stop" else events[max(0, len(events) - size) :]
        found = [tuple(int(word) for word in record) for record in slab.records()]
        expected = [(event.start, event.id, event.end, event.value) for event in kept]
        require(found == expected, f"{slab.key}: records {found}, expected {expected}")
        require(not slab.ring[len(events) :].view("<u4").any(), f"{slab.key}: bytes behind the last record")
