"""The PTX of a tree: for the assembler, and without what the interpreter of PTX does not know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ptxvm.writing import Node

from kscope import ptx
from kscope.marks.grammar import Mark

from ..kernels import head
from .trees import NAMES, OTHERS, POINTS, VALUES

IN_BYTES, OUT_AT, THREAD_BYTES, COUNTERS_AT = 2048, 4096, 64, 3072
"""The kernel's memory: what it only loads, from where it stores, bytes of a thread there, and atomics."""
DECLARED = """
    .reg .pred %p<8>; .reg .b32 %v<6>; .reg .b32 %x<6>; .reg .b32 %i<12>; .reg .b32 %m<12>; .reg .b32 %r<8>;
    .reg .b32 %n; .reg .b32 %t; .reg .b32 %s; .reg .b32 %h<96>; .reg .f32 %f<8>; .reg .b64 %d<12>;
"""
MEMORY = """
    .shared .align 16 .b8 kept[2048]; .shared .align 8 .b64 bell; .local .align 16 .b8 own[64];
"""
COMPUTED = ("add.u32", "xor.b32", "mul.lo.u32", "sub.u32", "min.u32", "max.u32", "and.b32", "shl.b32", "shr.u32")


@dataclass(frozen=True)
class Outline:
    """The parts of a kernel besides its statements.

    Attributes:
        arch: the compute capability.
        block: threads of a block.
        nodes: the statements.
        live: registers that have a value from the begin to the end.
        directives: such as ".maxnreg 40".
        constant: the loads go through the read-only cache.
    """

    arch: int
    block: tuple[int, int, int]
    nodes: tuple[Node, ...]
    live: int = 0
    directives: str = ""
    constant: bool = False

    @property
    def flat(self) -> bool:
        return self.block[1:] == (1, 1)


def text(outline: Outline, name: str = "fuzzed", oracle: bool = False) -> str:
    """The module. oracle: for the interpreter of PTX."""
    writer = _Writer(outline)
    writer.start()
    writer.body(outline.nodes)
    writer.end()
    block = ", ".join(map(str, outline.block))
    return "".join(
        (
            f"{head(outline.arch)}{ptx.control_symbol()}",
            f".visible .entry {name}(.param .u64 p, .param .u32 n) .reqntid {block} {outline.directives}\n{{",
            DECLARED,
            "" if oracle else MEMORY,
            *(f"{line}\n" for line, modeled in writer.lines if modeled or not oracle),
            "}\n",
        )
    )


@dataclass
class _Writer:
    """Writes lines. open: names of open regions; loops: open regions, and where break and continue lead."""

    outline: Outline
    lines: list[tuple[str, bool]] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    loops: list[tuple[int, str, str]] = field(default_factory=list)
    labels: int = 0

    def add(self, *lines: str, modeled: bool = True) -> None:
        self.lines += [(f"    {line}", modeled) for line in lines]

    def own(self, *lines: str) -> None:
        """Add lines that only the machine code's interpreter runs."""
        self.add(*lines, modeled=False)

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def at(self, label: str) -> None:
        self.lines.append((f"{label}:", True))

    def start(self) -> None:
        self.add("ld.param.u64 %d0, [p];", "ld.param.u32 %n, [n];", "mov.u32 %t, %tid.x;")
        x, y, _ = self.outline.block
        if not self.outline.flat:
            self.add("mov.u32 %r0, %tid.y;", f"mad.lo.u32 %t, %r0, {x}, %t;")
            self.add("mov.u32 %r0, %tid.z;", f"mad.lo.u32 %t, %r0, {x * y}, %t;")
        self.add("mov.u32 %v1, %ctaid.x;", "mov.u32 %r0, %ctaid.y;", "mov.u32 %r1, %ctaid.z;")
        self.add("add.u32 %v1, %v1, %r0;", "add.u32 %v1, %v1, %r1;", "mov.u32 %v0, %t;", "mul.wide.u32 %d1, %t, 4;")
        threads = x * y * self.outline.block[2]
        self.add("add.u64 %d1, %d0, %d1;", f"mad.lo.u32 %r0, %v1, {threads}, %t;")
        self.add(f"mul.wide.u32 %d2, %r0, {THREAD_BYTES};", "add.u64 %d2, %d0, %d2;")
        self.add("ld.global.u32 %v2, [%d1];", "mov.u32 %v3, %n;", "mov.u32 %v4, 7;", "mad.lo.u32 %v5, %t, 3, 1;")
        self.own("mov.u32 %s, kept;", "shl.b32 %r1, %t, 4;", "add.u32 %s, %s, %r1;", "mov.u64 %d4, own;")
        self.own(*(f"st.local.u32 [%d4+{4 * n}], %t;" for n in range(8)))  # what is undefined may differ
        self.own(
            *(f"mov.u32 %x{n}, {n + 3};" for n in range(OTHERS)), *(f"mov.f32 %f{n}, 0f3F800000;" for n in range(8))
        )
        self.own(*(f"ld.global.u32 %h{n}, [%d1+{4 * n}];" for n in range(self.outline.live)))

    def end(self) -> None:
        for n in range(self.outline.live):
            self.own(
                f"xor.b32 %x{n % OTHERS}, %x{n % OTHERS}, %h{n};", f"mul.lo.u32 %x{n % OTHERS}, %x{n % OTHERS}, 5;"
            )
        if self.outline.live:
            self.own(*(f"st.global.u32 [%d2+{OUT_AT + 4 * n}], %x{n};" for n in range(OTHERS)))
        self.add("ret;")

    def body(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            getattr(self, f"_{node.kind}")(*node.args, *node.bodies)

    def mark(self, act: Any, name: str, kind: Any, value: str | None, when: str | None, how: Any = "with") -> None:
        self.add(Mark(act, name, kind, None, how, value, when).comment())

    def _region(self, name: str, value: str | None, when: str | None, body: tuple[Node, ...]) -> None:
        self.mark("enter", name, NAMES[name] if value is not None else None, value, when)
        self.open.append(name)
        self.body(body)
        self.open.pop()
        self.mark("exit", name, None, None, None)

    def _point(self, name: str, value: str | None, when: str | None) -> None:
        act, kind = POINTS[name]
        if act == "counter" and value is None:
            value = "1"
        self.mark(act, name, kind if value is not None else None, value, when, "call")

    def _leave_regions(self, down_to: int) -> None:
        for name in reversed(self.open[down_to:]):
            self.mark("exit", name, None, None, None)

    def _test(self, test: str, value: str, mask: int) -> str:
        """A predicate."""
        source = {"lane": "%t", "data": value, "warp": "%t", "n": "%n", "block": "%v1"}[test]
        mask = {"warp": 32, "n": mask & 7 or 4, "block": 1}.get(test, mask)
        self.add(f"and.b32 %r0, {source}, {mask};", "setp.ne.u32 %p0, %r0, 0;")
        return "%p0"

    def _if(self, test: str, value: str, mask: int, then: tuple[Node, ...], other: tuple[Node, ...]) -> None:
        past, done = self.label(), self.label()
        self.add(f"@!{self._test(test, value, mask)} bra {past};")
        self.body(then)
        if other:
            self.add(f"bra {done};")
        self.at(past)
        self.body(other)
        self.at(done)

    def _loop(self, times: str, shape: str, pragma: str, body: tuple[Node, ...]) -> None:
        top, again, after = self.label(), self.label(), self.label()
        depth = len(self.loops)
        i, m = f"%i{depth}", f"%m{depth}"
        many = times if times.isdigit() or times == "%n" else m
        if times == "few":
            self.add(f"and.b32 {m}, %n, 1;", f"add.u32 {m}, {m}, 1;")
        elif times == "lane":
            self.add(f"and.b32 {m}, %v2, 3;")
        self.add(f"mov.u32 {i}, 0;")
        if shape == "guarded":
            self.add(f"setp.ge.u32 %p1, {i}, {many};", f"@%p1 bra {after};")
        self.at(top)
        if pragma:
            self.add(f'.pragma "{pragma}";')
        if shape == "top":
            self.add(f"setp.ge.u32 %p1, {i}, {many};", f"@%p1 bra {after};")
        self.loops.append((len(self.open), after, again))
        self.body(body)
        self.loops.pop()
        self.at(again)
        self.add(f"add.u32 {i}, {i}, 1;")
        if shape == "top":
            self.add(f"bra {top};")
        else:
            self.add(f"setp.lt.u32 %p1, {i}, {many};", f"@%p1 bra {top};")
        self.at(after)

    def _leave(self, test: str, value: str, mask: int) -> None:
        predicate, past = self._test(test, value, mask), self.label()
        if not self.open:
            self.add(f"@{predicate} ret;" if mask == 16 else f"@{predicate} exit;")
            return
        self.add(f"@!{predicate} bra {past};")
        self._leave_regions(0)
        self.add("ret;")
        self.at(past)

    def _break(self, how: str, test: str, value: str, mask: int) -> None:
        if not self.loops:
            self._leave(test, value, mask * 8)
            return
        down_to, after, again = self.loops[-1]
        predicate, past, to = self._test(test, value, mask), self.label(), after if how == "break" else again
        if len(self.open) == down_to:
            self.add(f"@{predicate} bra {to};")
            return
        self.add(f"@!{predicate} bra {past};")
        self._leave_regions(down_to)
        self.add(f"bra {to};")
        self.at(past)

    def _assign(self, op: int, to: int, a: int, b: int) -> None:
        code = COMPUTED[op % len(COMPUTED)]
        other = f"{b % 31 + 1}" if code[:2] == "sh" else f"%v{b % VALUES}" if b % 3 else f"{b}"
        self.add(f"{code} %v{to % VALUES}, %v{a % VALUES}, {other};")

    def _select(self, to: int, a: int, b: int, c: int) -> None:
        compare = ("lt", "ge", "eq", "ne", "gt", "le")[c % 6]
        self.add(f"setp.{compare}.{'us'[c % 2]}32 %p2, %v{a % VALUES}, %v{b % VALUES};")
        self.add(f"selp.b32 %v{to % VALUES}, %v{b % VALUES}, %v{c % VALUES}, %p2;")

    def _element(self, index: int) -> None:
        """%d3: an element of the input."""
        self.add(f"and.b32 %r1, %v{index % VALUES}, 255;", "mul.wide.u32 %d3, %r1, 4;", "add.u64 %d3, %d0, %d3;")

    def _load(self, to: int, index: int, offset: int, how: int) -> None:
        self._element(index)
        cache = ".nc" if self.outline.constant else ""
        if how % 5 == 0:
            self.add("setp.lt.u32 %p3, %r1, 100;", f"@%p3 ld.global.u32 %v{to % VALUES}, [%d3+{offset % 64 * 4}];")
        elif how % 5 == 1:
            self.add(f"ld.global.u32 %v{to % VALUES}, [%d1+{offset % 64 * 4}];")
        else:
            self.add(f"ld.global{cache}.u32 %v{to % VALUES}, [%d3+{offset % 64 * 4}];")

    def _store(self, value: int, place: int, *_: int) -> None:
        self.add(f"st.global.u32 [%d2+{OUT_AT + place % 16 * 4}], %v{value % VALUES};")

    def _guarded(self, value: int, place: int, a: int, b: int) -> None:
        self.add(f"setp.lt.u32 %p3, %v{a % VALUES}, %v{b % VALUES};")
        self.add(f"@{'!' * (b % 2)}%p3 st.global.u32 [%d2+{OUT_AT + place % 16 * 4}], %v{value % VALUES};")

    def _floats(self, to: int, a: int, b: int, many: int) -> None:
        for n in range(many % 5 + 1):
            one, other = (a + n) % 8, (b + n) % 8
            self.own(f"fma.rn.f32 %f{to % 8}, %f{one}, %f{other}, %f{to % 8};")
            if n % 3 == 2:
                self.own(f"ex2.approx.f32 %f{one}, %f{one};")

    def _float_load(self, to: int, index: int, offset: int, how: int) -> None:
        self._element(index)
        self.own(f"ld.global.f32 %f{to % 8}, [%d3+{offset % 64 * 4}];")

    def _float_store(self, value: int, place: int, *_: int) -> None:
        self.own(f"st.global.f32 [%d2+{OUT_AT + place % 16 * 4}], %f{value % 8};")

    def _shared(self, value: int, to: int, place: int, how: int) -> None:
        if how % 3:
            self.own(f"st.shared.u32 [%s+{place % 4 * 4}], %v{value % VALUES};")
        if how % 4:
            self.own(f"ld.shared.u32 %x{to % OTHERS}, [%s+{(place + how) % 4 * 4}];")
        if how % 5 == 0:
            self.own("ld.shared.v4.f32 {%f0, %f1, %f2, %f3}, [%s];")

    def _local(self, value: int, to: int, index: int, how: int) -> None:
        self.own(f"and.b32 %r2, %v{index % VALUES}, 7;", "mul.wide.u32 %d5, %r2, 4;", "add.u64 %d5, %d4, %d5;")
        self.own(f"st.local.u32 [%d5], %v{value % VALUES};", f"ld.local.u32 %x{to % OTHERS}, [%d4+{how % 8 * 4}];")

    def _atomic(self, value: int, to: int, place: int, how: int) -> None:
        where = f"[%d0+{COUNTERS_AT + place % 8 * 4}], %v{value % VALUES};"
        if how % 3 == 0:
            self.own(f"red.global.add.u32 {where}")
        else:
            op = ("add.u32", "exch.b32", "min.u32", "or.b32")[how % 4]
            self.own(f"atom.global.{op} %x{to % OTHERS}, {where}")

    def _copy(self, place: int, how: int, *_: int) -> None:
        self.own(f"cp.async.ca.shared.global [%s+{place % 4 * 4}], [%d1], 4;", "cp.async.commit_group;")
        if how % 4:
            self.own(f"cp.async.wait_group {how % 2};")

    def _bar(self, *_: int) -> None:
        self.own("bar.sync 0;")

    def _shuffle(self, to: int, a: int, by: int, how: int) -> None:
        source = f"%v{a % VALUES}" if how % 2 else f"%x{a % OTHERS}"
        self.own(f"shfl.sync.bfly.b32 %x{to % OTHERS}, {source}, {1 << by % 5}, 31, 0xffffffff;")

    def _vote(self, to: int, a: int, b: int, how: int) -> None:
        self.own(f"setp.lt.u32 %p4, %v{a % VALUES}, %v{b % VALUES};", "vote.sync.any.pred %p5, %p4, 0xffffffff;")
        self.own(f"selp.b32 %x{to % OTHERS}, %x{a % OTHERS}, %x{b % OTHERS}, %p5;")

    def _mma(self, *_: int) -> None:
        code = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
        self.own(f"{code} {{%f0, %f1, %f2, %f3}}, {{%x0, %x1, %x2, %x3}}, {{%x4, %x5}}, {{%f0, %f1, %f2, %f3}};")

    def _wgmma(self, groups: int, *_: int) -> None:
        if self.outline.arch < 90:
            self._mma()
            return
        code = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
        self.own("mov.b64 %d6, 0x4000004000010000;", "wgmma.fence.sync.aligned;")
        self.own(*[f"{code} {{%f4, %f5, %f6, %f7}}, %d6, %d6, 1, 1, 1, 0, 0;"] * (groups % 2 + 1))
        self.own("wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;")

    def _barrier(self, to: int, *_: int) -> None:
        wait = "try_wait" if self.outline.arch >= 90 else "test_wait"
        self.own("mbarrier.init.shared.b64 [bell], 1;", "mbarrier.arrive.shared.b64 %d7, [bell];")
        self.own(f"mbarrier.{wait}.shared.b64 %p4, [bell], %d7;", f"selp.b32 %x{to % OTHERS}, 1, %x0, %p4;")
