"""One PTX instruction -> Python statements: the meaning of every instruction that the interpreter knows.

Registers are Python ints, unsigned and within their width; predicates are 0 or 1. In the statements,
`t` is the Thread, `m` the Memory, `A` the addresses of symbols.
"""

from __future__ import annotations

from kscope.marks.wide_values import is_wide

from .syntax import Addr, Imm, Instr, Name, Operand, Pair, PtxError, Reg, Sink, Special, Vec

CACHE = {"volatile", "relaxed", "acquire", "release", "acq_rel", "weak", "cta", "cluster", "gpu", "sys"} | {
    "ca", "cg", "cs", "cv", "lu", "nc", "wb", "wt", "L1::no_allocate", "L1::evict_first", "L1::evict_last"
}  # fmt: skip
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
COMPARE |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
BINARY = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}
NOTHING = {"bar", "barrier", "membar", "fence", "nanosleep"}


def bits(kind: str) -> int:
    """Width of a type such as u32, b64, pred."""
    return 1 if kind == "pred" else int(kind[1:])


def ones(width: int) -> int:
    return (1 << width) - 1


class Ops:
    """Translates instructions to Python; raises PtxError for unknown ones."""

    def statements(self, i: Instr) -> list[str]:
        known = getattr(self, "op_" + i.op[0], None)
        if known is None:
            raise PtxError(i.line, f"unknown instruction: {i.text}")
        try:
            found: list[str] = known(i)
        except (KeyError, IndexError, ValueError) as error:
            raise PtxError(i.line, f"unknown form of an instruction ({error!r}): {i.text}") from error
        return found

    # -- operands

    def value(self, i: Instr, arg: Operand, kind: str) -> str:
        """Python for the operand read as `kind`: signed types give signed ints, all others unsigned."""
        width = bits(kind)
        if isinstance(arg, Imm):
            unsigned = arg.value & ones(width)
            signed = kind[0] == "s" and unsigned >> width - 1
            return f"({unsigned - (1 << width)})" if signed else str(unsigned)
        if isinstance(arg, Special):
            text = special(arg.name)
        elif isinstance(arg, Reg):
            text = f"(1 - {arg.py})" if arg.negated else arg.py
            if arg.bits > width and kind != "pred":
                text = f"({text} & {ones(width)})"
        elif isinstance(arg, Name):
            return f"A[{arg.name!r}]"
        else:
            raise PtxError(i.line, f"operand {arg} does not fit: {i.text}")
        if kind[0] == "s":
            return f"(({text} ^ {1 << width - 1}) - {1 << width - 1})"
        return text

    def set(self, i: Instr, arg: Operand, text: str, kind: str) -> list[str]:
        """Assign an expression, cut to the width of `kind`; a signed one fills a wider register."""
        if isinstance(arg, Sink):
            return [text]
        if not isinstance(arg, Reg) or arg.negated:
            raise PtxError(i.line, f"{arg} is no destination: {i.text}")
        width = arg.bits if kind[0] == "s" else min(arg.bits, bits(kind))
        return [f"{arg.py} = ({text}) & {ones(width)}"]

    # -- data movement

    def op_mov(self, i: Instr) -> list[str]:
        kind, (to, source) = i.op[-1], i.args
        if isinstance(source, Vec):
            width = bits(kind) // len(source.items)
            parts = [f"{self.value(i, item, f'b{width}')} << {n * width}" for n, item in enumerate(source.items)]
            return self.set(i, to, " | ".join(parts), kind)
        text = self.value(i, source, "b64" if isinstance(source, Special) else kind)
        if isinstance(to, Vec):
            width = bits(kind) // len(to.items)
            pieces = [f"tmp = {text}"]
            for n, item in enumerate(to.items):
                if not isinstance(item, Sink):
                    pieces += self.set(i, item, f"tmp >> {n * width}", f"b{width}")
            return pieces
        return self.set(i, to, text, kind.replace("s", "u"))

    def op_cvt(self, i: Instr) -> list[str]:
        to, source = i.op[-2], i.op[-1]
        if "f" in to[0] + source[0] or set(i.op[1:-2]):
            raise PtxError(i.line, f"unknown form of an instruction: {i.text}")
        return self.set(i, i.args[0], f"{self.value(i, i.args[1], source)} & {ones(bits(to))}"
                        if to[0] != "s" else self.value(i, i.args[1], source), to)  # fmt: skip

    def op_cvta(self, i: Instr) -> list[str]:
        return self.set(i, i.args[0], self.value(i, i.args[1], i.op[-1]), i.op[-1])

    def op_selp(self, i: Instr) -> list[str]:
        a, b = (self.value(i, arg, i.op[-1]) for arg in i.args[1:3])
        return self.set(i, i.args[0], f"{a} if {self.value(i, i.args[3], 'pred')} else {b}", i.op[-1].replace("s", "u"))

    # -- arithmetic

    def binary(self, i: Instr) -> list[str]:
        if len(i.op) != 2:
            raise PtxError(i.line, f"unknown form of an instruction: {i.text}")
        a, b = (self.value(i, arg, i.op[-1]) for arg in i.args[1:])
        return self.set(i, i.args[0], f"{a} {BINARY[i.op[0]]} {b}", i.op[-1].replace("s", "u"))

    op_add = op_sub = op_and = op_or = op_xor = binary

    def op_not(self, i: Instr) -> list[str]:
        return self.set(i, i.args[0], f"~{self.value(i, i.args[1], i.op[-1])}", i.op[-1])

    def op_neg(self, i: Instr) -> list[str]:
        return self.set(i, i.args[0], f"-{self.value(i, i.args[1], i.op[-1])}", i.op[-1].replace("s", "u"))

    def minmax(self, i: Instr) -> list[str]:
        a, b = (self.value(i, arg, i.op[-1]) for arg in i.args[1:])
        return self.set(i, i.args[0], f"{i.op[0]}({a}, {b})", i.op[-1].replace("s", "u"))

    op_min = op_max = minmax

    def product(self, i: Instr) -> tuple[str, str]:
        """The product's Python and the type of the result."""
        mode, kind = i.op[1], i.op[2]
        a, b = (self.value(i, arg, kind) for arg in i.args[1:3])
        wide = f"{kind[0]}{2 * bits(kind)}"
        return {
            "lo": (f"{a} * {b}", kind),
            "hi": (f"({a} * {b} >> {bits(kind)})", kind),
            "wide": (f"{a} * {b}", wide),
        }[mode]

    def op_mul(self, i: Instr) -> list[str]:
        text, kind = self.product(i)
        return self.set(i, i.args[0], text, kind.replace("s", "u"))

    def op_mad(self, i: Instr) -> list[str]:
        text, kind = self.product(i)
        return self.set(i, i.args[0], f"{text} + {self.value(i, i.args[3], kind)}", kind.replace("s", "u"))

    def op_div(self, i: Instr) -> list[str]:
        a, b = (self.value(i, arg, {"u32": "u32", "u64": "u64"}[i.op[-1]]) for arg in i.args[1:])
        return self.set(i, i.args[0], f"{a} // {b} if {b} else -1", i.op[-1])

    def op_rem(self, i: Instr) -> list[str]:
        a, b = (self.value(i, arg, {"u32": "u32", "u64": "u64"}[i.op[-1]]) for arg in i.args[1:])
        return self.set(i, i.args[0], f"{a} % {b} if {b} else {a}", i.op[-1])

    # -- bits

    def op_shl(self, i: Instr) -> list[str]:
        a, n = self.value(i, i.args[1], i.op[-1]), self.value(i, i.args[2], "u32")
        return self.set(i, i.args[0], f"{a} << min({n}, 64)", i.op[-1])

    def op_shr(self, i: Instr) -> list[str]:
        a, n = self.value(i, i.args[1], i.op[-1]), self.value(i, i.args[2], "u32")
        return self.set(i, i.args[0], f"{a} >> min({n}, 64)", i.op[-1].replace("s", "u"))

    def op_shf(self, i: Instr) -> list[str]:
        direction, mode, _ = i.op[1:]
        low, high, n = (self.value(i, arg, "b32") for arg in i.args[1:])
        count = {"wrap": f"({n} & 31)", "clamp": f"min({n}, 32)"}[mode]
        pair = f"({high} << 32 | {low})"
        return self.set(i, i.args[0], {"l": f"{pair} << {count} >> 32", "r": f"{pair} >> {count}"}[direction], "b32")

    def op_lop3(self, i: Instr) -> list[str]:
        a, b, c = (self.value(i, arg, "b32") for arg in i.args[1:4])
        table = i.args[4]
        if i.op[1:] != ("b32",) or not isinstance(table, Imm):
            raise PtxError(i.line, f"unknown form of an instruction: {i.text}")
        terms = [
            f"({a if n & 4 else '~' + a} & {b if n & 2 else '~' + b} & {c if n & 1 else '~' + c})"
            for n in range(8)
            if table.value >> n & 1
        ]
        return self.set(i, i.args[0], " | ".join(terms) or "0", "b32")

    def op_dp2a(self, i: Instr) -> list[str]:
        if i.op[1:] != ("lo", "u32", "u32"):
            raise PtxError(i.line, f"unknown form of an instruction: {i.text}")
        a, b, c = (self.value(i, arg, "u32") for arg in i.args[1:])
        return self.set(i, i.args[0], f"({a} & 65535) * ({b} & 255) + ({a} >> 16) * ({b} >> 8 & 255) + {c}", "u32")

    def op_bfe(self, i: Instr) -> list[str]:
        width = {"u32": 32, "u64": 64}[i.op[1]]
        a = self.value(i, i.args[1], i.op[1])
        at, n = (f"min({self.value(i, arg, 'u32')} & 255, {width})" for arg in i.args[2:])
        return self.set(i, i.args[0], f"{a} >> {at} & (1 << {n}) - 1", i.op[1])

    def op_bfi(self, i: Instr) -> list[str]:
        kind = {"b32": "b32", "b64": "b64"}[i.op[1]]
        a, b = (self.value(i, arg, kind) for arg in i.args[1:3])
        at, n = (f"min({self.value(i, arg, 'u32')} & 255, {bits(kind)})" for arg in i.args[3:])
        mask = f"((1 << {n}) - 1 << {at} & {ones(bits(kind))})"
        return self.set(i, i.args[0], f"{a} << {at} & {mask} | {b} & ~{mask}", kind)

    def op_popc(self, i: Instr) -> list[str]:
        return self.set(i, i.args[0], f"({self.value(i, i.args[1], i.op[1])}).bit_count()", "u32")

    def op_clz(self, i: Instr) -> list[str]:
        return self.set(i, i.args[0], f"{bits(i.op[1])} - ({self.value(i, i.args[1], i.op[1])}).bit_length()", "u32")

    def op_prmt(self, i: Instr) -> list[str]:
        if i.op[1:] != ("b32",):
            raise PtxError(i.line, f"unknown form of an instruction: {i.text}")
        a, b, how = (self.value(i, arg, "b32") for arg in i.args[1:])
        return self.set(i, i.args[0], f"permute({a}, {b}, {how})", "b32")

    # -- predicates

    def op_setp(self, i: Instr) -> list[str]:
        compare, kind = i.op[1], i.op[-1]
        a, b = (self.value(i, arg, kind) for arg in i.args[1:3])
        text = f"{a} {COMPARE[compare]} {b}"
        if len(i.op) == 3:
            first, second = f"int({text})", f"int(not {text})"
        else:
            sign, c = BINARY[i.op[2]], self.value(i, i.args[3], "pred")
            first, second = f"int({text}) {sign} {c}", f"int(not {text}) {sign} {c}"
        to = i.args[0]
        if isinstance(to, Pair):
            if not isinstance(to.first, Reg) or not isinstance(to.second, Reg):
                raise PtxError(i.line, f"destination: {i.text}")
            return [f"{to.first.py}, {to.second.py} = {first}, {second}"]
        return self.set(i, to, first, "pred")

    # -- memory

    def address(self, i: Instr, arg: Operand) -> str:
        if not isinstance(arg, Addr):
            raise PtxError(i.line, f"{arg} is no address: {i.text}")
        return f"{self.value(i, arg.base, 'b64')} + {arg.offset}"

    def access(self, i: Instr) -> tuple[str, int, str]:
        """(state space or "", number of elements, type) of a load or store; refuses unknown suffixes."""
        words = [word for word in i.op[1:-1] if word not in CACHE]
        space = words.pop(0) if words and words[0] in ("global", "const", "shared", "param") else ""
        lanes = {(): 1, ("v2",): 2, ("v4",): 4}[tuple(words)]
        return space, lanes, i.op[-1]

    def op_ld(self, i: Instr) -> list[str]:
        space, lanes, kind = self.access(i)
        size = bits(kind) // 8
        text = f"m.load({self.address(i, i.args[1])}, {size * lanes}, {space!r}, {i.line})"
        to = i.args[0]
        if not isinstance(to, Vec):
            if kind[0] == "s":
                text = f"({text} ^ {1 << 8 * size - 1}) - {1 << 8 * size - 1}"
            return self.set(i, to, text, kind)
        if len(to.items) != lanes:
            raise PtxError(i.line, f"{lanes} elements are loaded: {i.text}")
        pieces = [f"tmp = {text}"]
        for n, item in enumerate(to.items):
            if not isinstance(item, Sink):
                pieces += self.set(i, item, f"tmp >> {8 * size * n} & {ones(8 * size)}", f"b{8 * size}")
        return pieces

    def op_st(self, i: Instr) -> list[str]:
        space, lanes, kind = self.access(i)
        size, source = bits(kind) // 8, i.args[1]
        items = source.items if isinstance(source, Vec) else (source,)
        if len(items) != lanes:
            raise PtxError(i.line, f"{lanes} elements are stored: {i.text}")
        plain = f"b{8 * size}"
        text = " | ".join(f"{self.value(i, item, plain)} << {8 * size * n}" for n, item in enumerate(items))
        return [f"m.store(t, {self.address(i, i.args[0])}, {size * lanes}, {text}, {space!r}, {i.line})"]

    def atomic(self, i: Instr, address: Operand, value: Operand) -> str:
        words = [word for word in i.op[1:-1] if word not in CACHE]
        space = words.pop(0) if words[0] in ("global", "shared") else ""
        (op,) = words
        kind, size = i.op[-1], bits(i.op[-1]) // 8
        if kind[0] not in "ub":
            raise PtxError(i.line, f"unknown form of an instruction: {i.text}")
        at = self.address(i, address)
        return f"m.atomic(t, {op!r}, {at}, {size}, {self.value(i, value, kind)}, {space!r}, {i.line})"

    def op_atom(self, i: Instr) -> list[str]:
        return self.set(i, i.args[0], self.atomic(i, i.args[1], i.args[2]), i.op[-1])

    def op_red(self, i: Instr) -> list[str]:
        return [self.atomic(i, i.args[0], i.args[1])]

    # -- the rest

    def nothing(self, i: Instr) -> list[str]:
        return []

    def op_bar(self, i: Instr) -> list[str]:
        return [f"yield ({i.line}, '', 0)"] if i.op[1] == "warp" else []

    def op_vote(self, i: Instr) -> list[str]:
        sync, how, kind = i.op[1:]
        full = i.args[2]
        if sync != "sync" or kind not in ("pred", "b32"):
            raise PtxError(i.line, f"unknown form of an instruction: {i.text}")
        value = self.value(i, i.args[1], "pred")
        if isinstance(full, Reg) and kind == "pred" and how == "any":  # of those that an activemask found
            return self.set(i, i.args[0], f"t.any({i.line}, {value})", kind)
        if isinstance(full, Reg) and how == "ballot":  # as if only this lane were active
            return self.set(i, i.args[0], f"{value} << t.lane", kind)
        if not isinstance(full, Imm) or full.value != ones(32):
            raise PtxError(i.line, f"unknown form of an instruction: {i.text}")
        return [f"tmp = yield ({i.line}, {how!r}, {value})", *self.set(i, i.args[0], "tmp", kind)]

    op_barrier = op_membar = op_fence = op_nanosleep = nothing

    def op_mbarrier(self, i: Instr) -> list[str]:
        place = next(n for n, arg in enumerate(i.args) if isinstance(arg, Addr))
        at = f"t, {self.address(i, i.args[place])}"
        more = self.value(i, i.args[place + 1], "u32") if len(i.args) > place + 1 else "1"
        match i.op[1]:
            case "init":
                return [f"t.barriers.init({at}, {more})"]
            case "arrive":
                return [f"t.barriers.arrive({at}, {f'1, {more}' if 'expect_tx' in i.op else more})"]
            case "expect_tx":
                return [f"t.barriers.arrive({at}, 0, {more})"]
            case "try_wait" | "test_wait":
                return self.set(i, i.args[0], f"t.barriers.test({at}, {more})", "pred")
        raise PtxError(i.line, f"unknown form of an instruction: {i.text}")

    def op_cp(self, i: Instr) -> list[str]:
        """Bulk copies to shared memory, and groups of other ones."""
        if "mbarrier::complete_tx::bytes" in i.text:
            barrier = self.address(i, i.args[3])
            return [f"t.barriers.copy(t, {barrier}, {self.value(i, i.args[2], 'u32')})"]
        match i.op[:3]:
            case ("cp", "async", "ca" | "cg"):
                return ["t.barriers.issue(t)"]
            case ("cp", "async", "commit_group"):
                return ["t.barriers.commit(t)"]
            case ("cp", "async", "wait_all"):
                return ["t.barriers.wait(t, 0)"]
            case ("cp", "async", "wait_group"):
                return [f"t.barriers.wait(t, {self.value(i, i.args[0], 'u32')})"]
        raise PtxError(i.line, f"unknown form of an instruction: {i.text}")

    def op_wgmma(self, i: Instr) -> list[str]:
        """For one lane, as if it were the whole warpgroup."""
        match i.op[1]:
            case "mma_async":
                return ["t.barriers.issue(t)"]
            case "commit_group":
                return ["t.barriers.commit(t)"]
            case "wait_group":
                return [f"t.barriers.wait(t, {self.value(i, i.args[0], 'u32')})"]
        raise PtxError(i.line, f"unknown form of an instruction: {i.text}")

    def op_match(self, i: Instr) -> list[str]:
        """With only this lane active."""
        return self.set(i, i.args[0], "1 << t.lane", "b32")

    def op_activemask(self, i: Instr) -> list[str]:
        return self.set(i, i.args[0], "t.active()", "b32")

    def op_kscope(self, i: Instr) -> list[str]:
        """A mark in a text that was not lowered: the oracle's hook (oracle.py)."""
        wide = i.mark is not None and is_wide(i.mark.type)
        words = [self.value(i, arg, "b64" if wide and not n else "b32") for n, arg in enumerate(i.args)]
        value = words.pop(0) if i.mark is not None and i.mark.operand else "None"
        return [f"t.mark({i.mark!r}, {value}, {words[0] if words else 1} != 0, {i.line})"]


CLOCKS = {
    "%clock64": "t.clock()",
    "%clock": "(t.clock() & 4294967295)",
    "%clock_hi": "(t.clock() >> 32)",
    "%globaltimer": "t.globaltimer()",
    "%globaltimer_lo": "(t.globaltimer() & 4294967295)",
    "%globaltimer_hi": "(t.globaltimer() >> 32)",
}


def special(name: str) -> str:
    """Python for a special register."""
    return CLOCKS.get(name, f"t.special[{name!r}]")


def is_clock(arg: Operand) -> bool:
    return isinstance(arg, Special) and arg.name in CLOCKS


def permute(a: int, b: int, how: int) -> int:
    """prmt.b32 in its default mode."""
    pool, result = (a | b << 32).to_bytes(8, "little"), 0
    for n in range(4):
        pick = how >> 4 * n
        byte = pool[pick & 7]
        result |= (0xFF * (byte >> 7) if pick & 8 else byte) << 8 * n
    return result


PAUSE = ("ld", "st", "atom", "red", "bar", "barrier", "mbarrier", "cp")
"""Instructions before which the scheduler may switch to another thread (those on memory that others see)."""
