"""One instruction for many lanes at once: data movement and arithmetic, as numpy has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ptxvm.syntax import Addr, Imm, Instr, Name, Pair, PtxError, Vec

from . import exchange
from .machine import Lanes, Machine, width

_FLOAT = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.fmax, "min": np.fmin}
_WHOLE: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "max": np.maximum,
    "min": np.minimum,
    "div": lambda a, b: (a - np.fmod(a, b)) // b,  # towards zero, as PTX has it
    "rem": np.fmod,
}
_BITS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "ex2": np.exp2,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
}
_COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal, "neu": np.not_equal,
}  # fmt: skip
_NOTHING = {"fence", "membar", "nanosleep", "kscope"}
_SPACES = ("global", "shared", "const", "param")


def execute(m: Machine, i: Instr, lanes: Lanes) -> None:
    """Execute the instruction in those lanes. Raises PtxError for an unknown one."""
    what = i.op[0]
    found = _ALONE.get(what) or exchange.TOGETHER.get(what)
    if found is None and what not in _NOTHING:
        raise PtxError(i.line, f"unknown instruction: {i.text}")
    if found is not None:
        with np.errstate(all="ignore"):
            found(m, i, lanes)


def _branch(m: Machine, i: Instr, lanes: Lanes) -> None:
    assert isinstance(i.args[0], Name)
    m.jump(lanes, i, i.args[0].name)


def _leave(m: Machine, i: Instr, lanes: Lanes) -> None:
    m.alive[lanes] = False


def _mov(m: Machine, i: Instr, lanes: Lanes) -> None:
    (to, source), bits = i.args, width(i.op[-1])
    if isinstance(source, Vec):
        part = bits // len(source.items)
        pieces = (m.read(item, f"b{part}", lanes) << np.uint64(n * part) for n, item in enumerate(source.items))
        word = np.bitwise_or.reduce(list(pieces))
    else:
        word = m.raw(source, lanes)
    if isinstance(to, Vec):
        part = bits // len(to.items)
        for n, item in enumerate(to.items):
            m.write(item, word >> np.uint64(n * part), f"b{part}", lanes)
    else:
        m.write(to, word, f"b{bits}" if bits > 1 else "pred", lanes)


def _cvt(m: Machine, i: Instr, lanes: Lanes) -> None:
    to, source = i.op[-2], i.op[-1]
    value = m.read(i.args[1], source, lanes)
    if source[0] == "f" and to[0] != "f":
        value = np.trunc(value).astype(np.int64)
    m.write(i.args[0], value, to, lanes)


def _arithmetic(m: Machine, i: Instr, lanes: Lanes) -> None:
    what, kind = i.op[0], i.op[-1]
    a, b = (m.read(arg, kind, lanes) for arg in i.args[1:])
    m.write(i.args[0], (_FLOAT if kind[0] == "f" else _WHOLE)[what](a, b), kind, lanes)


def _unary(m: Machine, i: Instr, lanes: Lanes) -> None:
    m.write(i.args[0], _UNARY[i.op[0]](m.read(i.args[1], i.op[-1], lanes)), i.op[-1], lanes)


def _product(m: Machine, i: Instr, lanes: Lanes) -> None:
    """mul, mad and fma; a float's is rounded once, as fma's is."""
    kind, rest = i.op[-1], i.args[3:]
    a, b = (m.read(arg, kind, lanes) for arg in i.args[1:3])
    if kind[0] == "f":
        result = a.astype(np.float64) * b.astype(np.float64)
        m.write(i.args[0], result + m.read(rest[0], kind, lanes) if rest else result, kind, lanes)
        return
    whole, to = a * b, kind
    if "wide" in i.op:
        to = f"{kind[0]}{2 * width(kind)}"
    elif "hi" in i.op:
        whole = whole >> np.array(width(kind), whole.dtype)
    m.write(i.args[0], whole + m.read(rest[0], to, lanes) if rest else whole, to, lanes)


def _permute(m: Machine, i: Instr, lanes: Lanes) -> None:
    """prmt.b32 in its default mode, without copies of signs."""
    a, b, how = (m.read(arg, "b32", lanes).astype(np.uint64) for arg in i.args[1:])
    bytes_, found = a | b << np.uint64(32), np.zeros(len(lanes), np.uint64)
    for n in range(4):
        pick = (how >> np.uint64(4 * n) & np.uint64(7)) * np.uint64(8)
        found |= (bytes_ >> pick & np.uint64(0xFF)) << np.uint64(8 * n)
    m.write(i.args[0], found, "b32", lanes)


def _funnel(m: Machine, i: Instr, lanes: Lanes) -> None:
    """shf.r.wrap.b32."""
    low, high, n = (m.read(arg, "b32", lanes).astype(np.uint64) for arg in i.args[1:])
    m.write(i.args[0], (high << np.uint64(32) | low) >> (n & np.uint64(31)), "b32", lanes)


def _bitwise(m: Machine, i: Instr, lanes: Lanes) -> None:
    a, b = (m.raw(arg, lanes) for arg in i.args[1:])
    m.write(i.args[0], _BITS[i.op[0]](a, b), i.op[-1], lanes)


def _invert(m: Machine, i: Instr, lanes: Lanes) -> None:
    m.write(i.args[0], ~m.raw(i.args[1], lanes), i.op[-1], lanes)


def _shift(m: Machine, i: Instr, lanes: Lanes) -> None:
    kind, count = i.op[-1], m.read(i.args[2], "u32", lanes)
    value, most = m.read(i.args[1], kind, lanes), width(kind)
    if i.op[0] == "shl":
        result = np.where(count < most, value << np.minimum(count, np.uint64(63)), np.uint64(0))
    elif kind[0] == "s":
        result = value >> np.minimum(count, np.uint64(most - 1)).astype(np.int64)
    else:
        result = np.where(count < most, value >> np.minimum(count, np.uint64(63)), np.uint64(0))
    m.write(i.args[0], result, kind, lanes)


def _extract(m: Machine, i: Instr, lanes: Lanes) -> None:
    """bfe.u32, bfe.u64"""
    assert i.op[1][0] == "u", i.text
    value = m.read(i.args[1], i.op[1], lanes)
    at, bits = (m.read(arg, "u32", lanes) & np.uint64(255) for arg in i.args[2:])
    m.write(i.args[0], value >> at & (np.uint64(1) << bits) - np.uint64(1), i.op[1], lanes)


def _dot(m: Machine, i: Instr, lanes: Lanes) -> None:
    """dp2a.lo.u32.u32"""
    assert i.op[1:] == ("lo", "u32", "u32"), i.text
    a, b, c = (m.read(arg, "u32", lanes) for arg in i.args[1:])
    half, byte, shift = np.uint64(0xFFFF), np.uint64(255), np.uint64(8)
    result = (a & half) * (b & byte) + (a >> np.uint64(16)) * (b >> shift & byte) + c
    m.write(i.args[0], result, "u32", lanes)


def _lop3(m: Machine, i: Instr, lanes: Lanes) -> None:
    a, b, c = (m.raw(arg, lanes) for arg in i.args[1:4])
    assert isinstance(i.args[4], Imm)
    result = np.zeros(len(lanes), np.uint64)
    for n in range(8):
        if i.args[4].value >> n & 1:
            result |= (a if n & 4 else ~a) & (b if n & 2 else ~b) & (c if n & 1 else ~c)
    m.write(i.args[0], result, "b32", lanes)


def _select(m: Machine, i: Instr, lanes: Lanes) -> None:
    a, b, which = (m.raw(arg, lanes) for arg in i.args[1:])
    m.write(i.args[0], np.where(which > 0, a, b), f"b{width(i.op[-1])}", lanes)


def _compare(m: Machine, i: Instr, lanes: Lanes) -> None:
    a, b = (m.read(arg, i.op[-1], lanes) for arg in i.args[1:3])
    first = _COMPARE[i.op[1]](a, b)
    second = ~first
    if len(i.args) == 4:
        more = m.raw(i.args[3], lanes) > 0
        first, second = (_BITS[i.op[2]](part, more) for part in (first, second))
    to = i.args[0]
    places = (to.first, to.second) if isinstance(to, Pair) else (to,)
    for place, part in zip(places, (first, second), strict=False):
        m.write(place, part, "pred", lanes)


def _access(i: Instr) -> tuple[int, int, str]:
    """Bytes of a word, words, and the state space."""
    lanes = next((int(word[1]) for word in i.op if word in ("v2", "v4")), 1)
    return width(i.op[-1]) // 8, lanes, next((word for word in i.op if word in _SPACES), "")


def _load(m: Machine, i: Instr, lanes: Lanes) -> None:
    (size, count, space), (to, place), kind = _access(i), i.args, i.op[-1]
    assert isinstance(place, Addr)
    if space == "param":
        assert isinstance(place.base, Name)
        word = np.full(len(lanes), m.params[place.base.name], np.uint64)
        m.write(to, word, f"b{8 * size}", lanes)
        return
    words = m.memory.load(m.address(place, lanes), size, count, space)
    for item, word in zip(to.items if isinstance(to, Vec) else (to,), words, strict=True):
        if kind[0] == "s" and size < 8:
            half = 1 << 8 * size - 1
            m.write(item, (word.astype(np.int64) ^ half) - half, kind, lanes)
        else:
            m.write(item, word, f"b{8 * size}", lanes)


def _store(m: Machine, i: Instr, lanes: Lanes) -> None:
    (size, _, space), (place, source) = _access(i), i.args
    words = [m.raw(item, lanes) for item in (source.items if isinstance(source, Vec) else (source,))]
    m.memory.store(m.address(place, lanes), size, words, space)


_ALONE: dict[str, Callable[[Machine, Instr, Lanes], None]] = {
    **dict.fromkeys(("add", "sub", "div", "rem", "max", "min"), _arithmetic),
    **dict.fromkeys(("mul", "mad", "fma"), _product),
    **dict.fromkeys(("and", "or", "xor"), _bitwise),
    **dict.fromkeys(("shl", "shr"), _shift),
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(("ret", "exit"), _leave),
    "bra": _branch,
    "mov": _mov,
    "cvta": _mov,
    "cvt": _cvt,
    "not": _invert,
    "bfe": _extract,
    "dp2a": _dot,
    "lop3": _lop3,
    "prmt": _permute,
    "shf": _funnel,
    "selp": _select,
    "setp": _compare,
    "ld": _load,
    "st": _store,
}
