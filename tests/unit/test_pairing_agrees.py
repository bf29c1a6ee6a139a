"""The pairing check of compiled text agrees with the simulator."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from simulated import record

import kscope
from kscope.errors import PairingError
from kscope.instrument.recording import Recording
from kscope.lowering import pairing
from kscope.ptx import cfg
from kscope_sim import Warp

HEAD = ".visible .entry k()\n{\n"


@dataclass(frozen=True)
class With:
    """A `with` of a name around other marks."""

    name: str
    body: tuple[Node, ...] = ()


Node = With | tuple[str, str]
"""A `with`, or an explicit ("enter", name) or ("exit", name)."""

NAMES = st.sampled_from(["a", "b"])
EXPLICIT = st.tuples(st.sampled_from(["enter", "exit"]), NAMES)
NODES: st.SearchStrategy[tuple[Node, ...]] = st.recursive(
    st.lists(EXPLICIT, max_size=4).map(tuple),
    lambda inner: st.lists(st.one_of(st.builds(With, NAMES, inner), EXPLICIT), max_size=4).map(tuple),
    max_leaves=6,
)


def marks(nodes: tuple[Node, ...]) -> list[tuple[str, str, str]]:
    """(act, name, how) in the order of the text."""
    found: list[tuple[str, str, str]] = []
    for node in nodes:
        if isinstance(node, With):
            found += [("enter", node.name, "with"), *marks(node.body), ("exit", node.name, "with")]
        else:
            found.append((*node, "call"))
    return found


def of_the_text(nodes: tuple[Node, ...]) -> list[tuple[str, int]] | None:
    """For every exit the name, and which enter of the text it ends; None where the text does not pair."""
    lines = marks(nodes)
    text = HEAD + "".join(f"//kscope {act} {name} - - {how}\n" for act, name, how in lines) + "ret;\n}\n"
    (function,) = cfg.functions(text)
    paired = pairing.check(function, cfg.blocks(function))
    if paired.faults:
        return None
    ended: list[tuple[str, int]] = []
    began: dict[tuple[str, int], int] = {}
    depths = [paired.depths[i] for i, statement in enumerate(function.statements) if statement.mark is not None]
    for number, ((act, name, _), depth) in enumerate(zip(lines, depths, strict=True)):
        if act == "enter":
            began[name, depth] = number
        else:
            ended.append((name, began[name, depth]))
    return ended


def of_the_simulator(nodes: tuple[Node, ...]) -> list[tuple[str, int]] | None:
    """The same of a kernel that runs: its records, with the number of their enter as value."""
    scopes = {name: kscope.scope(name) for name in ("a", "b")}

    def place(nodes: tuple[Node, ...], number: int) -> int:
        for node in nodes:
            if isinstance(node, With):
                with scopes[node.name](number):
                    number = place(node.body, number + 1)
            elif node[0] == "enter":
                scopes[node[1]].enter(number)
            else:
                scopes[node[1]].exit()
            number += 1
        return number

    def kernel(warp: Warp) -> None:
        place(nodes, 0)

    try:
        lanes = record(kernel, recording=Recording(records=64))
    except PairingError:
        return None
    return [(one.region, int(one.value)) for lane in lanes for one in lane.records if one.value is not None]


NESTED = (With("a", (With("a"),)),)
AGAIN = (("enter", "a"), ("enter", "a"), ("exit", "a"), ("exit", "a"))
INSIDE = (With("a", (("enter", "a"), ("exit", "a"))),)
AROUND = (("enter", "a"), With("a"), ("exit", "a"))


@given(NODES)
@example(NESTED)
@example(AGAIN)
@example(INSIDE)
@example(AROUND)
def test_the_text_and_the_simulator_agree(nodes: tuple[Node, ...]) -> None:
    assert of_the_text(nodes) == of_the_simulator(nodes)


@pytest.mark.parametrize(("nodes", "pairs"), [(NESTED, True), (AROUND, True), (AGAIN, False), (INSIDE, False)])
def test_with_regions_may_nest_in_their_own_name_but_explicit_enters_may_not(
    nodes: tuple[Node, ...], pairs: bool
) -> None:
    assert (of_the_text(nodes) is not None) == pairs
