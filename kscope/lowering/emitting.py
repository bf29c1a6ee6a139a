"""What text each statement of a marked kernel needs, in their order: records wait here to be stored.

What lives here: the walk, and the records that are pending on the way. What does not: which statements there are
(cfg.py), which marks are kept and in what slots (plan.py), the instructions (ptx/).
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from .. import layout, ptx
from ..marks import Mark
from ..recording import Recording
from . import cfg

Key = tuple[str, str, int]
"""A slot's: name, sort of mark, depth of recursion."""


def key_of(mark: Mark, depth: int) -> Key:
    """Slots by name, sort of mark, and depth of recursion; spans before points of the same name."""
    return mark.name, "" if mark.act in ("enter", "exit") else mark.act, depth


class Emitter:
    """Walks a function's statements in order and says what text each needs; holds the pending records."""

    def __init__(
        self,
        slots: Mapping[Key, ptx.Slot],
        depths: Mapping[int, int],
        recording: Recording,
        kernel: ptx.Kernel,
        behind: Set[int] = frozenset(),
    ) -> None:
        """behind: indices of statements whose clock reads stand behind a barrier."""
        self.slots, self.depths, self.recording, self.kernel = slots, depths, recording, kernel
        self.behind = behind
        self.limit = 0 if recording.live else recording.pending
        self.pending: list[tuple[ptx.Slot, layout.Kind, str | None]] = []
        self.attempted = self.claimed = False
        self.leaves = 0

    def begin(self) -> str:
        """At the entry's top: nothing, but a live recording claims at once."""
        return self._claim() if self.recording.live else ""

    def mark(self, i: int, mark: Mark) -> str:
        if mark.act == "kernel":
            return ""
        if mark.act == "pin":
            return ptx.pin(mark.operand or "0")
        slot = self.slots[key_of(mark, self.depths.get(i, 0))]
        text = self._flush(through=slot) + self._settle(i)
        if mark.act == "enter":
            return text + ptx.enter(self.kernel, slot, mark.operand, mark.when, self.kernel.elects(mark.strategy))
        kind = slot.kind
        if mark.act == "exit":
            text += ptx.leave(self.kernel, slot)
        else:
            kind = layout.Kind.COUNTER if mark.act == "counter" else layout.Kind.INSTANT
            kind = layout.Kind.INSTANT_VALUE if mark.act == "instant" and slot.type else kind
            text += ptx.point(self.kernel, slot, mark.operand, mark.when, self.kernel.elects(mark.strategy))
        self.pending.append((slot, kind, mark.strategy))
        return text + self._flush(keep=self.limit)

    def before_scope(self, statement: cfg.Statement) -> str:
        """What a statement within braces will need of the claim."""
        if statement.sort == "access":
            return self._attempt()
        return self._claim() if statement.flushes or statement.mark else ""

    def before(self, i: int, statement: cfg.Statement) -> str:
        if statement.sort == "access":
            return self._attempt()
        text = self._claim() + self._flush()
        if statement.sort == "leave":
            if not statement.predicate:
                return text + self._settle(i) + ptx.finish()
            self.leaves += 1
            label = f"KS_LEAVE{self.leaves}"
            return text + ptx.guarded(statement.predicate, statement.negated, label, [self._settle(i), ptx.finish()])
        return text

    def _settle(self, i: int) -> str:
        return ptx.settle(self.kernel) if i in self.behind else ""

    def _claim(self) -> str:
        if self.claimed:
            return ""
        self.claimed = True
        return self._attempt() + ptx.claim(self.kernel)

    def _attempt(self) -> str:
        if self.attempted:
            return ""
        self.attempted = True
        return ptx.attempt(self.kernel)

    def _flush(self, *, through: ptx.Slot | None = None, keep: int = 0) -> str:
        """Stores the oldest pending records, all but `keep`, or up to and with the slot `through`."""
        count = len(self.pending) - keep
        if through is not None:
            count = max((n + 1 for n, record in enumerate(self.pending) if record[0] is through), default=0)
        if count <= 0:
            return ""
        out, self.pending = self.pending[:count], self.pending[count:]
        text = self._claim()
        elected = [f"ks_w{slot.index}" for slot, _, spec in out if self.kernel.elects(spec)]
        text += ptx.late(self.kernel, list(dict.fromkeys(elected))) if elected else ""
        return text + "".join(ptx.store(self.kernel, slot, kind, self.kernel.owner(spec)) for slot, kind, spec in out)
