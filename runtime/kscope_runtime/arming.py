"""Modules: their metadata, and the address of the control block in each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kscope.capture import layout, wire
from kscope.capture.metadata import from_json, to_json
from kscope.capture.model import ModuleMeta, Problem
from kscope.errors import FormatError, UsageError
from kscope.machine_code import control_words

from .device import Device


class Modules:
    """The metadata of every module compiled for recording in this process, including unloaded ones."""

    def __init__(self) -> None:
        self._metas: dict[bytes, ModuleMeta] = {}
        self.problems: list[Problem] = []

    def metas(self) -> tuple[ModuleMeta, ...]:
        """The metadata, each once, in the order of loading."""
        return tuple(self._metas.values())

    def add(self, metas: Iterable[ModuleMeta]) -> None:
        """Add metadata of modules that carry none."""
        for meta in metas:
            self._metas.setdefault(to_json(meta), meta)

    def loaded(self, module: int, device: Device) -> tuple[ModuleMeta, ...]:
        """Arm a module that was loaded on the device. Unreadable metadata becomes a problem, and the module stays
        unarmed.
        """
        try:
            return self.bind(module, device)
        except (FormatError, UsageError) as error:
            self.problems.append(Problem("metadata", f"a module was not armed: {error}"))
            return ()

    def bind(self, module: int, device: Device, known: Sequence[ModuleMeta] = ()) -> tuple[ModuleMeta, ...]:
        """Arm a module that was loaded on the device.

        Args:
            module: the driver's handle.
            device: its device.
            known: metadata for a module that carries none.

        Returns:
            Its metadata.

        Raises:
            UsageError: it was not compiled for recording, or its metadata is unknown.
            FormatError: its metadata cannot be read.
        """
        control = device.driver.symbol(module, wire.CTL_SYMBOL)
        if control is None:
            raise UsageError(
                "the module has no kscope marks: its kernels have no regions, or were compiled plain; compile them "
                "after kscope.enable(), with KSCOPE=1 in the environment, or with nvcc -DKSCOPE=1"
            )
        described = device.driver.symbol(module, layout.META_SYMBOL)
        if described is None:
            if not known:
                raise UsageError(
                    f"the module has {wire.CTL_SYMBOL} but no {layout.META_SYMBOL}: the names of an nvcc "
                    "build are in its file; pass that, too: kscope.bind(module, 'kernels.cubin')"
                )
            found = tuple(known)
            self.add(found)
        else:
            data = device.read(*described)
            if data not in self._metas:
                self._metas[data] = from_json(data)
            found = (self._metas[data],)
        if device.read(*control) == control_words.UNPATCHED.to_bytes(8, "little"):
            raise UsageError(
                "the module has kernels of placement='schedule' whose machine code has no address of this device's "
                "records, because it was not loaded by the frontend that compiled them: load it with that, or compile "
                "with placement='fence'"
            )
        device.bind(control[0], found)
        return found
