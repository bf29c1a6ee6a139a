"""The verdict on a launch: the memory it leaves must follow from the protocol and the oracle. Each check raises
Wrong with a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from kscope.capture import layout
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
    control block is only added to."""
    granted: dict[Thread, range] = {}
    for claim in host.claims():
        require(claim.units == units, f"a claim of {claim.units} units where a slab has {units}")
        if claim.granted:
            require(claim.thread not in granted, "a thread was granted two slabs")
            granted[claim.thread] = range(claim.address, claim.address + units * layout.UNIT)
    pool = [range(ring.base, ring.base + len(ring.data)) for ring in host.rings]
    control = range(host.control.base, host.control.base + len(host.control.data))
    for access in host.memory.log:
        if access.address in control:
            require(access.op == "add", f"line {access.line}: the control block is written by {access.op}")
            offset = (access.address - control.start - layout.GATE_BYTES) % layout.STRIPE_BYTES
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
        tried = len(claims) == layout.MOST_CLAIMS
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


def headers_tell_where_the_lane_was(
    host: Host,
    slabs: Sequence[Slab],
    ideals: Mapping[Key, Ideal],
    shape: Grid,
    recording: Recording,
    kernel: int,
    flags_set: int,
) -> None:
    """Every header word has the value determined by the launch."""
    claims = {claim.address: claim for claim in host.claims() if claim.granted}
    for slab in slabs:
        one, claim = ideals[slab.key], claims[slab.address]
        expected = expected_header(host, slab, one, claim, shape, recording, kernel, flags_set)
        for name in layout.HEADER.names or ():
            require(
                bool(np.all(slab.header[name] == expected[name])),
                f"{slab.key}: header.{name} = {slab.header[name]}, expected {expected[name]}",
            )


def expected_header(
    host: Host, slab: Slab, one: Ideal, claim: Claim, shape: Grid, recording: Recording, kernel: int, flags_set: int
) -> np.void:
    """HEADER of a finished lane."""
    thread, h = one.thread, np.zeros(1, layout.HEADER)
    x, y, z, _ = thread.key
    flags = (
        layout.FLAG_GLOBALTIMER * (recording.clock == "globaltimer")
        | layout.FLAG_STOP * (recording.fill == "stop")
        | flags_set
    )
    log2 = len(slab.ring).bit_length() - 1
    cx, cy, cz = shape.cluster
    h["magic"], h["epoch"], h["kernel"] = layout.HEADER_WORD, host.epoch, kernel
    h["grid_id"] = thread.special["%gridid"]
    h["ctaid_x"], h["ctaid_yz"] = x, y | z << 16
    h["nctaid_x"], h["nctaid_yz"] = shape.grid[0], shape.grid[1] | shape.grid[2] << 16
    h["ntid"] = shape.block[0] - 1 | shape.block[1] - 1 << 10 | shape.block[2] - 1 << 20
    h["place"] = (
        thread.lane
        | thread.warp << layout.WARP_SHIFT
        | log2 << layout.LOG2_SHIFT
        | flags << layout.FLAG_SHIFT
        | thread.special["%smid"] << layout.SMID_SHIFT
    )
    if cx * cy * cz > 1:
        h["cluster"] = thread.special["%cluster_ctarank"] | cx << 8 | cy << 16 | cz << 24
    h["position"], h["stripe"] = claim.position, claim.stripe
    h["start_clock"], h["start_time"], h["start_width"] = one.start
    h["end_clock"], h["end_time"], h["end_width"] = one.end
    h["count"] = len(one.events)
    h["done"] = layout.DONE_WORD ^ len(one.events) ^ one.end[0] & M32
    h["check"] = layout.header_check(h.view("<u4").reshape(1, 32))[0]
    found = h[0]
    assert isinstance(found, np.void)
    return found


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
