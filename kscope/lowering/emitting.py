"""Emits the text of each statement of a marked kernel, in order; finished records wait here to be stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from .. import ptx
from ..capture import layout
from ..instrument.recording import Recording
from ..marks.grammar import Mark
from ..marks.wide_values import is_wide
from ..ptx import cfg
from . import loop_registers
from .deferred_stores import Deferral, Numbers
from .pipeline_marks import gets_buffer, is_number, is_of_lane_0, is_wait, waits

Key = tuple[str, str, int]
"""Key of a slot: name, sort of mark, depth of recursion."""
_TRIED = "attempt"
"""Sort of a slot of instructions that may fail to wait."""


def key_of(mark: Mark, depth: int) -> Key:
    """The slot of a mark; spans come before points of the same name."""
    sort = {"enter": "", "exit": "", "success": _TRIED}.get(mark.act, mark.act)
    return mark.name, sort, depth


@dataclass(frozen=True)
class Record:
    """A record that waits to be stored. owner: predicate of the lanes that store it. elected: one of the lanes that
    were there together stores it, which may have no slab yet. loop: the loop whose registers it uses.
    """

    slot: ptx.Slot
    kind: layout.Kind
    owner: str
    elected: bool
    loop: loop_registers.Loop | None = None

    @property
    def may_stay(self) -> bool:
        """True if it may be stored later, by the same lanes, without a branch."""
        return not self.elected and self.loop is None and not self.slot.wide


class Emitter:
    """Walks a function's statements in order and returns the text that each needs."""

    def __init__(
        self,
        slots: Mapping[Key, ptx.Slot],
        depths: Mapping[int, int],
        recording: Recording,
        kernel: ptx.Kernel,
        after_barrier: Set[int] = frozenset(),
        loops: Sequence[loop_registers.Loop] = (),
        shared: Set[int] = frozenset(),
        sites: Set[int] = frozenset(),
        opens: Set[str] = frozenset(),
        waits: Set[int] = frozenset(),
        deferral: Deferral | None = None,
        deferred: Mapping[int, Sequence[Record]] | None = None,
    ) -> None:
        """Create an emitter.

        Args:
            slots: registers by key.
            depths: depth of recursion of each mark, or its number, by statement index.
            recording: the options.
            kernel: parameters of the text.
            after_barrier: indices of statements whose clock reads follow a barrier.
            loops: loops whose records have their own registers; all their regions are recorded.
            opens: names of regions whose enters are stored before the warp may stay there, and their ends at once.
            waits: indices of statements at which a warp may stay; needed if there are such regions.
            shared: indices of enters that use the clock read of the region that ends right before.
            sites: indices of statements that anchors precede.
            deferral: where loops store records later.
            deferred: which records these are, by the number of an end, as an emitter without this argument found them.
        """
        self.slots, self.depths, self.recording, self.kernel = slots, depths, recording, kernel
        self.after_barrier = after_barrier
        self.loops, self.shared, self.sites, self.opens, self.waits = loops, shared, sites, opens, waits
        self.limit = recording.pending
        self.pending: list[Record] = []
        self.ended: ptx.Slot | None = None  # the slot whose end was read last
        self.stored: Record | None = None  # the last one since the basic block began
        self.attempted = self.claimed = False
        self.opened = ""  # stores of enters that follow the claim
        self.leaves = 0
        self.deferral = deferral if deferral is not None and self.limit and not recording.survive else Deferral()
        self.known, self.deferred = deferred or {}, dict[int, Sequence[Record]]()
        self.at = 0

    def begin(self) -> str:
        """At the top of the entry: declare the loops' registers."""
        declared = "".join(ptx.loop_records.declared(loop.number) for loop in self.loops)
        declared += "".join(ptx.operations.declared(slot) for key, slot in self.slots.items() if key[1] == _TRIED)
        declared += "".join(map(ptx.deferred_records.declared, self.known))
        return declared

    def mark(self, i: int, mark: Mark) -> str:
        self.at = i
        if mark.act == "kernel":
            return ""
        if mark.act == "pin":
            return ptx.pin(mark.operand or "0", is_wide(mark.type))
        slot = self._slot(i, mark)
        text = self._flush(through=slot) + self._fence(i)
        left = [record for number in self.deferral.within.get(i, ()) for record in self.known.get(number, ())]
        if any(record.slot is slot for record in left):
            text += self.kept(self.deferral.within[i])
        if mark.act == "attempt":
            return text + ptx.operations.attempt(self.kernel, slot, mark.operand or "0")
        loop = next((loop for loop in self.loops if i in (loop.enter, loop.leave)), None)
        owner = self.kernel.owner((loop.mark if loop is not None else mark).strategy)
        if mark.act == "enter" and is_wait(mark):
            text += ptx.operations.begin(self.kernel, slot, mark.operand or "0")
            if not self.recording.survive:
                return text
            # finished records stay in registers: lanes that have no slab yet would lose them
            stores = self.kernel.lane_0 if is_of_lane_0(mark) else owner
            return self._claim() + text + ptx.open_word(self.kernel, slot, mark.operand, stores)
        if mark.act == "enter" and waits(mark):
            text += self._shadow(self.deferral.shadows[i]) if i in self.deferral.shadows else ""
            return text + ptx.operations.drain(self.kernel, slot, mark.operand or "0")
        if mark.act == "enter":
            if loop is not None:
                return text + ptx.loop_records.enter(self.kernel, slot, mark.operand, owner, loop.number, loop.long)
            ended = self.ended if i in self.shared else None
            elect = self.kernel.elects(mark.strategy)
            entered = ptx.enter(self.kernel, slot, mark.operand, mark.when, elect, ended, mark.type)
            if mark.name not in self.opens:
                return text + entered
            word = ptx.open_word(self.kernel, slot, mark.operand, owner)
            stores = self._flush()  # finished records are known where this warp stays here
            if not self.claimed and not elect:  # nothing holds the warp before its first wait: the claim goes there
                self.opened += word
                return text + entered
            late = ptx.late(self.kernel, [f"ks_w{slot.index}"]) if elect else ""
            return f"{stores}{self._claim()}{text}{entered}{late}{word}"
        kind = slot.kind
        elected = self.kernel.elects(mark.strategy) and gets_buffer(mark)
        if mark.act == "success":
            text += ptx.operations.success(self.kernel, slot, mark.operand or "0")
        elif mark.how == "pipeline" and mark.act == "instant":
            kind = layout.Kind.INSTANT_VALUE
            text += ptx.operations.point(self.kernel, slot, mark.operand or "0", mark.when, not is_number(mark))
        elif mark.act != "exit":
            kind = layout.Kind.COUNTER if mark.act == "counter" else layout.Kind.INSTANT
            kind = layout.Kind.INSTANT_VALUE if mark.act == "instant" and slot.type else kind
            text += ptx.point(self.kernel, slot, mark.operand, mark.when, self.kernel.elects(mark.strategy), mark.type)
        elif loop is not None:
            text += ptx.loop_records.leave(self.kernel, owner, loop.number, loop.long)
        else:
            text += ptx.leave(self.kernel, slot)
        stores = self.kernel.lane_0 if is_of_lane_0(mark) else owner
        self.pending.append(Record(slot, kind, stores, elected, loop))
        self.ended = slot
        if i in self.deferral.later and all(record.may_stay for record in self.pending):
            return text
        return text + self._flush(keep=0 if mark.act == "exit" and mark.name in self.opens else self.limit)

    def _slot(self, i: int, mark: Mark) -> ptx.Slot:
        return self.slots[key_of(mark, self.depths.get(i, 0))]

    def before_scope(self, i: int, statement: cfg.Statement) -> str:
        """The parts of the claim that must come before a statement within braces."""
        if statement.flushes or statement.mark:
            return self._claim()
        return self._before_access(i, statement)

    def before(self, i: int, statement: cfg.Statement) -> str:
        if not statement.flushes:
            return self._before_access(i, statement)
        self.at = i
        if i in self.deferral.through and i not in self.sites and all(record.may_stay for record in self.pending):
            return self._claim()
        due, anchor = self._anchor(i)
        text = self._claim() + due + (self._defer(i) or self._flush()) + anchor + self._hold(i)
        self.stored = None
        if statement.sort == "leave":
            text += self.kept(self.deferral.within.get(i, ()))
            if not statement.predicate:
                return text + self._fence(i) + ptx.finish(self.kernel)
            self.leaves += 1
            label = f"KS_LEAVE{self.leaves}"
            end = [self._fence(i), ptx.finish(self.kernel)]
            return text + ptx.guarded(statement.predicate, statement.negated, label, end)
        return text

    def kept(self, ends: Numbers, shadow: bool = False) -> str:
        """Store the records that stayed in registers at these ends, if they are there."""
        text = ""
        for number in ends:
            if records := self.known.get(number):
                kept = ptx.deferred_records.kept(number)
                text += "".join(self._store(one, kept, shadow) for one in records) + ptx.deferred_records.gone(number)
        return text

    def _defer(self, i: int) -> str:
        """At an end: leave the pending records in registers, if all may stay there."""
        if i not in self.deferral.ends or not self.pending or not all(record.may_stay for record in self.pending):
            return ""
        number = self.deferral.ends[i]
        self.deferred[number], self.pending = self.pending, []
        return ptx.deferred_records.keep(number)

    def _shadow(self, ends: Numbers) -> str:
        """Store the records that stayed in registers, and the pending ones, while the tensor cores work."""
        pending = self.pending if all(record.may_stay for record in self.pending) else []
        stores = self.kept(ends, shadow=True) + "".join(self._store(record, shadow=True) for record in pending)
        self.pending = [] if pending else self.pending
        return f"{self._claim()}{ptx.deferred_records.keep_after()}{stores}" if stores else ""

    def _hold(self, i: int) -> str:
        """The text before a loop that starts here."""
        entered = [loop for loop in self.loops if i in loop.entries]
        slots = ((loop, self._slot(loop.leave, loop.mark)) for loop in entered)
        held = (ptx.loop_records.hold(self.kernel, slot, slot.kind, loop.number) for loop, slot in slots)
        anchored = self.kernel.anchored and any(loop.nested for loop in entered)
        return ptx.anchor_now(self.kernel) * anchored + "".join(held)

    def _fence(self, i: int) -> str:
        return ptx.barrier_fence(self.kernel) if i in self.after_barrier else ""

    def _claim(self) -> str:
        if self.claimed:
            return ""
        self.claimed = True
        opened, self.opened = self.opened, ""
        return self._attempt() + ptx.claim(self.kernel) + opened

    def _before_access(self, i: int, statement: cfg.Statement) -> str:
        if self.opened and i in self.waits:
            return self._claim()
        return self._attempt() if statement.sort == "access" else ""

    def _attempt(self) -> str:
        if self.attempted:
            return ""
        self.attempted = True
        return ptx.attempt(self.kernel)

    def _flush(self, *, through: ptx.Slot | None = None, keep: int = 0) -> str:
        """Store the oldest pending records: all but `keep`, or all up to the slot `through`."""
        count = len(self.pending) - keep
        if through is not None:
            count = max((n + 1 for n, record in enumerate(self.pending) if record.slot is through), default=0)
        if count <= 0:
            return ""
        out, self.pending = self.pending[:count], self.pending[count:]
        text = self._claim() + self.kept(self.deferral.within.get(self.at, ()))
        elected = [f"ks_w{record.slot.index}" for record in out if record.elected]
        text += ptx.late(self.kernel, list(dict.fromkeys(elected))) if elected else ""
        self.stored = out[-1]
        return text + "".join(map(self._store, out))

    def _anchor(self, i: int) -> tuple[str, str]:
        """At the end of a basic block that has a site: an anchor if its last record is the first after an edge. Returns
        the texts before and after the stores.
        """
        last = self.pending[-1] if self.pending else self.stored
        if last is None or last.loop is not None or i not in self.sites or not self.kernel.anchored:
            return "", ""
        left = self.kept((self.deferral.ends[i],)) if i in self.deferral.ends else ""
        return ptx.due(f"ks_e{last.slot.index}"), ptx.anchor(self.kernel, left)

    def _store(self, record: Record, kept: str = "", shadow: bool = False) -> str:
        owner, loop = record.owner, record.loop
        if loop is None:
            return ptx.store(self.kernel, record.slot, record.kind, owner, kept, shadow)
        return ptx.loop_records.put(self.kernel, record.slot, owner, loop.number, loop.long)
