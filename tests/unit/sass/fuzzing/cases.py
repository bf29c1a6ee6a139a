"""The case of a seed: a kernel, its recording, and its launch."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from ptxvm.host import Pool, Ring
from ptxvm.machine import Clocks, Grid
from sassvm.launching import ROOMY

from kscope import ptx
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset
from kscope.marks.strategies import parse_strategy

from ..kernels import ASSEMBLERS
from .texts import Outline
from .trees import tree

SPECS = ("elected", "elected", "elected", "all", "lane0-warp0", "warps:0,2", "warps:1")
BLOCKS = ((64, 1, 1), (64, 1, 1), (32, 1, 1), (96, 1, 1), (33, 1, 1), (1, 1, 1), (16, 4, 1), (8, 3, 2), (4, 4, 4))
_NOT_RENAMED = ("copy", "barrier", "wgmma")
"""Statements of whose instructions renaming.py does not know all registers."""
ID = ("0x11112222", "0x33334444")


@dataclass(frozen=True)
class Drawn:
    """A case.

    Attributes:
        seed: what it was drawn from.
        outline: the kernel.
        kernel: what the texts of the protocol depend on.
        tool: ptxas.
        number: the kernel's second parameter.
        renamed: the plain code gets other registers first.
        elsewhere: marks are placed at other slots of those that serve as well.
        moved: the kernel moves the control block's address.
    """

    seed: int
    outline: Outline
    kernel: ptx.Kernel
    tool: str
    number: int
    shape: Grid
    pool: Pool
    subset: Subset
    size: int
    epoch: int
    bound: bool
    smid: int
    grid_id: int
    clocks: Clocks
    memory: bytes
    renamed: bool
    elsewhere: bool
    moved: bool


def drawn(seed: int, arch: int = 90) -> Drawn:
    """The case of a seed."""
    dice = Random(seed)
    rename = dice.random() < 0.4
    block = dice.choice(BLOCKS)
    live = dice.choice((0, 0, 0, 0, 12, 24, 48, 90))
    directives = dice.choice(("", "", "", f".maxnreg {dice.choice((32, 40, 64))}", ".minnctapersm 8"))
    outline = Outline(arch, block, tree(dice, _NOT_RENAMED if rename else ()), live, directives, dice.random() < 0.3)
    spec, log2 = dice.choice(SPECS), dice.choice((2, 2, 3, 4, 4, 6))
    recording = Recording(records=1 << log2, strategy=parse_strategy(spec))
    sized = "4096" if dice.random() < 0.3 else None
    kernel = ptx.Kernel(
        recording, (spec,), log2, ID, arch, flat=outline.flat and dice.random() < 0.7, size_offset=sized
    )
    grid = dice.choice(((1, 1, 1), (2, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2)))
    rare = dice.random() < 0.3
    steps = tuple(dice.choice((0, 1, 3, 70, 1 << 16, 1 << 30)) for _ in range(3))
    return Drawn(
        seed, outline, kernel, dice.choice(ASSEMBLERS), dice.choice((0, 1, 1, 2, 3, 4, 5, 6)), Grid(grid, block),
        Pool(tuple(_ring(dice) for _ in range(dice.choice((2, 3))))) if rare else ROOMY,
        _subset(dice) if dice.random() < 0.25 else Subset(), dice.choice((4, 8, 16)),
        0 if dice.random() < 0.04 else dice.choice((6, 7)), dice.random() > 0.03, dice.choice((0, 1, 5, 131)),
        dice.randrange(1 << 48), Clocks(dice.randrange(1 << 40), dice.randrange(1 << 60), steps),
        dice.randbytes(4096), rename, dice.random() < 0.4, dice.random() < 0.6,
    )  # fmt: skip


def _ring(dice: Random) -> Ring:
    size = dice.choice((0, 3, 4, 5, 6, 7, 10))
    free = dice.choice((None, None, dice.randrange((1 << size) + 1)))
    return Ring(size, dice.choice((0, 7, dice.randrange(1 << 32), 0xFFFFFFFA)), free)


def _subset(dice: Random) -> Subset:
    blocks = dice.choice((None, None, slice(dice.randrange(2), None, dice.choice((1, 2, 3)))))
    return Subset.of(blocks, dice.choice((None, None, (0, 2))), dice.choice((None, None, (0, 5))))
