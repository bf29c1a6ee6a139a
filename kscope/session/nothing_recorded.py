"""Problems of a session in which nothing could record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..capture.model import ModuleMeta, Problem
from ..errors import MissingError
from ..instrument import registry


def absent(backends: int, missing: Mapping[str, MissingError], modules: Sequence[ModuleMeta]) -> list[Problem]:
    """Reasons why kernels that ran may not be in the recording.

    Args:
        backends: number of armed backends.
        missing: why the others could not be armed, by name.
        modules: the loaded modules.
    """
    if not backends and not missing:
        known = ", ".join(entry.dsl for entry in registry.table().values())
        return [Problem("nothing", f"no supported DSL is imported ({known})")]
    if modules:
        return []
    # without a driver no kernel ran there
    return [Problem("absent", f"nothing is recorded on {name}: {error}") for name, error in tuple(missing.items())]
