"""Regions that a reader names by source lines, in samples of kernels without marks: load=attn.py:41-47."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...capture.samples import CodeRegion, SampledFunction, Samples
from ...instrument.selection.auto import Lines


def with_named_lines(samples: Samples, lines: Sequence[Lines]) -> Samples:
    """The samples with these regions inside those of the marks; of two ranges, the longer one is outside.

    Args:
        samples: of a capture.
        lines: the ranges.
    """
    order = sorted(lines, key=lambda one: one.first - one.last)
    return replace(samples, functions=tuple(_named(function, order) for function in samples.functions))


def unsampled_ranges(samples: Samples, lines: Iterable[Lines]) -> Iterator[str]:
    """A sentence for each range that no sampled instruction is from."""
    for one in lines:
        if not any(one.covers(*place) for f in samples.functions for chain in f.places for place in chain):
            files = sorted({file for f in samples.functions for chain in f.places for file, _ in chain})
            known = f"those sampled are of {', '.join(files[:5])}" if files else "no source lines are known"
            yield f"{one}: no sampled instruction is from these lines; {known}"


def _named(function: SampledFunction, lines: Sequence[Lines]) -> SampledFunction:
    before = len(function.regions)
    covering = [
        tuple(before + at for at, one in enumerate(lines) if any(one.covers(*place) for place in chain))
        for chain in function.places
    ]
    of = [covering[place] if place >= 0 else () for place in function.place]
    stacks = [(*function.stacks[opened], *own) for opened, own in zip(function.opened, of, strict=True)]
    ranged = [(*function.stacks[opened], *own) for opened, own in zip(function.ranged, of, strict=False)]
    kinds = tuple(dict.fromkeys([(), *stacks, *ranged]))
    number = {stack: at for at, stack in enumerate(kinds)}
    return replace(
        function,
        regions=(*function.regions, *(CodeRegion(one.name, one.file, one.first, one.last) for one in lines)),
        stacks=kinds,
        opened=tuple(number[stack] for stack in stacks),
        ranged=tuple(number[stack] for stack in ranged),
    )
