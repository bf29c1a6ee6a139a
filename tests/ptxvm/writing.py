"""Kernels with marks as trees of statements, and their PTX text."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from kscope.marks.grammar import Mark
from kscope.marks.wide_values import is_wide

VALUES = 5
"""Registers %v0..%v4 that statements compute with."""

UNTOUCHED = 60
"""Offset in the output of a word without stores."""
TYPES: dict[str, str | None] = {
    "load": None, "dot": "i32", "a b/c": "u32", "überlauf": "f32", "wait.x": None, "long": "i64", "far": "f64",
}  # fmt: skip
"""Names of regions, with the one type of value that each has."""

POINTS: dict[str, tuple[str, str | None]] = {
    "tick": ("instant", None),
    "load": ("instant", "i32"),
    "depth": ("counter", "u32"),
    "ratio": ("counter", "f32"),
    "address": ("instant", "u64"),
    "bytes": ("counter", "i64"),
}
HEAD = """//
// a kernel of the test's
//
.version 8.6
.target sm_{arch}
.address_size 64
"""
DECLARE = """
.visible .entry {name}(
    .param .u64 {name}_param_0
)
.maxntid 1024, 1, 1
{{
    .reg .pred %p<4>;
    .reg .pred %q<3>;
    .reg .b32 %r<8>;
    .reg .b32 %v<{values}>;
    .reg .b32 %n<64>;
    .reg .b64 %rd<4>;
"""
START = """
    ld.param.u64 %rd0, [{name}_param_0];
    mov.u32 %v0, %tid.x;
    mov.u32 %v1, %ctaid.x;
    mov.u32 %v2, 7;
    mov.u32 %v3, %tid.y;
    and.b32 %v4, %v0, 0;
    setp.ne.u32 %q0, %v0, 0;
    setp.ne.u32 %q1, %v1, 0;
    mov.pred %q2, %q0;
"""


@dataclass(frozen=True)
class Node:
    """A statement of a `kind`, with its operands."""

    kind: str
    args: tuple[Any, ...] = ()
    bodies: tuple[tuple[Node, ...], ...] = ()


@dataclass
class _Writer:
    """Turns nodes into lines. `open`: names of open regions, innermost last."""

    lines: list[str] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    open: list[tuple[str, str | None]] = field(default_factory=list)
    loops: list[tuple[int, str, str]] = field(default_factory=list)  # (open regions, break label, continue label)
    labels: int = 0

    def label(self) -> str:
        self.labels += 1
        return f"$L__BB0_{self.labels}"

    def add(self, *lines: str) -> None:
        self.lines += [f"    {line}" for line in lines]

    def mark(self, *args: Any, when: str | None = None) -> None:
        mark = Mark(*args, when=when)
        if is_wide(mark.type) and mark.operand is not None:
            mark = replace(mark, operand=self.widened(mark.operand))
        self.marks.append(mark)
        self.add("// begin inline asm", mark.comment(), "// end inline asm")

    def widened(self, operand: str) -> str:
        """An operand of 64 bits that has one of 32 bits as its low half; a constant's is repeated."""
        if operand.startswith("%v"):
            self.add(f"mov.b64 %rd2, {{{operand}, %v{(int(operand[2:]) + 2) % VALUES}}};")
            return "%rd2"
        if operand.startswith("%"):
            self.add(f"mov.b64 %rd2, {{{operand}, {operand}}};")
            return "%rd2"
        word = int(operand.removeprefix("0f"), 16 if operand.startswith("0f") else 10) & 0xFFFFFFFF
        return f"0x{word * (1 + (word % 3 << 32)) & (1 << 64) - 1:016X}"

    def enter(self, name: str, spec: str | None, operand: str | None, when: str | None = None) -> None:
        self.mark("enter", name, TYPES[name], spec, "with", operand if TYPES[name] else None, when=when)
        self.open.append((name, spec))

    def exit(self, name: str, spec: str | None) -> None:
        self.open.remove((name, spec))
        self.mark("exit", name, None, spec, "with")

    def leave_regions(self, down_to: int) -> None:
        """Exit marks on a path that leaves; regions open here stay open."""
        for name, spec in reversed(self.open[down_to:]):
            self.mark("exit", name, None, spec, "with")

    def test(self, register: str, mask: int) -> None:
        self.add(f"and.b32 %r0, {register}, {mask};", "setp.ne.u32 %p0, %r0, 0;")

    def body(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            getattr(self, "write_" + node.kind)(node)

    def write_assign(self, node: Node) -> None:
        op, to, a, b = node.args
        self.add(f"{op} {to}, {a}, {b};")

    def write_region(self, node: Node) -> None:
        name, spec, operand, clobber, *when = node.args
        self.enter(name, spec, operand, *when)
        for word in (operand, *when):
            if clobber and word and word.startswith("%"):
                self.add(f"xor.b32 {word}, {word}, 0x5555;")
        self.body(node.bodies[0])
        self.exit(name, spec)

    def write_overlap(self, node: Node) -> None:
        (one, spec, a), (other, spec2, b) = node.args
        self.enter(one, spec, a)
        self.body(node.bodies[0])
        self.enter(other, spec2, b)
        self.body(node.bodies[1])
        self.exit(one, spec)
        self.body(node.bodies[2])
        self.exit(other, spec2)

    def write_point(self, node: Node) -> None:
        name, spec, operand, clobber, *when = node.args
        act, kind = POINTS[name]
        self.mark(act, name, kind, spec, "call", operand if kind else None, when=when[0] if when else None)
        if clobber and operand.startswith("%"):
            self.add(f"add.u32 {operand}, {operand}, 1;")

    def write_store(self, node: Node) -> None:
        self.add(f"st.global.u32 [%rd0+{4 * node.args[0]}], {node.args[1]};")

    def write_guarded(self, node: Node) -> None:
        """A store under a predicate: no branch, and it may be the last statement before a label."""
        guard, negated, offset, value = node.args
        self.add(f"@{'!' * negated}{guard} st.global.u32 [%rd0+{4 * offset}], {value};")

    def write_quit(self, node: Node) -> None:
        """Leave the kernel with regions open, unknown to the compiler: asm("exit;")."""
        guard, negated = node.args
        self.add(f"@{'!' * negated}{guard} exit;")

    def write_load(self, node: Node) -> None:
        """A load from a word without stores."""
        self.add(f"ld.global.u32 {node.args[0]}, [%rd0+{UNTOUCHED}];")

    def write_if(self, node: Node) -> None:
        other, done = self.label(), self.label()
        self.test(*node.args)
        self.add(f"@!%p0 bra {other};")
        self.body(node.bodies[0])
        self.add(f"bra.uni {done};")
        self.lines.append(f"{other}:")
        self.body(node.bodies[1])
        self.lines.append(f"{done}:")

    def write_switch(self, node: Node) -> None:
        table, done = f"$L_brx_{self.label()[7:]}", self.label()
        cases = [self.label() for _ in range(4)]
        self.add(f"and.b32 %r0, {node.args[0]}, 3;")
        self.lines.append(f"{table}: .branchtargets\n    {', '.join(cases)};")
        self.add(f"brx.idx %r0, {table};")
        for n, case in enumerate(cases):
            self.lines.append(f"{case}:")
            self.body(node.bodies[n % len(node.bodies)])
            if n != 1:  # the second case falls into the third
                self.add(f"bra.uni {done};")
        self.lines.append(f"{done}:")

    def write_loop(self, node: Node) -> None:
        shape, times = node.args
        again, top, after = self.label(), self.label(), self.label()
        n = f"%n{len(self.loops)}"
        self.add(f"mov.u32 {n}, 0;")
        if shape == "two entries":  # a loop that is also entered in its middle: irreducible
            self.add("setp.gt.u32 %p1, %v1, 1;", f"@%p1 bra {again};")
        elif shape == "two ways in":  # its top is entered by a jump and by falling through
            other = self.label()
            self.add("setp.eq.u32 %p1, %v1, 0;", f"@%p1 bra {other};", f"bra.uni {top};")
            self.lines.append(f"{other}:")
            self.add("add.u32 %v3, %v3, 1;")
        self.lines.append(f"{top}:")
        self.loops.append((len(self.open), after, again))
        if shape == "top":
            self.add(f"setp.ge.u32 %p1, {n}, {times};", f"@%p1 bra {after};")
        self.body(node.bodies[0])
        self.lines.append(f"{again}:\t// %bb.continue")
        self.loops[-1] = (len(self.open), after, after)  # a continue from here on would never end
        self.body(node.bodies[1])
        self.loops.pop()
        self.add(f"add.s32 {n}, {n}, 1;")
        if shape == "top":
            self.add(f"bra.uni {top};")
        else:
            self.add(f"setp.lt.u32 %p1, {n}, {times};", f"@%p1 bra {top};")
        self.lines.append(f"{after}:")

    def write_break(self, node: Node) -> None:
        """Break or continue the innermost loop, or return, if the test holds."""
        how, register, mask = node.args
        skip = self.label()
        self.test(register, mask)
        if not self.open and how == "exit":
            self.add("@%p0 exit;" if mask % 2 else "@%p0 ret;")
            return
        self.add(f"@!%p0 bra {skip};")
        if how == "exit" or not self.loops:
            self.leave_regions(0)
            self.add("ret;")
        else:
            down_to, after, again = self.loops[-1]
            self.leave_regions(down_to)
            self.add(f"bra {after if how == 'break' else again};")
        self.lines.append(f"{skip}:")

    def write_spin(self, node: Node) -> None:
        """An asm block with braces, its own register and its own label, like barrier waits."""
        self.add("{ .reg .pred P1; .reg .b32 %r0;", "mov.u32 %r0, 0;", "LAB_WAIT:", "add.u32 %r0, %r0, 1;")
        self.add(f"setp.eq.u32 P1, %r0, {node.args[0]};", "@P1 bra.uni DONE;", "bra.uni LAB_WAIT;", "DONE:", "}")

    def write_flag(self, node: Node) -> None:
        """Give a predicate a new value."""
        form, to, a, b, value = node.args
        self.add({
            "setp": f"setp.lt.u32 {to}, {value}, 2;",
            "guarded": f"@{a} setp.lt.u32 {to}, {value}, 2;",
            "or": f"or.pred {to}, {a}, {b};", "and": f"and.pred {to}, {a}, {b};", "xor": f"xor.pred {to}, {a}, {b};",
            "not": f"not.pred {to}, {a};", "mov": f"mov.pred {to}, {a};",
            "zero": f"mov.pred {to}, 0;", "one": f"mov.pred {to}, -1;",
            "both": f"setp.lt.u32 {to}|{a}, {value}, 2;", "setp.and": f"setp.lt.and.u32 {to}, {value}, 2, {b};",
        }[form])  # fmt: skip

    def write_when(self, node: Node) -> None:
        """A piece of the body that one predicate guards."""
        guard, negated = node.args
        skip = self.label()
        self.add(f"@{'' if negated else '!'}{guard} bra {skip};")
        self.body(node.bodies[0])
        self.lines.append(f"{skip}:")

    def write_loose(self, node: Node) -> None:
        """An enter or exit on its own, which may not pair."""
        act, name = node.args
        self.mark(
            act,
            name,
            TYPES[name] if act == "enter" else None,
            None,
            "with",
            "%v2" if act == "enter" and TYPES[name] else None,
        )

    def write_split(self, node: Node) -> None:
        """A region of which enter and exit are guarded each for itself, as Triton's pipeliner leaves it."""
        name, first, second = node.args
        self.write_when(Node("when", first, ((Node("loose", ("enter", name)),),)))
        self.body(node.bodies[0])
        self.write_when(Node("when", second, ((Node("loose", ("exit", name)),),)))

    def write_trap(self, node: Node) -> None:
        self.add("setp.ne.u32 %p2, %v2, %v2;", "@%p2 trap;")

    def write_wait(self, node: Node) -> None:
        self.add("cp.async.wait_all;")

    def write_bar(self, node: Node) -> None:
        self.add("bar.sync 0;")


@dataclass(frozen=True)
class KernelText:
    """A marked kernel named `k`, one parameter: the address of 64 bytes. `text(arch)` is the module."""

    body: str
    marks: tuple[Mark, ...]
    name: str = "k"

    def without(self, which: int) -> KernelText:
        """The kernel as a compiler leaves it that deleted one of the marks."""
        which %= len(self.marks)
        lines = self.body.split("\n")
        at = [n for n, line in enumerate(lines) if line.strip().startswith("//kscope")][which]
        marks = (*self.marks[:which], *self.marks[which + 1 :])
        return KernelText("\n".join([*lines[:at], *lines[at + 1 :]]), marks, self.name)

    def text(self, arch: str = "90") -> str:
        return HEAD.format(arch=arch) + self.body


def written(nodes: tuple[Node, ...], name: str = "k", ending: str = "ret;") -> KernelText:
    """The kernel's text; it may also end by running into its closing brace."""
    writer = _Writer()
    writer.body(nodes)
    writer.add(ending)
    parts = [DECLARE.format(name=name, values=VALUES), START.format(name=name), "\n".join(writer.lines), "\n}\n"]
    return KernelText("".join(parts), tuple(writer.marks), name)
