"""hypothesis: random kernels with marks.

A kernel is a tree of statements, drawn with a budget: if/else, switches, loops tested at the top or
the bottom or entered at two places, breaks, continues and returns out of open regions, predicated exits, local
labels in braces, regions that nest, overlap and recur, values that are reassigned in the block that read them.
"""

from __future__ import annotations

from hypothesis import strategies as st

from .writing import POINTS, TYPES, VALUES, KernelText, Node, written

_value = st.sampled_from([f"%v{i}" for i in range(VALUES)])
_when = st.one_of(st.just(()), st.just(()), st.tuples(_value))
"""An optional predicate of a mark."""
_operand = st.one_of(_value, st.sampled_from(["0", "-1", "42", "0f3F800000"]))
_mask = st.sampled_from([1, 2, 3, 4, 0])
_op = st.sampled_from(["add.u32", "xor.b32", "mul.lo.u32", "sub.s32", "min.u32"])


@st.composite
def bodies(draw: st.DrawFn, depth: int, specs: tuple[str | None, ...]) -> tuple[Node, ...]:
    """A sequence of statements, nested at most `depth` deep."""
    return tuple(draw(node(depth, specs)) for _ in range(draw(st.sampled_from([1, 2, 3, 0]))))


_flag = st.sampled_from(["%q0", "%q1", "%q2"])
_forms = st.sampled_from(["setp", "guarded", "or", "and", "xor", "not", "mov", "both", "setp.and", "zero", "one"])


@st.composite
def loose_nodes(draw: st.DrawFn, depth: int) -> tuple[Node, ...]:
    """Statements among which marks may fail to pair: guarded pieces, stray enters and exits, new values of guards."""
    kinds = (
        "split",
        "split",
        "split",
        "flag",
        "flag",
        "when",
        "loose",
        "if",
        "loop",
        "break",
        "store",
        "guarded",
        "quit",
    )
    nodes = []
    for kind in draw(st.lists(st.sampled_from(kinds if depth else ("flag", "loose", "store")), max_size=4)):
        guard = (draw(_flag), draw(st.booleans()))
        inner = loose_nodes(max(0, depth - 1))
        if kind == "split":
            other = draw(st.sampled_from([guard, guard, guard, (draw(_flag), draw(st.booleans()))]))
            nodes.append(Node(kind, (draw(st.sampled_from(list(TYPES))), guard, other), (draw(inner),)))
        elif kind == "flag":
            nodes.append(Node(kind, (draw(_forms), draw(_flag), draw(_flag), draw(_flag), draw(_value))))
        elif kind == "when":
            nodes.append(Node(kind, guard, (draw(inner),)))
        elif kind == "guarded":
            nodes.append(Node(kind, (*guard, draw(st.integers(0, 14)), draw(_value))))
        elif kind == "quit":
            nodes.append(Node(kind, guard))
        elif kind == "loose":
            nodes.append(Node(kind, (draw(st.sampled_from(["enter", "exit"])), draw(st.sampled_from(list(TYPES))))))
        elif kind == "if":
            nodes.append(Node(kind, (draw(_value), draw(_mask)), (draw(inner), draw(inner))))
        elif kind == "loop":
            nodes.append(
                Node(kind, (draw(st.sampled_from(["top", "bottom"])), draw(st.integers(1, 3))), (draw(inner), ()))
            )
        elif kind == "break":
            nodes.append(Node(kind, (draw(st.sampled_from(["break", "continue", "exit"])), draw(_value), draw(_mask))))
        else:
            nodes.append(Node(kind, (draw(st.integers(0, 15)), draw(_value))))
    return tuple(nodes)


@st.composite
def loose_kernels(draw: st.DrawFn) -> KernelText:
    """A kernel with at least one mark, whose marks may not pair."""
    name, guard = draw(st.sampled_from(list(TYPES))), (draw(_flag), draw(st.booleans()))
    split = Node("split", (name, guard, guard), (draw(loose_nodes(2)),))
    return written((*draw(loose_nodes(2)), split, *draw(loose_nodes(2))))


SIMPLE = ("assign", "point", "store", "break", "spin", "trap", "bar", "wait", "quit")
NESTED = ("region", "region", "region", "loop", "if", "overlap", "switch")


@st.composite
def node(draw: st.DrawFn, depth: int, specs: tuple[str | None, ...]) -> Node:
    """One statement."""
    kind = draw(st.sampled_from(NESTED + SIMPLE if depth else SIMPLE))
    spec, name, inner = st.sampled_from(specs), st.sampled_from(list(TYPES)), bodies(depth - 1, specs)
    if kind == "assign":
        return Node(kind, (draw(_op), draw(_value), draw(_value), draw(_value)))
    if kind == "point":
        return Node(
            kind, (draw(st.sampled_from(list(POINTS))), draw(spec), draw(_operand), draw(st.booleans()), *draw(_when))
        )
    if kind == "store":
        return Node(kind, (draw(st.integers(0, 15)), draw(_value)))
    if kind == "break":
        return Node(kind, (draw(st.sampled_from(["break", "continue", "exit"])), draw(_value), draw(_mask)))
    if kind == "quit":
        return Node(kind, (draw(_flag), draw(st.booleans())))
    if kind == "spin":
        return Node(kind, (draw(st.integers(1, 3)),))
    if kind == "region":
        args = (draw(name), draw(spec), draw(_operand), draw(st.booleans()), *draw(_when))
        return Node(kind, args, (draw(inner),))
    if kind == "overlap":
        one, other = draw(st.permutations(list(TYPES)))[:2]
        first, second = (one, draw(spec), draw(_operand)), (other, draw(spec), draw(_operand))
        return Node(kind, (first, second), (draw(inner), draw(inner), draw(inner)))
    if kind == "loop":
        shape = draw(st.sampled_from(["top", "bottom", "two entries"]))
        return Node(kind, (shape, draw(st.integers(1, 3))), (draw(inner), draw(inner)))
    if kind == "switch":
        return Node(kind, (draw(_value),), (draw(inner), draw(inner)))
    if kind == "if":
        return Node(kind, (draw(_value), draw(_mask)), (draw(inner), draw(inner)))
    return Node(kind)


@st.composite
def kernels(draw: st.DrawFn, specs: tuple[str | None, ...] = (None,), depth: int = 3) -> KernelText:
    """A kernel with at least one mark. `specs`: strategies that its marks may name (None: the session's)."""
    before = draw(bodies(depth, specs))
    kept = Node("region", (draw(st.sampled_from(list(TYPES))), None, draw(_operand), draw(st.booleans())),
                (draw(bodies(depth - 1, specs)),))  # fmt: skip
    times = draw(st.sampled_from([0, 5, 9, 2]))
    if times:
        kept = Node("loop", ("bottom", times), ((kept,), draw(bodies(0, specs))))
    ending = draw(st.sampled_from(["ret;", "ret;", "ret;", "exit;", "", "setp.ne.u32 %p0, %v0, 0; @%p0 ret;"]))
    return written((*before, kept, *draw(bodies(depth, specs))), ending=ending)
