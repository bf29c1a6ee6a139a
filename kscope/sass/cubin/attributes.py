"""Attributes of a kernel in its `.nv.info` sections, some of which hold code addresses. An entry has a format, a
number, and a value of two bytes or a size and that many bytes; names are nvdisasm's (EIATTR_...).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...errors import FormatError, UnsupportedError

_SIZED = 4
EXITS, REGISTERS, FRAME, STACK, THREADS, MOST_THREADS = 0x1C, 0x2F, 0x11, 0x1E, 0x10, 0x05
"""EXIT_INSTR_OFFSETS, REGCOUNT, FRAME_SIZE, CRS_STACK_SIZE, REQNTID, MAX_THREADS."""
WARPS, MASKS = 0x28, 0x29
"""COOP_GROUP_INSTR_OFFSETS, COOP_GROUP_MASK_REGIDS: warp-wide instructions, and the register of each one's mask."""
_CONSTANT_MASK = 0xFFFFFFFF
ADDRESSES = {
    0x1C: (4, 0),  # EXIT_INSTR_OFFSETS
    0x1D: (4, 0),  # S2RCTAID_INSTR_OFFSETS
    0x25: (4, 0),  # LD_CACHEMOD_INSTR_OFFSETS
    0x27: (4, 0),  # ATOM_SYS_INSTR_OFFSETS
    0x28: (4, 0),  # COOP_GROUP_INSTR_OFFSETS
    0x31: (4, 0),  # INT_WARP_WIDE_INSTR_OFFSETS
    0x39: (16, 0),  # MBARRIER_INSTR_OFFSETS: address, register, offset, kind
    0x44: (8, 0),  # UNUSED_LOAD_BYTE_OFFSET: address, mask
    0x46: (4, 0),  # SYSCALL_OFFSETS
    0x47: (4, 0),  # SW_WAR_MEMBAR_SYS_INSTR_OFFSETS
    0x55: (8, 4),  # ANNOTATIONS: kind, address
}
"""Attributes with code addresses: bytes of an element, and the offset of the address in it."""
ANNOTATIONS, _SPILL = 0x55, 1
"""The kind of annotation with known elements: an access that stores or loads a spilled register."""
PLAIN = frozenset(
    {
        0x04,  # CTAIDZ_USED
        0x05,  # MAX_THREADS
        0x0A,  # PARAM_CBANK
        0x10,  # REQNTID
        0x11,  # FRAME_SIZE
        0x12,  # MIN_STACK_SIZE
        0x17,  # KPARAM_INFO
        0x18,  # SMEM_PARAM_SIZE
        0x19,  # CBANK_PARAM_SIZE
        0x1B,  # MAXREG_COUNT
        0x1E,  # CRS_STACK_SIZE
        0x23,  # MAX_STACK_SIZE
        0x29,  # COOP_GROUP_MASK_REGIDS
        0x2F,  # REGCOUNT
        0x35,  # SW1850030_WAR: no number, for sm_80 and sm_86
        0x36,  # SW_WAR
        0x37,  # CUDA_API_VERSION
        0x38,  # NUM_MBARRIERS
        0x3D,  # CTA_PER_CLUSTER
        0x3E,  # EXPLICIT_CLUSTER
        0x3F,  # MAX_CLUSTER_RANK
        0x41,  # RESERVED_SMEM_USED
        0x42,  # RESERVED_SMEM_0_SIZE
        0x45,  # KPARAM_INFO_V2
        0x4C,  # NUM_BARRIERS
        0x50,  # SPARSE_MMA_MASK
        0x54,  # REG_RECONFIG
        0x5F,  # MERCURY_ISA_VERSION
        0x66,  # these three are numbers: 3, 1 and 0 in every known cubin
        0x6B,
        0x6D,
    }
)
"""Attributes without code addresses."""


@dataclass(frozen=True)
class Attribute:
    """One entry: its format, number, and bytes (two where the format has no size)."""

    format: int
    number: int
    payload: bytes


def read(content: bytes) -> tuple[Attribute, ...]:
    """The attributes of a section, in order.

    Raises:
        FormatError: it ends within an attribute.
    """
    return tuple(_read(content))


def _read(content: bytes) -> Iterator[Attribute]:
    at = 0
    while at < len(content):
        head = content[at : at + 4]
        size = int.from_bytes(head[2:], "little") if head[0] == _SIZED else 0
        payload = content[at + 4 : at + 4 + size] if head[0] == _SIZED else head[2:]
        if len(head) < 4 or len(payload) < size:
            raise FormatError("damaged cubin: .nv.info ends within an attribute")
        yield Attribute(head[0], head[1], payload)
        at += 4 + size


def write(attributes: Sequence[Attribute]) -> bytes:
    """The content of a section."""
    return b"".join(
        bytes((one.format, one.number))
        + (struct.pack("<H", len(one.payload)) if one.format == _SIZED else b"")
        + one.payload
        for one in attributes
    )


def with_registers(content: bytes, count: Callable[[int, int], int]) -> bytes:
    """The section of all kernels with new register counts; `count` takes a symbol's number and its registers."""
    made = list[Attribute]()
    for one in read(content):
        if one.number == REGISTERS:
            symbol, before = (int.from_bytes(part, "little") for part in (one.payload[:4], one.payload[4:]))
            one = replace(one, payload=one.payload[:4] + count(symbol, before).to_bytes(4, "little"))
        made.append(one)
    return write(made)


def addresses(attribute: Attribute) -> tuple[int, ...]:
    """The code addresses that an attribute holds.

    Raises:
        UnsupportedError: the attribute is not known.
    """
    if attribute.number in PLAIN:
        return ()
    step, first = ADDRESSES.get(attribute.number, (0, 0))
    words = range(0, len(attribute.payload), step or 1)
    kinds = {attribute.payload[at] for at in words} if attribute.number == ANNOTATIONS else {_SPILL}
    if not step or len(attribute.payload) % step or kinds != {_SPILL}:
        raise UnsupportedError(f"the cubin has an attribute that kscope does not know: {attribute.number:#x}")
    return tuple(int.from_bytes(attribute.payload[at + first :][:4], "little") for at in words)


def move_addresses(attribute: Attribute, place: Callable[[int], int]) -> Attribute:
    """The attribute of code that was moved. place: maps the old address of an instruction to the new one."""
    if not addresses(attribute):
        return attribute
    out, (step, first) = bytearray(attribute.payload), ADDRESSES[attribute.number]
    for number, address in enumerate(addresses(attribute)):
        struct.pack_into("<I", out, number * step + first, place(address))
    return Attribute(attribute.format, attribute.number, bytes(out))


def with_listed(attributes: Sequence[Attribute], listed: Sequence[tuple[int, tuple[int, ...]]]) -> list[Attribute]:
    """The attributes with more instructions in their lists.

    Args:
        attributes: those of the kernel.
        listed: address of an instruction, and the numbers of the attributes that list it. An instruction in WARPS
            has an element in MASKS, too; for an inserted one it says that the mask is a constant.
    """
    made = list(attributes)
    for number in sorted({number for _, numbers in listed for number in numbers}):
        new = [(at, _CONSTANT_MASK) for at, numbers in listed if number in numbers]
        old = {one.number: one for one in made}
        places = addresses(old[number]) if number in old else ()
        masks = struct.unpack(f"<{len(places)}I", old[MASKS].payload) if number == WARPS and MASKS in old else ()
        if number == WARPS and len(masks) != len(places):
            raise UnsupportedError("the cubin's lists of warp-wide instructions and of their masks differ")
        merged = sorted([*zip(places, masks or (_CONSTANT_MASK,) * len(places), strict=True), *new])
        lists = {number: [at for at, _ in merged]}
        if number == WARPS:
            lists[MASKS] = [mask for _, mask in merged]
        for key, values in lists.items():
            made = _put(made, Attribute(_SIZED, key, struct.pack(f"<{len(values)}I", *values)))
    return made


def with_more(attributes: Sequence[Attribute], more: Sequence[Attribute]) -> list[Attribute]:
    """The attributes, and those of `more` whose numbers they lack."""
    made, known = list(attributes), {one.number for one in attributes}
    for one in more:
        made = made if one.number in known else _put(made, one)
    return made


def _put(attributes: list[Attribute], new: Attribute) -> list[Attribute]:
    """Replace the attribute of the same number; a new one is put before the list of exits."""
    if any(one.number == new.number for one in attributes):
        return [new if one.number == new.number else one for one in attributes]
    at = next((n for n, one in enumerate(attributes) if one.number == EXITS), len(attributes))
    return [*attributes[:at], new, *attributes[at:]]


def with_addresses(attribute: Attribute, places: Sequence[int]) -> Attribute:
    """The attribute with these code addresses alone, for those whose elements are only addresses."""
    return Attribute(attribute.format, attribute.number, struct.pack(f"<{len(places)}I", *places))
