"""Modules: which of them are prepared, what they say of themselves, and where they find the control block.

What lives here: what is done once for each module that is loaded. What does not: when a module is loaded
(frontends know), the control block (device.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kscope.capture import layout
from kscope.capture.metadata import from_json, to_json
from kscope.capture.model import ModuleMeta, Problem
from kscope.errors import FormatError, UsageError

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

    def loaded(self, module: int, device: Device) -> None:
        """Arm a prepared module that was loaded on the device; one that does not say what it records is left at rest,
        with a problem."""
        try:
            self.bind(module, device)
        except (FormatError, UsageError) as error:
            self.problems.append(Problem("metadata", f"a module was not armed: {error}"))

    def bind(self, module: int, device: Device, known: Sequence[ModuleMeta] = ()) -> tuple[ModuleMeta, ...]:
        """Arm a module that was loaded on the device, and say what it records: itself, or else what is `known`.
        Raises UsageError where it is not prepared or nobody says; FormatError for words that mean nothing."""
        control = device.driver.symbol(module, layout.CTL_SYMBOL)
        if control is None:
            raise UsageError(
                "the module has nothing of kscope in it: its kernels have no regions, or were compiled plain; compile "
                "them after kscope.enable() or with KSCOPE=1 in the environment, or with nvcc -DKSCOPE=1"
            )
        described = device.driver.symbol(module, layout.META_SYMBOL)
        if described is None:
            if not known:
                raise UsageError(
                    f"the module has {layout.CTL_SYMBOL} but no {layout.META_SYMBOL}: the names of what nvcc built in "
                    "place are in its file; give that as well: kscope.bind(module, 'kernels.cubin')"
                )
            found = tuple(known)
            self.told(found)
        else:
            data = device.read(*described)
            if data not in self._metas:
                self._metas[data] = from_json(data)
            found = (self._metas[data],)
        device.bind(control[0])
        return found
