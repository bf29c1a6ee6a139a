"""Learns the forms of kscope/sass/encoding/ from what ptxas assembles: python -m unit.sass.learning 80 90 in tests/

Every instruction is an example of its form. A register's place is the only one where all examples have its number, a
constant's one of a few; numbers without a place are literals of the form. What all its examples share is its base.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kscope.instrument.recording import Recording
from kscope.lowering.plan import lower
from kscope.machine_code.tools import find
from kscope.sass.cubin import branches, reading
from kscope.sass.cubin.control_codes import without_control
from kscope.sass.cubin.instructions import Instruction
from kscope.sass.encoding import forms
from kscope.sass.encoding.forms import Field, Form, Value

from .kernels import ASSEMBLERS, assembled, head

FAMILIES = {90: (90,), 80: (80, 86, 89)}
"""Architectures that have the same forms, by the first of them."""
CONSTANTS = (Field(32, 32), Field(40, 24), Field(38, 15), Field(54, 5), Field(72, 8))
_WIDTHS = {"R": 8, "UR": 6, "P": 3, "UP": 3}
_GUARD = 0xF << 12
_ONLY_LITERALS = frozenset({"HFMA2", "DEPBAR"})
"""Instructions whose numbers are not read as such: each one would be a form."""
Example = tuple[int, tuple[Value, ...]]

MARKS = """
    //kscope enter outer i32 - with %r1
    //kscope enter inner - - with if %r2
    //kscope exit inner - - with
    //kscope instant here - - call
    //kscope exit outer - - with
"""
_OPERATIONS = """
    mov.b32 {d}, {n};
    add.u32 {d}, {a}, {b};
    add.u32 {d}, {a}, {n};
    sub.u32 {d}, {a}, {b};
    mad.lo.u32 {d}, {a}, {b}, {c};
    mad.lo.u32 {d}, {a}, {n}, {c};
    mad.wide.u32 {w}, {a}, {n}, {v};
    mad.wide.u32 {w}, {a}, {b}, {v};
    and.b32 {d}, {a}, {n};
    and.b32 {d}, {a}, {b};
    xor.b32 {d}, {a}, {b};
    shr.u32 {d}, {a}, {k};
    shl.b32 {d}, {a}, {k};
    lop3.b32 {d}, {a}, {n}, {c}, 0xea;
    lop3.b32 {d}, {a}, {b}, {c}, 0xea;
    prmt.b32 {d}, {a}, {b}, 0x5410;
    min.u32 {d}, {a}, {b};
    setp.ne.u32 {p}, {a}, 0;
    setp.eq.u32 {p}, {a}, {n};
    setp.lt.u32 {p}, {a}, {b};
    setp.ge.u32 {p}, {a}, {n};
    setp.lt.and.u32 {p}, {a}, {n}, {q};
    selp.b32 {d}, {a}, {b}, {q};
    selp.b32 {d}, {a}, 0, {q};
    @{q} mov.b32 {d}, {n};
    @!{q} add.u32 {d}, {a}, {n};
    ld.global.u32 {d}, [{v}+{m}];
    ld.global.v2.u32 {{{d}, {a}}}, [{v}+{m}];
    ld.global.v4.u32 {{{d}, {a}, {b}, {c}}}, [{v}+{m}];
    ld.volatile.global.u32 {d}, [{v}+{m}];
    st.global.u32 [{v}+{m}], {a};
    st.global.v2.u32 [{v}+{m}], {{{a}, {b}}};
    st.global.v4.u32 [{v}+{m}], {{{a}, {b}, {c}, {e}}};
    @{q} st.global.v4.u32 [{v}+{m}], {{{a}, {b}, {c}, {e}}};
    atom.global.add.u32 {d}, [{v}+{m}], {a};
    red.global.add.u32 [{v}+{m}], {a};
    st.global.v4.u32 [{v}+{m}], {{{n}, {k}, {a}, {n}1}};
    st.global.v4.u32 [{v}+{m}], {{{a}, {n}2, {b}, {n}}};
    shf.r.wrap.b32 {d}, {a}, {b}, {k};
    prmt.b32 {d}, {a}, {b}, 0x7650;
    prmt.b32 {d}, {a}, {b}, 0x4040;
    max.u32 {d}, {a}, {b};
    min.u32 {d}, {a}, 254;
    selp.b32 {d}, {n}, {a}, {q};
    selp.b32 {d}, {a}, {b}, {q};
    @{q} ld.global.u32 {d}, [{v}+{m}];
    mov.u64 {w}, %clock64;
    mov.u32 {d}, %clock;
    mov.u64 {w}, %globaltimer;
    mov.u32 {d}, %smid;
    mov.u32 {d}, %tid.x;
    mov.u32 {d}, %tid.y;
    mov.u32 {d}, %tid.z;
    mov.u32 {d}, %ctaid.x;
    mov.u32 {d}, %ctaid.y;
    mov.u32 {d}, %ctaid.z;
    mov.u32 {d}, %laneid;
    mov.u32 {d}, %nctaid.x;
    mov.u32 {d}, %nctaid.y;
    mov.u32 {d}, %ntid.x;
    mov.u32 {d}, %ntid.y;
"""


def texts(arch: int = 90) -> Iterator[str]:
    """PTX with the instructions to learn: each with many registers, and kernels as kscope prepares them."""
    start = head(arch)
    operations = [line.strip() for line in _OPERATIONS.strip().splitlines()]
    kernels = [
        _kernel(operations[first : first + 6], seed) for seed in range(4) for first in range(0, len(operations), 6)
    ]
    kernels += [*(_crowded(count) for count in range(12, 40, 2)), _constants(), *(_uniform(seed) for seed in range(4))]
    # in one module: each call of the tools costs half a second
    yield start + "".join(one.replace("entry k(", f"entry k{number}(") for number, one in enumerate(kernels))
    for live in (0, 7, 20, 45, 90):
        for state in ({}, {"fill": "stop"}, {"clock": "globaltimer"}):
            yield lower(start + _marked(live), Recording(records=16, **state), frontend="test").text  # type: ignore[arg-type]


def _constants() -> str:
    """A kernel that copies constants of the module and of the launch."""
    copies = "".join(
        f"ld.const.u64 %x, [kept+{at}]; st.volatile.global.u64 [%b+{at}], %x;\n" for at in (*range(8, 4096, 344), 8)
    )
    parameters = "".join(f"ld.param.u64 %x, [q+{8 * n}]; st.volatile.global.u64 [%b+{8 * n}], %x;\n" for n in range(9))
    return (
        ".visible .const .align 8 .b8 kept[4096];\n.visible .entry k(.param .u64 p, .param .align 8 .b8 q[128])"
        f" {{ .reg .b64 %b, %x; ld.param.u64 %b, [p];\n{copies}{parameters}ret;\n}}\n"
    )


def _uniform(seed: int, values: int = 12) -> str:
    """A kernel that adds its parameters, which are in uniform registers, to values of its threads."""
    loads = "".join(
        f"ld.volatile.global.u32 %v{n}, [%b+{4 * n}]; ld.param.u32 %u{n}, [q+{4 * n}];\n" for n in range(values)
    )
    sums = "".join(
        f"add.u32 %x, %v{(5 * n + seed) % values}, %u{(7 * n + seed + 3) % values};"
        f" st.volatile.global.u32 [%b+{256 + 4 * n}], %x;\n"
        for n in range(values)
    )
    return (
        ".visible .entry k(.param .u64 p, .param .align 8 .b8 q[128]) {"
        f" .reg .b64 %b, %w; .reg .b32 %t, %x, %v<{values}>, %u<{values}>;\n"
        "ld.param.u64 %b, [p]; mov.u32 %t, %tid.x; mul.wide.u32 %w, %t, 512; add.u64 %b, %b, %w;\n"
        f"{loads}{sums}ret;\n}}\n"
    )


def _crowded(count: int) -> str:
    """A kernel with more predicates than there are registers for: some are kept in others, and tested there."""
    tests = "".join(
        f"ld.volatile.global.u32 %v{n}, [%b+{4 * n}]; setp.gt.s32 %p{n}, %v{n}, {n};\n" for n in range(count)
    )
    uses = "".join(
        f"@%p{n} st.volatile.global.u32 [%b+{400 + 4 * n}], %v60; @%p{n} bra M{n};"
        f" st.volatile.global.u32 [%b+{4000 + 4 * n}], %v61; M{n}:\n"
        for n in range(count)
    )
    return (
        ".visible .entry k(.param .u64 p) { .reg .b64 %b; .reg .b32 %v<80>; .reg .pred %p<80>, %q;\n"
        f"ld.param.u64 %b, [p]; ld.global.u32 %v60, [%b+2000]; ld.global.u32 %v61, [%b+2004];\n{tests}L: bar.sync 0;"
        f" ld.volatile.global.u32 %v70, [%b+3000];\n{uses}setp.ne.u32 %q, %v70, 0; @%q bra L;\nret;\n}}\n"
    )


def _kernel(operations: list[str], seed: int, values: int = 24, wide: int = 6) -> str:
    """Each operation some times over, on values that all stay in registers."""
    lines = ["ld.param.u64 %base, [p];"]
    lines += [f"ld.global.u32 %v{n}, [%base+{4 * n}];" for n in range(values)]
    lines += [f"ld.global.u64 %w{n}, [%base+{512 + 8 * n}];" for n in range(wide)]
    lines += [f"setp.gt.s32 %p{n}, %v{n}, {n};" for n in range(5)]
    number = seed * 1000
    for turn in range(7):
        for operation in operations:
            number += 1
            narrow = {
                key: f"%v{(number * step + turn + seed) % values}"
                for key, step in zip("abce", (5, 7, 11, 13), strict=True)
            }
            fields = narrow | {
                "d": f"%v{(number * 3 + seed) % values}",
                "v": f"%w{number % wide}",
                "w": f"%w{(number + 1) % wide}",
                "p": f"%p{(number + turn) % 5}",
                "q": f"%p{(number + turn + 2) % 5}",
                "n": str(number * 7919 + 12345),
                "k": str(1 + number % 30),
                "m": str(16 * (number % 37)),
            }
            lines.append(operation.format(**fields))
    lines += [f"st.global.u32 [%base+{4 * n}], %v{n};" for n in range(values)]
    lines += [f"st.global.u64 [%base+{512 + 8 * n}], %w{n};" for n in range(wide)]
    lines += [f"@%p{n} st.global.u32 [%base+{1024 + 4 * n}], %v0;" for n in range(5)]
    registers = f".reg .b32 %v<{values}>; .reg .b64 %w<{wide}>; .reg .b64 %base; .reg .pred %p<5>;"
    return f".visible .entry k(.param .u64 p) {{ {registers}\n" + "\n".join(lines) + "\nret;\n}\n"


def _marked(live: int) -> str:
    """A kernel with marks, in which this many values stay in registers meanwhile."""
    loads = "".join(f"ld.global.f32 %f{n}, [%base+{4 * n}];\n" for n in range(live))
    stores = "".join(f"st.global.f32 [%base+{4 * n + 4096}], %f{n};\n" for n in range(live))
    return (
        f".visible .entry k(.param .u64 p) {{ .reg .b64 %base; .reg .b32 %r<4>; .reg .f32 %f<{live + 1}>;\n"
        f"ld.param.u64 %base, [p];\n{loads}ld.global.u32 %r1, [%base+8000];\nld.global.u32 %r2, [%base+8004];\n"
        f"{MARKS}bar.sync 0;\n{MARKS.replace('outer', 'other')}{stores}ret;\n}}\n"
    )


def examples(data: bytes) -> Iterator[Instruction]:
    """The instructions of a cubin."""
    text = reading.disassembly(data, "-c", "-hex")
    assert text is not None
    for function in reading.parse(text):
        yield from function.instructions


def learned(instructions: Iterable[Instruction], arch: int = 90) -> dict[str, list[Form]]:
    """The forms of these instructions."""
    groups = defaultdict[tuple[str, int], set[Example]](set)
    for one in instructions:
        if "@!UP" in one.guard or "@UP" in one.guard or one.name in _ONLY_LITERALS:
            continue
        key, values = forms.shape(one.code, ", ".join(one.operands))
        word = without_control(one.word) & ~_GUARD
        groups[key, one.opcode].add(
            (branches.with_target(word, 0, 16, arch) if one.target is not None else word, values)
        )
    found = defaultdict[str, list[Form]](list)
    for (key, _), group in sorted(groups.items()):
        found[key] += _forms(key, group)
    return found


def _forms(key: str, group: set[Example]) -> Iterator[Form]:
    kinds = re.findall(r"(UR|UP|R|P)?#|(\$)", key)
    fields = [_field(kind, number, group) for number, (kind, _) in enumerate(kinds)]
    parts = defaultdict[tuple[Value | None, ...], set[int]](set)
    for word, values in group:
        base = word
        for field in filter(None, fields):
            base = field.put(base, 0)
        parts[tuple(None if field else value for field, value in zip(fields, values, strict=True))].add(base)
    for literals, bases in sorted(parts.items(), key=str):
        if len(bases) == 1:
            slots = [field if field else literal for field, literal in zip(fields, literals, strict=True)]
            yield Form(bases.pop(), tuple(slots))  # type: ignore[arg-type]  # a literal is None only beside a field


def _field(kind: str, number: int, group: set[Example]) -> Field | None:
    """The only place that has this number in every example; None if there are several, or too few examples."""
    values = {values[number] for _, values in group}
    if len(values) < 2 or any(isinstance(value, str) for value in values):
        return None
    places = [Field(at, _WIDTHS[kind]) for at in range(16, 105 - _WIDTHS[kind])] if kind else CONSTANTS
    fitting = [one for one in places if all(_fits(one, word, values[number]) for word, values in group)]
    return fitting[0] if len(fitting) == 1 else None


def _fits(field: Field, word: int, value: Value) -> bool:
    return isinstance(value, int) and field.get(word) == value % (1 << field.bits)


def text(table: Mapping[str, Sequence[Form]], base: Mapping[str, Sequence[Form]] | None = None) -> str:
    """The forms as JSON. base: those of sm_90, where the table is of another family."""
    rows = {
        key: "forms_sm90"
        if base and tuple(made) == tuple(base.get(key, ()))
        else [[f"{one.base:032x}", [[s.at, s.bits] if isinstance(s, Field) else s for s in one.slots]] for one in made]
        for key, made in sorted(table.items())
        if made
    }
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items()) + "\n}\n"


def printed(words: Iterable[int], arch: int = 90) -> list[str]:
    """nvdisasm's output for single instructions, without the semicolon, and the additions of reading.py."""
    words = list(words)
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(b"".join(word.to_bytes(16, "little") for word in words))
        file.flush()
        command = [find("nvdisasm"), "-b", f"SM{arch}{'a' * (arch >= 90)}", file.name]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = [match[1] for match in re.finditer(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", out)]
    return [
        reading.described(re.sub(r"^@!?U?P\w ", "", text), text, word, arch)
        for text, word in zip(found, words, strict=True)
    ]


if __name__ == "__main__":
    for family in map(int, sys.argv[1:]):
        found = learned(
            (
                one
                for arch in FAMILIES[family]
                for made in texts(arch)
                for tool in ASSEMBLERS
                for one in examples(assembled(made, tool))
            ),
            family,
        )
        where = Path(forms.__file__).parent / f"forms_sm{family}.json"
        where.write_text(text(found, None if family == 90 else forms.forms(90)), encoding="utf-8")
        print(f"{len(found)} forms in {where}")
