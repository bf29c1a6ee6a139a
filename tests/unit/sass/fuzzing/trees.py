"""A kernel as a random tree of statements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from ptxvm.writing import Node

VALUES, OTHERS = 6, 6
"""Registers that both interpreters compute, %v, and those that only the machine code's does, %x and %f."""
NAMES = {"load": None, "dot": "i32", "a b": "u32", "part": "f32", "wait.x": None, "store": None, "step": "i32"}
"""Names of regions, with the type of value that each has."""
POINTS = {
    "tick": ("instant", None), "load": ("instant", "i32"), "depth": ("counter", "u32"), "ratio": ("counter", "f32"),
    "message\x1fkscope.begin": ("instant", "u32"), "message\x1fkscope.end": ("instant", "u32"),
}  # fmt: skip
"""Names of instants, ends of spans and counters, with their act and type."""
SIMPLE = (
    "assign", "assign", "select", "load", "load", "store", "store", "guarded", "floats", "float_load", "float_store",
    "shared", "local", "atomic", "copy", "point", "empty",
)  # fmt: skip
TOGETHER = ("bar", "shuffle", "mma", "wgmma", "barrier", "vote")
"""Instructions that all lanes of a warp must execute together."""
NESTED = ("region", "region", "region", "loop", "loop", "if", "if", "predicated")
LEAVING = ("leave", "break")


@dataclass
class Growing:
    """Draws a tree.

    Attributes:
        dice: what decides.
        left: statements that may still be drawn.
        open: names of the regions around.
        uniform: all threads run what is drawn now.
        loops: loops around.
        kinds: statements without others in them.
        together: those that all lanes of a warp must run together.
    """

    dice: Random
    left: int
    open: list[str] = field(default_factory=list)
    uniform: bool = True
    loops: int = 0
    kinds: tuple[str, ...] = ()
    together: tuple[str, ...] = ()

    def body(self, depth: int, most: int = 4) -> tuple[Node, ...]:
        """Some statements, nested at most `depth` deep."""
        return tuple(self._nodes(depth, self.dice.randint(1, most)))

    def _nodes(self, depth: int, many: int) -> Iterator[Node]:
        for _ in range(many):
            if self.left > 0:
                self.left -= 1
                kinds = (*self.kinds, *NESTED * 2) if depth else self.kinds
                kinds += self.together if self.uniform and self.dice.random() < 0.5 else ()
                kinds += LEAVING if self.dice.random() < 0.3 else ()
                yield getattr(self, f"_{kind}", self._any)(kind, depth) if (kind := self.dice.choice(kinds)) else None

    def value(self) -> str:
        return f"%v{self.dice.randrange(VALUES)}"

    def _any(self, kind: str, depth: int) -> Node:
        """Numbers from which the text takes what it needs."""
        return Node(kind, tuple(self.dice.randrange(1 << 16) for _ in range(4)))

    def _name(self) -> str | None:
        free = [name for name in NAMES if name not in self.open]
        return self.dice.choice(free) if free else None

    def _mark(self, kind: str | None) -> tuple[str | None, str | None]:
        """A value and a predicate."""
        constant = self.dice.choice(("7", "-2", "0x12345678") if kind != "f32" else ("0f3F800000",))
        value = None if kind is None else constant if kind == "f32" or self.dice.random() < 0.4 else self.value()
        when = self.value() if self.dice.random() < 0.12 else "0" if self.dice.random() < 0.02 else None
        return value, when

    def _region(self, kind: str, depth: int) -> Node:
        name = self._name()
        if name is None:
            return self._any("store", depth)
        mark = self._mark(NAMES[name])
        self.open.append(name)
        body = self.body(depth - 1)
        self.open.pop()
        return Node("region", (name, *mark), (body,))

    def _empty(self, kind: str, depth: int) -> Node:
        name = self._name()
        return self._any("store", depth) if name is None else Node("region", (name, *self._mark(NAMES[name])), ((),))

    def _point(self, kind: str, depth: int) -> Node:
        name = self.dice.choice(tuple(POINTS))
        return Node(kind, (name, *self._mark(POINTS[name][1])))

    def _loop(self, kind: str, depth: int) -> Node:
        times = self.dice.choice(("1", "2", "3", "4", "5", "8", "%n", "%n", "%n", "%n", "few", "lane"))
        shape = self.dice.choice(("bottom", "bottom", "top", "guarded"))
        uniform, self.uniform = self.uniform, self.uniform and times != "lane"
        self.loops += 1
        body = self.body(depth - 1)
        self.loops -= 1
        self.uniform = uniform
        return Node(kind, (times, shape, self.dice.choice(("", "", "nounroll"))), (body,))

    def _if(self, kind: str, depth: int) -> Node:
        test = self.dice.choice(("lane", "lane", "data", "data", "warp", "n", "block"))
        uniform, self.uniform = self.uniform, self.uniform and test in ("n", "block")
        bodies = self.body(depth - 1), self.body(depth - 1) if self.dice.random() < 0.5 else ()
        self.uniform = uniform
        return Node(kind, (test, self.value(), self.dice.choice((1, 2, 4, 8))), bodies)

    def _predicated(self, kind: str, depth: int) -> Node:
        """Short, so that ptxas makes predicates of the branch."""
        uniform, self.uniform, kinds, self.kinds = self.uniform, False, self.kinds, ("store", "load", "assign")
        body = self.body(0, 2)
        self.uniform, self.kinds = uniform, kinds
        name = self._name()
        if name is not None and self.dice.random() < 0.7:
            body = (Node("region", (name, *self._mark(NAMES[name])), (body,)),)
        return Node("if", (self.dice.choice(("lane", "data")), self.value(), self.dice.choice((1, 2))), (body, ()))

    def _leave(self, kind: str, depth: int) -> Node:
        return Node(kind, (self.dice.choice(("lane", "data", "n")), self.value(), self.dice.choice((16, 32, 64))))

    def _break(self, kind: str, depth: int) -> Node:
        if not self.loops:
            return self._leave("leave", depth)
        how = self.dice.choice(("break", "continue"))
        return Node(kind, (how, self.dice.choice(("lane", "data", "n")), self.value(), self.dice.choice((2, 4))))


def tree(dice: Random, without: tuple[str, ...] = ()) -> tuple[Node, ...]:
    """A kernel's statements, with at least one mark. without: kinds that it does not have."""
    kinds = tuple(kind for kind in SIMPLE if kind not in without)
    if dice.random() < 0.3:  # a kernel of few kinds
        kinds = (*dice.sample(kinds, 4), "store", "point")
    together = tuple(kind for kind in TOGETHER if kind not in without)
    growing = Growing(dice, dice.choice((6, 12, 20, 30)), kinds=kinds, together=together)
    nodes = growing.body(dice.choice((1, 2, 3, 3)), 8)
    while not any(marks(nodes)):
        growing.left += 3
        nodes = (*nodes, growing._region("region", 1))
    return nodes


def marks(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """The statements that are marks."""
    for node in nodes:
        if node.kind in ("region", "point"):
            yield node
        for body in node.bodies:
            yield from marks(body)


def smaller(nodes: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    """The same with one statement less, with a statement's body in its place, or simpler; big steps first."""
    for n in range(len(nodes)):
        yield (*nodes[:n], *nodes[n + 1 :])
    for n, node in enumerate(nodes):
        for body in node.bodies:
            if body:
                yield (*nodes[:n], *body, *nodes[n + 1 :])
        for which, body in enumerate(node.bodies):
            for less in smaller(body):
                bodies = (*node.bodies[:which], less, *node.bodies[which + 1 :])
                yield (*nodes[:n], Node(node.kind, node.args, bodies), *nodes[n + 1 :])
        if node.kind in ("region", "point") and node.args[2] is not None:
            yield (*nodes[:n], Node(node.kind, (*node.args[:2], None), node.bodies), *nodes[n + 1 :])
