"""Samples as a backend returns them, before their code is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..capture.samples import Samples


@dataclass(frozen=True)
class SampledCode:
    """Samples of one device.

    Attributes:
        samples: the counts. Functions have their names, and their code if the backend knows it.
        cubins: the modules of functions without their code.
        cubin_of: index into `cubins` by index of a function.
    """

    samples: Samples
    cubins: tuple[bytes, ...] = ()
    cubin_of: Mapping[int, int] = field(default_factory=dict)
