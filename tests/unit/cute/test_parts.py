"""Source comments, and register usage from cubins."""

from __future__ import annotations

import re
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from kscope.capture import metadata
from kscope.capture.layout import META_SYMBOL
from kscope.marks.grammar import Mark, quote
from kscope_cute import cubin, source_comments

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


def test_a_kernel_is_called_as_its_function(make: Callable[..., Made]) -> None:
    made = make(
        "helper(x)", before="@cute.jit\ndef helper(x: cute.Tensor):\n    with region('one'):\n        x[0] = 1.0"
    )
    found = re.search(rf"{META_SYMBOL}\[\d+\] = \{{([^}}]*)\}}", made.ptx)
    assert found is not None
    assert [one.name for one in metadata.from_json(bytes(map(int, found[1].split(",")))).kernels] == ["kernel"]


def test_a_cubin_gives_registers_stack_and_setmaxnreg(make: Callable[..., Made]) -> None:
    small = make("x[thread] = x[thread] + 1.0", recording=None)
    usage = cubin.usage(small.cubin, has_setmaxnreg=False)
    assert 0 < usage.registers < 32
    assert (usage.spill_bytes, usage.setmaxnreg_ignored) == (0, False)
    assert cubin.usage(small.cubin, has_setmaxnreg=True).setmaxnreg_ignored
