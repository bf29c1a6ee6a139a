"""Modules: which of them are prepared, what they say of themselves, and where they find the control block.

What lives here: what is done once for each module that is loaded. What does not: when a module is loaded
(frontends know), the control block (device.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from kscope import layout
from kscope.capture import ModuleMeta, Problem
from kscope.errors import FormatError
from kscope.meta import from_json, to_json

from .device import Device


class Modules:
    """What every prepared module of this process has said, those unloaded since included."""

    def __init__(self) -> None:
        self._metas: dict[bytes, ModuleMeta] = {}
        self.problems: list[Problem] = []

    def metas(self) -> tuple[ModuleMeta, ...]:
        """Each once, in the order of their loading."""
        return tuple(self._metas.values())

    def told(self, metas: Iterable[ModuleMeta]) -> None:
        """What somebody else says of modules that cannot say it themselves."""
        for meta in metas:
            self._metas.setdefault(to_json(meta), meta)

    def loaded(self, module: int, device: Device) -> bool:
        """Arm a module that was loaded on the device; False when it is not prepared, or does not say what
        it records (then it is left at rest, with a problem)."""
        control = device.driver.symbol(module, layout.CTL_SYMBOL)
        if control is None:
            return False
        described = device.driver.symbol(module, layout.META_SYMBOL)
        if described is None:
            self.problems.append(
                Problem("metadata", f"a module has {layout.CTL_SYMBOL} but no {layout.META_SYMBOL}: not armed")
            )
            return False
        data = device.read(*described)
        if data not in self._metas:
            try:
                self._metas[data] = from_json(data)
            except FormatError as error:
                self.problems.append(Problem("metadata", f"a module was not armed: {error}"))
                return False
        device.bind(control[0])
        return True
