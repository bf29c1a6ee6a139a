"""Open regions per lane, checked at every mark. GPU frontends prove pairing on the kernel's text instead."""

from __future__ import annotations

from kscope.errors import PairingError
from kscope.marks.names import format_name


class Nesting:
    """Open regions of one warp. Lanes are bit masks: bit l is lane l.

    ``_levels[name][d]`` are the lanes in which `name` is open more than d times.
    """

    def __init__(self, kernel: str, warp: int) -> None:
        self._where = f"kernel {kernel!r}, warp {warp}"
        self._levels: dict[str, list[int]] = {}

    def enter(self, name: str, lanes: int, *, explicit: bool) -> None:
        """Open a region. A `with` may nest in its own name, as in recursion; an explicit enter may not."""
        levels = self._levels.setdefault(name, [])
        if explicit and levels and levels[0] & lanes:
            raise PairingError(
                f"{self._where}: region {format_name(name)} is entered while it is open; exit it first, use `with`, "
                "or give overlapping work two names"
            )
        for depth, open_here in enumerate(levels):
            levels[depth] |= lanes
            lanes &= open_here
        if lanes:
            levels.append(lanes)

    def exit(self, name: str, lanes: int) -> None:
        """Close a region in these lanes."""
        levels = self._levels.get(name, [])
        if lanes & ~(levels[0] if levels else 0):
            raise PairingError(
                f"{self._where}: region {format_name(name)} is left but was never entered; every exit() needs an "
                "enter() on each path to it"
            )
        for depth in reversed(range(len(levels))):
            closing = lanes & levels[depth]
            levels[depth] &= ~closing
            lanes &= ~closing
        while levels and not levels[-1]:
            levels.pop()

    def at_return(self, lanes: int) -> None:
        """These lanes return from the kernel: no region may be open in them."""
        names = sorted(name for name, levels in self._levels.items() if levels and levels[0] & lanes)
        if names:
            raise PairingError(
                f"{self._where}: returns while {', '.join(map(format_name, names))} is open; exit it on every path, "
                "or use `with`"
            )
