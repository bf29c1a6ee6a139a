"""Source text of random functions with regions, to compare Python's `with` with kscope's rewriting."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

_NAMES = ('"a"', '"b"', 'f"c{DEEP}"', "NAME", 'PREFIX + "x"', '"é ü"')
_VALUES = ("", "", ", value=nxt()", ", value=3", ", value=DEEP", ", value=-1.5", ", strategy=kscope.AllThreads()")
HEAD = """import kscope

NAME, PREFIX = "name", "pre "
LOAD = kscope.scope("load")
STORE = kscope.scope("store", value=4)


def make(DEEP):
"""


def program(seed: int) -> str:
    """A module with a function make(DEEP) that returns f(log, nxt), a function with regions of every shape."""
    random = Random(seed)
    body = "\n".join(_block(random, depth=5, indent=2, loop=False, budget=[40]))
    return f"{HEAD}    def f(log, nxt):\n{body}\n    return f\n"


def _block(random: Random, depth: int, indent: int, loop: bool, budget: list[int]) -> list[str]:
    lines: list[str] = []
    for _ in range(random.randint(1, 3)):
        budget[0] -= 1
        made = list(_statement(random, depth, indent, loop, budget))
        lines += made
        if len(made) == 1 and made[0].strip().startswith(("break", "continue", "return")):
            break
    return lines


def _statement(random: Random, depth: int, indent: int, loop: bool, budget: list[int]) -> Iterator[str]:
    pad = "    " * indent
    if budget[0] < 0 or depth == 0:
        yield f"{pad}log.append({random.randint(0, 99)})"
        return

    def inner(looped: bool = loop) -> list[str]:
        return _block(random, depth - 1, indent + 1, looped, budget)

    kind = random.choices(
        [
            "plain",
            "with",
            "as",
            "if",
            "for",
            "while",
            "jump",
            "return",
            "point",
            "explicit",
            "nested",
            "match",
            "raise",
        ],
        [4, 10, 2, 4, 4, 2, 4, 2, 2, 1, 1, 1, 0.5],
    )[0]
    if kind == "with":
        items = [_entered(random) for _ in range(random.choice([1, 1, 1, 2, 3]))]
        yield f"{pad}with {', '.join(items)}:"
        yield from inner()
    elif kind == "as":
        name = f"r{indent}"
        yield f'{pad}with kscope.region("as {name}") as {name}:'
        yield f"{pad}    {name}.pin(nxt())"
        yield from inner()
    elif kind == "if":
        yield f"{pad}if nxt() < {random.randint(1, 9)}:"
        yield from inner()
        if random.random() < 0.5:
            yield f"{pad}else:"
            yield from inner()
    elif kind == "for":
        yield f"{pad}for i{indent} in range({random.randint(0, 3)}):"
        yield from inner(True)
        if random.random() < 0.4:
            yield f"{pad}else:"
            yield from inner()
    elif kind == "while":
        yield f"{pad}while nxt() < {random.randint(1, 6)}:"
        yield from inner(True)
        if random.random() < 0.3:
            yield f"{pad}else:"
            yield from inner()
    elif kind == "match":
        yield f"{pad}match nxt() % 3:"
        for case in ("0", "1", "_"):
            yield f"{pad}    case {case}:"
            yield from _block(random, depth - 1, indent + 2, loop, budget)
    elif kind == "jump" and loop:
        word = random.choice(["break", "continue"])
        yield f"{pad}{word}" if random.random() < 0.2 else f"{pad}if nxt() < {random.randint(1, 9)}: {word}"
    elif kind == "return":
        value = random.choice(["", " nxt()", " log.append(7) or 3", " 5", " nxt"])
        yield (
            f"{pad}return{value}" if random.random() < 0.2 else f"{pad}if nxt() < {random.randint(1, 5)}: return{value}"
        )
    elif kind == "raise":
        yield f"{pad}if nxt() < 1: raise ValueError(nxt())"
    elif kind == "point":
        yield pad + random.choice(
            [
                'kscope.instant("i")',
                'kscope.instant("v", nxt())',
                'kscope.counter("n", value=nxt())',
                "(lambda: kscope.instant(NAME))()",
            ]
        )
    elif kind == "explicit":
        yield f"{pad}LOAD.enter(nxt())"
        yield f"{pad}log.append(1)"
        yield f"{pad}LOAD.exit()"
    elif kind == "nested":
        yield f"{pad}def g{indent}(n):"
        yield f'{pad}    with kscope.region(f"g{{DEEP}}", value=n):'
        yield f"{pad}        if n < {random.randint(1, 9)}: return n + 1"
        yield f"{pad}        log.append(n)"
        yield f"{pad}log.append(g{indent}(nxt()))"
    else:
        yield f"{pad}log.append({random.randint(0, 99)})"


def _entered(random: Random) -> str:
    chosen = random.random()
    if chosen < 0.1:
        return random.choice(["LOAD", "STORE", "STORE()", "LOAD(nxt())", "LOAD(value=DEEP)"])
    word = random.choice(["region", "region", "scope"])
    return f"kscope.{word}({random.choice(_NAMES)}{random.choice(_VALUES)})"
