"""One array of bytes: symbols and shared memory below GLOBAL, what tests put there above."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from ptxvm.syntax import Module

Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
GLOBAL, SIZE = 1 << 20, 1 << 26
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class FaultError(Exception):
    """An access that a GPU would not do: outside of its state space, or at an address that is not aligned."""


class Memory:
    """64 MB; addresses are the same in every state space."""

    def __init__(self) -> None:
        self.bytes = np.zeros(SIZE, np.uint8)
        self.top = GLOBAL

    def put(self, values: npt.NDArray[Any]) -> int:
        """The address of a copy."""
        at = self.top = -(-self.top // 256) * 256
        self.top += values.nbytes + 256
        self.bytes[at : at + values.nbytes] = np.ascontiguousarray(values).view(np.uint8).ravel()
        return at

    def get(self, at: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Read memory at an address with the shape and type of `like`."""
        return self.bytes[at : at + like.nbytes].view(like.dtype).reshape(like.shape).copy()

    def symbols(self, module: Module) -> dict[str, int]:
        """Place a module's variables; dynamic shared memory, which has no size, comes last."""
        places, at = {}, 1024
        for symbol in sorted(module.symbols.values(), key=lambda symbol: not symbol.data):
            align = symbol.align if symbol.data else 1024
            at = -(-at // align) * align
            places[symbol.name] = at
            self.bytes[at : at + len(symbol.data)] = np.frombuffer(symbol.data, np.uint8)
            at += len(symbol.data)
        return places

    def load(self, at: Places, size: int, lanes: int, space: str) -> list[Words]:
        """`lanes` words of `size` bytes from each address."""
        self._check(at, size * lanes, space)
        kind = UNSIGNED[size]
        offsets = [at + n * size for n in range(lanes)]
        return [self.bytes[o[:, None] + np.arange(size)].view(kind).ravel().astype(np.uint64) for o in offsets]

    def store(self, at: Places, size: int, words: list[Words], space: str) -> None:
        """The opposite; where two lanes store to one place, the higher lane stays."""
        self._check(at, size * len(words), space)
        for n, word in enumerate(words):
            plain = word.astype(UNSIGNED[size])[:, None].view(np.uint8).reshape(len(at), size)
            self.bytes[(at + n * size)[:, None] + np.arange(size)] = plain

    def _check(self, at: Places, size: int, space: str) -> None:
        if (at % size).any():
            raise FaultError(f"{size} bytes at {hex(int(at[(at % size) > 0][0]))}")
        outside = {"shared": at >= GLOBAL, "global": (at < GLOBAL) | (at + size > self.top)}.get(space)
        if outside is not None and outside.any():
            raise FaultError(f"{hex(int(at[outside][0]))} is not in {space} memory")
