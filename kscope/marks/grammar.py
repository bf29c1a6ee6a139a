"""A mark: the trace of a `with kscope.region(...)` in a kernel, and its form in assembly text.

    //kscope enter load i32 - with %r12 if %r13
             act   name type strategy how operand if predicate

Every compiler carries this comment, which has no effect without the lowering pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from ..errors import UsageError
from .names import ValueType, format_name
from .strategies import ANY_LANE, TargetWarp

Act = Literal["enter", "exit", "instant", "counter", "pin", "kernel", "attempt", "success"]
"""The action of a mark. "kernel" emits nothing; it sets the default strategy of the kernel's marks. "attempt" and
"success" are around an instruction that waits and may fail (lowering/pipeline.py).
"""
Origin = Literal["source", "auto", "lines"]
How = Literal["with", "call", "auto", "lines", "pipeline"]
"""The origin of a mark: a `with` or a call in the source; auto= or mark= in unmarked code; auto="pipeline" in PTX."""

PREFIX = "//kscope "
_REST = r"(?: (?!if )(\S+))?(?: if (\S+))?\s*$"
_ACTS = "|".join(get_args(Act))
_LINE = re.compile(rf"//kscope ({_ACTS}|open) (\S+) ([iuf]32|[iuf]64|-) (\S+) (with|call|auto|lines|pipeline){_REST}")
_UNSAFE = re.compile(rb"[^A-Za-z0-9_.\-]")
_PACKED = re.compile(rf"//kscope packed (\d) (\d) (\d) (\d+) (-?\d+(?:\.-?\d+)*){_REST}")
NEVER = "0"
"""A predicate that is always false."""
ACTS: tuple[Act, ...] = get_args(Act)
TYPES: tuple[ValueType | None, ...] = (None, *get_args(ValueType))
HOWS: tuple[How, ...] = ("with", "call")
"""Packed marks always come from source code."""
PACKED_STRATEGIES: tuple[str | None, ...] = (None, "lane0-warp0", "elected", "all")
"""A packed strategy: an index into this tuple, a warp mask << 2 for TargetWarp, or PACKED_ANY_LANE."""
PACKED_ANY_LANE = 1 << 34


@dataclass(frozen=True)
class Mark:
    """One mark as a frontend emits it.

    Attributes:
        act: its action.
        name: the region's name, with its track after TRACK and its work after WORK.
        type: type of its value; None without a value.
        strategy: spec of its strategy; None for the session's.
        how: its origin. All but "call" are paired by the source.
        operand: register, immediate or placeholder (``$1``) that holds the value. How "pipeline": see
            ptx/operations.py.
        when: 32-bit register or placeholder, nonzero if the mark is recorded; NEVER; None for always. How "pipeline": a
            predicate register, with ! before it if it is negated.
        open: its enter is stored at once in sessions with survive=: region(..., open=True). Its act is written `open`.
    """

    act: Act
    name: str
    type: ValueType | None = None
    strategy: str | None = None
    how: How = "with"
    operand: str | None = None
    when: str | None = None
    open: bool = False

    @property
    def origin(self) -> Origin:
        """ "source", "auto" or "lines": see RegionMeta.origin."""
        if self.how == "pipeline":
            return "auto"
        return self.how if self.how in ("auto", "lines") else "source"

    @property
    def noun(self) -> str:
        """The user's word for it, for messages: region, instant, counter, pin."""
        return "region" if self.act in ("enter", "exit") else self.act

    @property
    def display_name(self) -> str:
        """The name for messages."""
        return format_name(self.name)

    def comment(self) -> str:
        """The mark as one line of assembly text."""
        tail = f" {self.operand}" if self.operand is not None else ""
        tail += f" if {self.when}" if self.when is not None else ""
        act = "open" if self.open and self.act == "enter" else self.act
        return f"{PREFIX}{act} {quote(self.name)} {self.type or '-'} {self.strategy or '-'} {self.how}{tail}"


def parse(line: str) -> Mark | None:
    """Parse the mark in a line of assembly text.

    Args:
        line: one line.

    Returns:
        The mark; None if the line has none.

    Raises:
        UsageError: the line has a malformed mark.
    """
    at = line.find(PREFIX)
    if at < 0:
        return None
    if (packed := _PACKED.match(line, at)) is not None:
        return _unpacked(*packed.groups())
    found = _LINE.match(line, at)
    if found is None:
        raise UsageError(f"not a kscope mark: {line.strip()!r}; was it written by another version of kscope?")
    act, name, kind, strategy, how, operand, when = found.groups()
    return Mark(
        "enter" if act == "open" else act,  # type: ignore[arg-type]  # the pattern matches only these values
        unquote(name),
        None if kind == "-" else kind,  # type: ignore[arg-type]
        None if strategy == "-" else strategy,
        how,  # type: ignore[arg-type]
        operand,
        when,
        act == "open",
    )


def _unpacked(act: str, kind: str, how: str, strategy: str, name: str, operand: str | None, when: str | None) -> Mark:
    """Decode a packed mark.

    CUDA C++, whose inline assembly takes only numbers as constants, writes a mark as

        //kscope packed 0 1 0 17 1684107116 %r12 if %r13
                        act, type, how, strategy, name, operand, predicate

    with act, type and how as indices into ACTS, TYPES and HOWS, the strategy as in PACKED_STRATEGIES, and the name as
    8-byte integers. With open=True, how is larger by the length of HOWS.
    """
    mask, plain = divmod(int(strategy) % PACKED_ANY_LANE, 4)
    raw = b"".join((int(word) & (1 << 64) - 1).to_bytes(8, "little") for word in name.split("."))
    try:
        warps = tuple(warp for warp in range(mask.bit_length()) if mask >> warp & 1)
        spec = TargetWarp(*warps).spec if warps else PACKED_STRATEGIES[plain]
        if int(strategy) == PACKED_ANY_LANE:
            spec = ANY_LANE
        open_, placed = divmod(int(how), len(HOWS))
        text = raw.rstrip(b"\0").decode()
        opens = (False, True)[open_]
        return Mark(ACTS[int(act)], text, TYPES[int(kind)], spec, HOWS[placed], operand, when, opens)
    except (IndexError, UnicodeDecodeError) as error:
        raise UsageError(
            f"not a kscope mark: act {act}, type {kind}, how {how}, name {raw!r} ({error}); "
            "was it written by another version of kscope, or is the source not in UTF-8?"
        ) from error


def quote(name: str) -> str:
    """The name with every byte outside [A-Za-z0-9_.-] as ~XX, which every assembler accepts in a comment."""
    return _UNSAFE.sub(lambda found: b"~%02X" % found[0][0], name.encode()).decode()


def unquote(token: str) -> str:
    """Inverse of quote()."""
    raw = re.sub(rb"~([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), token.encode())
    return raw.decode(errors="replace")
