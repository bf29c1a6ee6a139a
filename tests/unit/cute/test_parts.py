"""Source comments, and register usage from cubins."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscope.capture import metadata
from kscope.capture.layout import META_SYMBOL
from kscope.capture.model import Problem
from kscope.instrument.recording import Recording
from kscope.lowering import metadata_patch, plan, register_budget
from kscope.lowering.lowered import Lowered
from kscope.marks.grammar import Mark, quote
from kscope_cute import assembler, register_usage, source_comments

from .conftest import Made

PTX = ".visible .entry kernel_cutlass_mine_0()\n{{\n\t{}\n\tret;\n}}\n"
WORD = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.lists(st.tuples(st.integers(1, 9999), WORD, WORD), min_size=1))
def test_source_comments_are_read_back_and_removed(marks: list[tuple[int, str, str]]) -> None:
    lines = [f"//at {line} {quote(file)} mine\n\t{Mark('enter', name).comment()}" for line, file, name in marks]
    text = PTX.format("\n\t".join(lines))
    info = source_comments.source_info(text)
    assert info.kernels == {"kernel_cutlass_mine_0": "mine"}
    assert info.places == {name: f"{file}:{line}" for line, file, name in reversed(marks)}
    assert source_comments.without_source_comments(text) == "\n".join(
        line for line in text.split("\n") if "//at " not in line
    )


def test_kernels_are_named_after_their_function(make: Callable[..., Made]) -> None:
    made = make(
        "helper(x)", before="@cute.jit\ndef helper(x: cute.Tensor):\n    with region('one'):\n        x[0] = 1.0"
    )
    found = re.search(rf"{META_SYMBOL}\[\d+\] = \{{([^}}]*)\}}", made.ptx)
    assert found is not None
    assert [one.name for one in metadata.from_json(bytes(map(int, found[1].split(",")))).kernels] == ["kernel"]


def test_a_cubin_gives_registers_stack_and_setmaxnreg(make: Callable[..., Made]) -> None:
    small = make("x[thread] = x[thread] + 1.0", recording=None)
    usage = register_usage.usage(small.cubin, has_setmaxnreg=False)
    assert 0 < usage.registers < 32
    assert (usage.spill_bytes, usage.setmaxnreg_ignored) == (0, False)
    assert register_usage.usage(small.cubin, has_setmaxnreg=True).setmaxnreg_ignored


def test_a_module_is_assembled_once_and_its_binary_is_that_of_its_text(
    make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its metadata changed after it was measured."""
    texts: list[str] = []
    pipelines: list[Any] = []

    def assemble(text: str, *rest: Any) -> assembler.Assembled:
        texts.append(text)
        pipelines.append(rest)
        return original(text, *rest)

    original = assembler.assemble
    monkeypatch.setattr(assembler, "assemble", assemble)
    monkeypatch.setattr(register_budget, "lower_to_fit", _with_a_problem)
    with pytest.warns(UserWarning, match="a problem"):
        made = make("with region('one'):\n    x[thread] = x[thread] + 1.0")
    assert len(texts) == 1
    assert b"a problem" in made.cubin
    assert made.cubin == original(made.ptx, *pipelines[0]).cubin


def _with_a_problem(text: str, recording: Recording, **options: Any) -> Lowered:
    lowered = plan.lower(text, recording, frontend="cute")
    options["measure"](lowered.text)
    problems = (Problem("registers", "a problem"),)
    meta = replace(lowered.meta, problems=problems)
    return replace(lowered, text=metadata_patch.with_meta(lowered.text, meta), meta=meta, problems=problems)
