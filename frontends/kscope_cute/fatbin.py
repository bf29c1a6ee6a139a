"""CuTe's binary: a fatbin with one uncompressed cubin.

magic, version, size of this header, size of the rest        16 bytes
kind, version, size of this header, size of the cubin        16 bytes
architecture, flags, the module's name                       the rest of the second header
cubin
"""

from __future__ import annotations

import struct

from kscope.errors import UnsupportedError

_MAGIC, _CUBIN, _UNIT = 0xBA55ED50, 2, 8
_OUTER, _ENTRY = struct.Struct("<IHHQ"), struct.Struct("<HHIQ")


def with_cubin(binary: bytes, before: bytes, after: bytes) -> bytes:
    """A binary with another cubin.

    Args:
        binary: CuTe's.
        before: the cubin in it.
        after: the other one.

    Raises:
        UnsupportedError: the binary is not of this layout, byte for byte.
    """
    head = len(binary) - len(before)
    if head < _OUTER.size + _ENTRY.size or _wrapped(binary[:head], before) != binary or len(after) % _UNIT:
        raise UnsupportedError("the CuTe DSL's binary is not a fatbin with this cubin alone")
    return _wrapped(binary[:head], after)


def _wrapped(head: bytes, cubin: bytes) -> bytes:
    """A cubin after the headers of another one; their other fields are kept."""
    version, kind_version = _OUTER.unpack_from(head)[1], _ENTRY.unpack_from(head, _OUTER.size)[1]
    inner = len(head) - _OUTER.size
    outer = _OUTER.pack(_MAGIC, version, _OUTER.size, inner + len(cubin))
    entry = _ENTRY.pack(_CUBIN, kind_version, inner, len(cubin))
    return b"".join((outer, entry, head[len(outer) + len(entry) :], cubin))
