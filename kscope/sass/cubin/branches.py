"""Encodes code addresses in instructions, relative to the next instruction."""

from __future__ import annotations

from .instructions import BYTES

_SHORT = frozenset({0x945})
"""BSSY: 32 bits in one piece, in bytes."""
_LONG = frozenset({0x947, 0x348, 0x944})
"""BRA, WARPSYNC.COLLECTIVE, CALL.REL: in words of 4 bytes, 48 bits; from sm_90 on, 8 more low bits in another place."""
RELATIVE = _SHORT | _LONG
_SHORT_AT, _SHORT_BITS = 32, 32
_LOW_AT, _LOW_BITS, _HIGH_AT, _HIGH_BITS = 16, 8, 34, 48
_WITH_LOW = 90
"""The first architecture with the lower bits."""


def target(word: int, at: int, arch: int) -> int | None:
    """The address that an instruction at `at` names; None if it names none. arch: such as 90."""
    if word & 0xFFF in _SHORT:
        return at + BYTES + _signed(word >> _SHORT_AT & (1 << _SHORT_BITS) - 1, _SHORT_BITS)
    if word & 0xFFF in _LONG:
        high, bits = word >> _HIGH_AT & (1 << _HIGH_BITS) - 1, _HIGH_BITS
        if arch >= _WITH_LOW:
            high, bits = high << _LOW_BITS | word >> _LOW_AT & (1 << _LOW_BITS) - 1, bits + _LOW_BITS
        return at + BYTES + 4 * _signed(high, bits)
    return None


def with_target(word: int, at: int, to: int, arch: int) -> int:
    """The instruction at `at` with the address `to`."""
    distance = to - at - BYTES
    if word & 0xFFF in _SHORT:
        return _put(word, _SHORT_AT, _SHORT_BITS, distance)
    if arch < _WITH_LOW:
        return _put(word, _HIGH_AT, _HIGH_BITS, distance // 4)
    return _put(_put(word, _LOW_AT, _LOW_BITS, distance // 4), _HIGH_AT, _HIGH_BITS, distance // 4 >> _LOW_BITS)


def _put(word: int, at: int, bits: int, value: int) -> int:
    mask = (1 << bits) - 1
    return word & ~(mask << at) | (value & mask) << at


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value
