"""The machine code of kernels with marks that frontends have loaded, for reading stall samples. Frontends keep it
because a library that samples reports only modules that are loaded after its first use.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from ..machine_code import fatbin

MOST = 1 << 12
"""Most images that are kept."""
MOST_BYTES = 64 << 20
"""Memory for images outside files."""
_LEVEL = 1
"""Compression level: a third of the bytes, in less than a millisecond for most cubins."""


@dataclass(frozen=True)
class _Image:
    """A file, which is read when it is needed; or bytes, compressed or shared with the frontend's library."""

    held: Path | bytes
    compressed: bool = False

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return 0 if isinstance(self.held, Path) else len(self.held)

    def read(self) -> bytes:
        data = self.held.read_bytes() if isinstance(self.held, Path) else self.held
        return zlib.decompress(data) if self.compressed else data


_images: dict[Path | bytes, _Image] = {}
"""By path, or by the hash of the bytes; oldest first."""


def keep(image: Path | bytes, *, shared: bool = False) -> None:
    """Remember a loaded image: a cubin, or something with cubins in it, such as a fatbin or a shared object. Code that
    the driver assembles from PTX is unknown.

    Args:
        image: its file, or its bytes.
        shared: the bytes are of an object that mostly lives as long as the module: they are not copied.
    """
    if isinstance(image, Path):
        path = image.absolute()
        _add(path, _Image(path))
    elif next(fatbin.cubins(image), None) is not None:  # not PTX
        key = blake2b(image, digest_size=16).digest()
        _add(key, _images.get(key) or _Image(image if shared else zlib.compress(image, _LEVEL), not shared))


def kept_cubins() -> Iterator[bytes]:
    """The cubins of all images, newest first, without those whose files no longer exist."""
    for image in reversed(_images.copy().values()):
        with suppress(OSError):
            yield from fatbin.cubins(image.read())


def _add(key: Path | bytes, image: _Image) -> None:
    """Add an image as the newest; drop the oldest beyond the limits."""
    _images.pop(key, None)
    if image.size > MOST_BYTES:
        return
    _images[key] = image
    entries = _images.copy()  # another thread may add one
    count, size = len(entries), sum(one.size for one in entries.values())
    for oldest, one in entries.items():
        if count <= MOST and size <= MOST_BYTES:
            break
        _images.pop(oldest, None)
        count, size = count - 1, size - one.size
