"""Updates the generated parts of include/kscope.cuh: PTX texts and constants.

python -m kscope_cuda.header
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

from kscope import ptx
from kscope.capture import layout, wire
from kscope.capture.layout import Kind
from kscope.instrument.recording import AUTO_RECORDS, Clock, Fill, Recording
from kscope.marks.grammar import ACTS, HOWS, PACKED_ANY_LANE, PACKED_STRATEGIES, PREFIX, TYPES
from kscope.marks.names import BEGIN_TRACK, END_TRACK, ROLE_TRACK, TRACK, WORK
from kscope.marks.strategies import MAX_WARPS, AllThreads, Elected, Lane0Warp0
from kscope.ptx import inline
from kscope.ptx.claim import retry

from . import binary_notes
from .binary_notes import NOTE
from .inline_assembly import Unknown, assembly, body, numbered, operand, quoted

PATH = Path(__file__).parent / "include" / "kscope.cuh"
CONTROL_FUNCTION = "kscope_control"
"""int kscope_control(int unit, unsigned long long* address): a translation unit's control block on the current device.
Returns 0, -1 after the last unit, or a CUDA runtime error."""
DEBUG_REFUSED = "regions_need_a_build_without_G__leave_it_out_or_build_plain_with_DKSCOPE_0"
LINES = 1 << 16
"""The assembler's errors name a mark's line modulo this."""
_GUARD = "kscope_mark_in_a_function_that_was_not_inlined_or_has_no_KSCOPE_KERNEL_line_"
_OWNER = "ks_strategy_that_KSCOPE_KERNEL_does_not_list_"
_APART = "kscope_inline_this_function_into_a_kernel_with_KSCOPE_KERNEL_or_keep_marks_out_of_it__"
_DEBUG_LINE = "kscope_mark_in_a_function_that_is_compiled_with_G_line_"
_NAME_BYTES = 128  # 16 operands of eight bytes: inline assembly has at most 30
_LOG2 = Unknown("log2_")
_LANES, _WARP = AllThreads().spec, Elected().spec
_NAME = "name"
"""A placeholder: an operand replaces its record id."""
_OPTIONS: dict[str, tuple[str, str]] = {"FILL": ("ring", "stop"), "CLOCK": ("cycles", "globaltimer")}
_GENERATED = re.compile(r"^( *)// generated: (\w+)( as (\S+))?\n.*?^ *// end$", re.M | re.S)
_VALUE = re.compile(r'/\*(\w+)=\*/(?:("(?:[^"\\]|\\.)*")|\w+)')
_ELSEWHERE = ("attempt", "success")
"""Acts that auto="pipeline" places, which have no macro."""


def updated(header: str) -> str:
    """The header with renewed generated parts.

    The lines from `// generated: NAME` to `// end` are a statement with the text NAME of texts(), or the lines NAME of
    lists(). A NAME that ends in _FILL or _CLOCK has one text for each choice of KSCOPE_FILL or KSCOPE_CLOCK. With `as
    MACRO`, the lines define a macro. The value after /*NAME=*/ is NAME of constants().
    """
    known, values = texts(), constants()

    def value(found: re.Match[str]) -> str:
        text = values[found[1]] if found[1] in values else quoted(known[found[1]])[1:-1]
        return f"/*{found[1]}=*/" + (f'"{text}"' if found[2] else text)

    return _VALUE.sub(value, _GENERATED.sub(lambda found: _block(known, found), header))


def names(block: str) -> list[str]:
    """The texts of a block of the header: one, or one for each choice of an option."""
    stem, _, option = block.rpartition("_")
    return [f"{stem}_{choice}" for choice in _OPTIONS[option]] if option in _OPTIONS else [block]


def _block(known: Mapping[str, str], found: re.Match[str]) -> str:
    indent, name, suffix, macro = found[1], found[2], found[3] or "", found[4]
    lines = lists(known).get(name) or _statement(known, name, indent + "  " if macro else indent)
    if macro:
        lines = f"#define {macro}\n{lines}".replace("\n", " \\\n")
    return f"{indent}// generated: {name}{suffix}\n{lines}\n{indent}// end"


def _statement(known: Mapping[str, str], block: str, indent: str) -> str:
    chosen = [known[name] for name in names(block)]
    text = chosen[0] if len(chosen) == 1 else _either(chosen[0], chosen[1], f"KSCOPE_{block.rpartition('_')[2]}_")
    return assembly(text, indent)


def _either(first: str, second: str, option: str) -> str:
    """The texts for the values 1 and 2 of an option merged into one, with directives around the lines that differ."""
    lines, others = first.strip().splitlines(), second.strip().splitlines()
    merged: list[str] = []
    for same, start, stop, other_start, other_stop in SequenceMatcher(None, lines, others, False).get_opcodes():
        here, there = lines[start:stop], others[other_start:other_stop]
        if same == "equal":
            merged += here
        elif here:
            merged += [f"#if {option} == 1", *here, *(["#else", *there] if there else []), "#endif"]
        else:
            merged += [f"#if {option} == 2", *there, "#endif"]
    return "\n".join(merged)


def lists(known: Mapping[str, str]) -> dict[str, str]:
    """Generated lines that are no statement: device helpers, the fields of a note, and the lines of a retry."""
    types = {"i32": "int", "u32": "unsigned int", "i64": "long long", "<u4": "b32_", "<u8": "b64_"}
    helpers = (
        f"__device__ __forceinline__ {types[one.type]} {name}() {{\n  {types[one.type]} t;\n"
        f"{assembly(known[name], volatile=one.volatile)}\n  return t;\n}}"
        for name, one in ptx.READINGS.items()
    )
    fields = (f"{types[NOTE[name].str]} {name};" for name in NOTE.names or ())
    retries = body(known["retry"], numbered(known["begin"]))
    return {"helpers": "\n".join(helpers), "note_fields": f"  {' '.join(fields)}", "retry": retries}


def constants() -> dict[str, str]:
    """Values in the header that other modules define."""
    codes = {spec: str(number) for number, spec in enumerate(PACKED_STRATEGIES)}
    found: dict[str, object] = {
        "CTL_SYMBOL": wire.CTL_SYMBOL,
        **{name: getattr(layout, name) for name in ("LOG2_SHIFT", "FLAG_SHIFT", "MIN_LOG2_RECORDS")},
        **{f"FLAG_{name}": getattr(layout, f"FLAG_{name}") for name in ("GLOBALTIMER", "STOP", "LANES", "ANCHORS")},
        **{kind.name: f"{kind:d}" for kind in Kind},
        **{f"OPEN_{kind.upper()}": f"{word}u" for kind, word in wire.OPEN_UNKNOWN.items()},
        **{f"ACT_{act.upper()}": number for number, act in enumerate(ACTS) if act not in _ELSEWHERE},
        **{f"HOW_{how.upper()}": number for number, how in enumerate(HOWS)},
        "HOW_OPEN": len(HOWS) + HOWS.index("with"),
        "HOW_OPEN_CALL": len(HOWS) + HOWS.index("call"),
        **{f"TYPE_{kind.upper()}": number for number, kind in enumerate(TYPES) if kind},
        "CODE_SESSION": codes[None],
        "CODE_BLOCK": codes[Lane0Warp0().spec],
        "CODE_WARP": codes[Elected().spec],
        "CODE_LANES": codes[AllThreads().spec],
        "CODE_ANY_LANE": PACKED_ANY_LANE,
        "MAX_WARPS": MAX_WARPS,
        "LAST_WARP": MAX_WARPS - 1,
        "AUTO_RECORDS": AUTO_RECORDS,
        "MAX_RECORDS": 1 << layout.MAX_LOG2_RECORDS,
        "LINES": LINES,
        "SLOTS": binary_notes.SLOTS,
        "MOST_NAME_BYTES": _NAME_BYTES,
        "MOST_NAME_SIZE": _NAME_BYTES + 1,
        "PREFIX": PREFIX,
        "NOTE_REGION": binary_notes.REGION,
        "NOTE_EXPLICIT": binary_notes.EXPLICIT,
        "NOTE_KERNEL": binary_notes.KERNEL,
        "NOTE_MAGIC": f"{binary_notes.MAGIC:#x}",
        "CONTROL_FUNCTION": CONTROL_FUNCTION,
        "DEBUG_REFUSED": DEBUG_REFUSED,
        "TRACK": f"\\x{ord(TRACK):02x}",
        "WORK": f"\\x{ord(WORK):02x}",
        "ROLE_TRACK": ROLE_TRACK,
        "BEGIN_TRACK": BEGIN_TRACK,
        "END_TRACK": END_TRACK,
    }
    return {name: str(value) for name, value in found.items()}


def texts() -> dict[str, str]:
    """The header's PTX texts, with C++ operands."""
    found = {name: one.text(operand("=l" if one.type == "i64" else "=r", "t")) for name, one in ptx.READINGS.items()}
    begin, without_clusters = _begin(_WARP, 90), _begin(_WARP, 75)
    found["cluster_90"], found["cluster_75"] = _differing(begin, without_clusters)
    found["stripe_lanes"], found["stripe_warp"] = _differing(_begin(_LANES, 90), begin)
    found["retry"] = retry(_kernel().units)
    retries = {found["retry"] * (wire.MOST_CLAIMS - 1): "KSCOPE_RETRY_\n" * (wire.MOST_CLAIMS - 1)}
    lines = {found["cluster_90"]: "KSCOPE_CLUSTER_", found["stripe_warp"]: "STRIPE"}
    found["begin"] = _replaced(begin, retries | lines)
    found["barrier_fence"] = ptx.barrier_fence(_kernel(arch=90))
    clocks: tuple[Clock, ...] = ("cycles", "globaltimer")
    for clock in clocks:
        kernel, slot, record = _kernel(clock), operand("n", "SLOT"), operand("n", "RECORD")
        found[f"read_{clock}"] = "KSCOPE_BARRIER_FENCE_\n" + ptx.clock(kernel, operand("=l", "t"))
        found[f"remember_{clock}"] = "KSCOPE_BARRIER_FENCE_\n" + inline.remember(
            kernel, slot, record, operand("r", "value")
        )
    fills: tuple[Fill, ...] = ("ring", "stop")
    for fill in fills:
        found |= _stores(fill)
        found[f"anchor_{fill}"] = ptx.due(operand("l", "end")) + ptx.anchor(_kernel(fill=fill))
    guard = inline.guard(_GUARD + operand("n", "LINE"))
    found |= _open_words(guard)
    found["declare_owner"] = inline.owner(_OWNER + operand("n", "CODE"), operand("r", "records"))
    found["finish"] = ptx.finish(replace(_kernel(), anchored=False))
    found["finish_with_anchors"] = ptx.finish(_kernel())
    found["pin"] = guard + ptx.pin(operand("r", "v.bits"))
    found["pin_wide"] = guard + ptx.pin(operand("l", "v.bits"), wide=True)
    found["refuse_by_name"] = inline.guard_by_name(_GUARD + operand("n", "LINE"), _APART + operand("C", "name_"))
    debug = f"kscope_{DEBUG_REFUSED}__{operand('C', 'name_')}"
    found["refuse_debug_build"] = inline.guard_by_name(_DEBUG_LINE + operand("n", "LINE"), debug)
    return found


def _kernel(clock: Clock = "cycles", fill: Fill = "ring", arch: int = 0, spec: str = _WARP) -> ptx.Kernel:
    ids = operand("n", "LOW"), operand("n", "HIGH")
    return ptx.Kernel(Recording(clock=clock, fill=fill), (spec,), _LOG2, ids, arch, pins=True, anchored=True)


def _begin(spec: str, arch: int) -> str:
    """The prologue: everything up to the slab's head. It is built before sessions, so it is for survive=, too."""
    declared = f".reg .b32 {_GUARD}<{LINES}>; {inline.remembered(binary_notes.SLOTS)}"
    kernel = _kernel(arch=arch, spec=spec)
    kernel = replace(kernel, recording=replace(kernel.recording, survive="shm"))
    prologue = inline.begin(kernel, operand("l", wire.CTL_SYMBOL), operand("r", "records"), declared)
    flags = layout.FLAG_LANES if spec == _LANES else 0
    place = f"{(_LOG2 << layout.LOG2_SHIFT) | (flags | layout.FLAG_ANCHORS) << layout.FLAG_SHIFT}"
    return _replaced(prologue, {place: operand("n", "PLACE")})


def _differing(first: str, second: str) -> tuple[str, str]:
    """The only line in which two texts differ."""
    (pair,) = {pair for pair in zip(first.splitlines(), second.splitlines(), strict=True) if pair[0] != pair[1]}
    return pair


def _stores(fill: Fill) -> dict[str, str]:
    """Stores of records: with a start in C++, without and with a predicate; with a start saved by KSCOPE_ENTER."""
    slot = ptx.Slot(0, _NAME, "i32")
    guard, owner = inline.guard(_GUARD + operand("n", "LINE")), _OWNER + operand("n", "CODE")
    store = guard + ptx.store(_kernel(fill=fill), slot, Kind.SPAN_VALUE, owner)
    conditional = ptx.store(_kernel(fill=fill), replace(slot, conditional=True), Kind.SPAN_VALUE, owner)
    conditional = guard + _held(slot, conditional)
    end = {f"ks_e{slot.index}": operand("l", "end")}
    in_cpp = {
        f"ks_s{slot.index}": operand("l", "start"),
        f"ks_v{slot.index}": operand("r", "v.word"),
        str(layout.record_id(_NAME, Kind.SPAN_VALUE)): operand("n", "RECORD"),
    }
    in_registers = {old: f"ks_{kind}{operand('n', 'SLOT')}" for old, kind in zip(in_cpp, "tvi", strict=True)}
    return {
        f"store_{fill}": _replaced(store, in_cpp | end),
        f"store_if_{fill}": _replaced(conditional, in_cpp | end),
        f"store_remembered_{fill}": _replaced(store, in_registers | end),
        **_wide_stores(fill, guard, owner),
    }


def _wide_stores(fill: Fill, guard: str, owner: str) -> dict[str, str]:
    """Stores of records with values of 64 bits: without and with a predicate."""
    slot, record = ptx.Slot(0, _NAME, "u64"), layout.record_id(_NAME, Kind.SPAN_VALUE)
    halves = {"ks_v0": operand("r", "v.word"), "ks_r": operand("r", "v.rest")}
    ids = {
        str(record): operand("n", "RECORD"),
        str(record | layout.HAS_MORE): operand("n", f"(RECORD | {layout.HAS_MORE})"),
        str(record & ~15 | layout.MORE): operand("n", f"(RECORD / 16 * 16 + {layout.MORE})"),
    }
    clocks = {"ks_s0": operand("l", "start"), "ks_e0": operand("l", "end")}

    def text(slot: ptx.Slot) -> str:
        store = _replaced(ptx.store(_kernel(fill=fill), slot, Kind.SPAN_VALUE, owner), ids | clocks)
        return f"\t{{ .reg .b32 ks_u0; mov.b32 ks_u0, ks_r;\n{store}\t}}\n"

    conditional = _held(slot, text(replace(slot, conditional=True)))
    texts = {f"store_wide_{fill}": text(slot), f"store_wide_if_{fill}": conditional}
    return {name: guard + _replaced(found, halves) for name, found in texts.items()}


def _open_words(guard: str) -> dict[str, str]:
    """Stores of enters: without and with a predicate, and of enters that KSCOPE_ENTER has saved."""
    slot, owner = ptx.Slot(0, _NAME, "i32"), _OWNER + operand("n", "CODE")
    word = guard + ptx.open_word(_kernel(), slot, "value", owner)
    conditional = ptx.open_word(_kernel(), replace(slot, conditional=True), "value", owner)
    number = {str(layout.name_hash(_NAME) << 4): operand("n", "NUMBER")}
    in_cpp = {"ks_s0": operand("l", "start"), "ks_v0": operand("r", "value")} | number
    return {
        "open_word": _replaced(word, in_cpp),
        "open_word_if": _replaced(f"{guard}{_held(slot, conditional)}", in_cpp),
        "open_word_remembered": _replaced(
            word, {"ks_s0": f"ks_t{operand('n', 'SLOT')}", "ks_v0": f"ks_v{operand('n', 'SLOT')}"} | number
        ),
    }


def _held(slot: ptx.Slot, text: str) -> str:
    """A text for the lanes whose predicate holds."""
    held = f"setp.ne.u32 ks_w{slot.index}, {operand('r', 'w.held')}, 0;"
    return f"\t{{ .reg .pred ks_w{slot.index}; {held}\n{text}\t}}\n"


def _replaced(text: str, replacements: dict[str, str]) -> str:
    for old, new in replacements.items():
        assert text.count(old) == 1, f"{old} should occur once in {text!r}"
        text = text.replace(old, new)
    return text


if __name__ == "__main__":
    PATH.write_text(updated(PATH.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"updated {PATH}")
