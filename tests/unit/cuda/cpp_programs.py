"""Random C++ functions of every shape in which lines may be selected. They emit numbers, their own line numbers
included, and read some."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

HEAD = """#define EACH(i, n) for (int i = 0; i < (n); ++i)
#define STEP(x) emit(x)
#define IF_SMALL if (nxt() < 5)
"""
_NESTED = ("if", "else", "loop", "loop", "while", "do", "switch", "each", "block", "lambda", "pragma", "branch")
_FLAT = (
    "plain",
    "declare",
    "declare",
    "single",
    "jump",
    "jump",
    "return",
    "goto",
    "text",
    "line",
    "macro",
    "struct",
    "comment",
)
_TEXTS = ('"} {;"', 'R"k(return; } "{ )k"', '"\\"}"', "'}'", "1'000", 'L"{"')


def program(seed: int, *, device: bool = False) -> str:
    """A function `int f(int a)` that calls emit(int) and nxt(), below macros; it returns or runs to its end.
    device: as CUDA C++ has it."""
    random = Random(seed)
    made = _Program(random)
    body = made.block(4, 1, loop=False, lines=90)
    label = ["  done: emit(__LINE__);"] if made.labeled else []
    where = "static __device__ __forceinline__ " if device else ""
    same = f"template <class T> {where}T same(T x) {{ return x; }}"
    lines = [HEAD + same, f"{where}int f(int a) {{", "  {", *body, "  }", *label, "  return a;", "}", ""]
    text = "\n".join(lines)
    return text.replace("#pragma GCC unroll", "#pragma unroll").replace("#pragma GCC ivdep", "") if device else text


class _Program:
    def __init__(self, random: Random) -> None:
        self.random, self.names, self.labeled = random, 0, False
        self.left = 0

    def block(self, depth: int, indent: int, *, loop: bool, lines: int = 0) -> list[str]:
        self.left = lines or self.left
        out: list[str] = []
        known: list[str] = []
        for _ in range(self.random.randint(5, 9) if lines else self.random.randint(1, 4)):
            self.left -= 1
            out += self.statement(depth, indent, loop, known)
        return out

    def statement(self, depth: int, indent: int, loop: bool, known: list[str]) -> list[str]:
        pad, random = "  " * indent, self.random
        if depth == 0 or self.left < 0:
            return [f"{pad}{self.simple(known)}"]
        kind = random.choice(_NESTED if random.random() < 0.15 * depth else _FLAT)
        kind = random.choice(["jump", kind]) if loop and kind not in _NESTED else kind
        inner = list(self.inner(kind, depth, indent, loop)) if kind in _NESTED else [[], []]
        return [f"{pad}{line}" for line in self.headed(kind, inner, loop, known, pad)]

    def inner(self, kind: str, depth: int, indent: int, loop: bool) -> Iterator[list[str]]:
        looped = loop or kind in ("loop", "while", "do", "each", "pragma")
        for _ in range(2):
            yield [line.removeprefix("  " * indent) for line in self.block(depth - 1, indent + 1, loop=looped)]

    def headed(self, kind: str, inner: list[list[str]], loop: bool, known: list[str], pad: str) -> Iterator[str]:
        random, (one, two) = self.random, inner
        self.names += 1
        name = f"v{self.names}"
        if kind == "declare":
            known.append(name)
            yield random.choice(
                [
                    f"int {name} = nxt();",
                    f"auto {name} = same<int>(nxt());",
                    f"[[maybe_unused]] int {name} = a;",
                    f"int {name} = nxt(), w{name} = {name} + 1;",
                    f"int {name}{{nxt()}};",
                    f"const int {name} =\n{pad}  nxt();",
                ]
            )
        elif kind == "if":
            yield f"if (nxt() < {random.randint(1, 9)}) {{"
            yield from one
            yield "}"
        elif kind == "else":
            yield "if (nxt() < 5)" + random.choice([" {", "\n" + pad + "{"])
            yield from one
            yield "} else if (nxt() < 3) {" if random.random() < 0.3 else "} else {"
            yield from two
            yield "}"
        elif kind == "single":
            yield f"if (nxt() < 6)\n{pad}  {self.simple(known)}"
            yield f"else {self.simple(known)}" if random.random() < 0.5 else f"{self.simple(known)}"
        elif kind in ("loop", "pragma"):
            if kind == "pragma":
                yield random.choice(
                    ["#pragma GCC unroll 2", "#pragma unroll", "#pragma GCC unroll 4\n#pragma GCC ivdep"]
                )
            head = f"for (int {name} = 0; {name} < {random.randint(1, 3)}; ++{name})"
            if random.random() < 0.25:
                yield f"{head}\n{pad}  {self.simple(known)}"
            else:
                yield f"{head} {{"
                yield from one
                yield "}"
        elif kind == "while":
            yield "while (nxt() < 4) {"
            yield from one
            yield "}"
        elif kind == "do":
            yield "do {"
            yield from one
            yield "} while (nxt() < 3);"
        elif kind == "switch":
            yield "switch (nxt() % 4) {"
            yield f"case 0: {self.simple([])}"
            yield f"  {self.simple([])}"
            yield random.choice(["  break;", "  [[fallthrough]];"])
            yield "case 1: case 2: {"
            yield from one
            yield "} " + random.choice(["break;", ""])
            yield f"default:\n{pad}  {self.simple([])}"
            yield "}"
        elif kind == "each":
            yield f"EACH({name}, {random.randint(0, 3)}) {{"
            yield from one
            yield "}"
        elif kind == "block":
            yield "{"
            yield from one
            yield "}"
        elif kind == "lambda":
            yield f"auto {name} = [&](int b) -> int {{"
            yield f"  emit(b); {self.simple(known)}"
            yield "  if (b < 5) return b + 1;"
            yield "  return b;"
            yield "};"
            yield f"emit({name}(nxt()));"
        elif kind == "jump" and loop:
            yield f"if (nxt() < {random.randint(1, 8)}) {random.choice(['break', 'continue'])};"
        elif kind == "return":
            yield f"if (nxt() < 2) return {random.choice(['nxt()', 'a', 'same<int>(a) + nxt()', '(emit(3), 4)'])};"
        elif kind == "goto":
            self.labeled = True
            yield "if (nxt() < 2) goto done;"
        elif kind == "text":
            yield f"(void)sizeof({random.choice(_TEXTS)}); emit(__LINE__);"
        elif kind == "line":
            yield f"{self.simple(known)} {self.simple(known)} if (nxt() < 3) {self.simple(known)}"
        elif kind == "branch":
            yield f"#if {random.randint(0, 1)}"
            yield from (line for line in one)
            yield "#else"
            yield self.simple(known)
            yield "#endif"
        elif kind == "macro":
            yield f"IF_SMALL {self.simple(known)}" if random.random() < 0.5 else "STEP(__LINE__); /* } */ // {"
        elif kind == "struct":
            yield f"struct S{name} {{ int x; int get() {{ return x + 1; }} }};"
            yield f"emit(S{name}{{3}}.get());"
        else:
            yield f"/* {{ */ {self.simple(known)} // return; }}"

    def simple(self, known: list[str]) -> str:
        values = ["nxt()", "__LINE__", "a", *known[-2:]]
        value = self.random.choice(values)
        return self.random.choice([f"emit({value});", f"a += {value};", f"emit(same<int>({value}) + 1);"])
