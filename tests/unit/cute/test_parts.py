"""Places in the source, and numbers from cubins."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from kscope.marks import quote
from kscope_cute import cubin, places

from .conftest import Made

PTX = ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{{\n\t{}\n\tret;\n}}\n"


@given(st.lists(st.tuples(st.integers(1, 9999), st.text(min_size=1)), min_size=1))
def test_places_come_and_go_without_a_trace(marks: list[tuple[int, str]]) -> None:
    lines = "\n\t".join(f"//at {line} {quote(name)}\n\t//kscope enter a - - with" for line, name in marks)
    text = PTX.format(lines)
    told = places.told(text)
    assert "//at " not in told
    assert places.untold(told) == "\n".join(line for line in text.split("\n") if "//at " not in line)
    assert told.count(".file") == len({quote(name) for _, name in marks})


def test_a_text_with_line_information_keeps_its_own() -> None:
    text = PTX.format('//at 3 a.py\n\t//kscope enter a - - with\n\t.loc 1 7 0\n.file 1 "b.py"')
    assert ".loc 1 7 0" in places.told(text)
    assert "a.py" not in places.told(text)


def test_a_cubin_tells_registers_stack_and_setmaxnreg(make: Callable[..., Made]) -> None:
    small = make("x[thread] = x[thread] + 1.0", recording=None)
    usage = cubin.usage(small.cubin, asks=False)
    assert 0 < usage.registers < 32
    assert (usage.spill_bytes, usage.setmaxnreg_ignored) == (0, False)
    assert cubin.usage(small.cubin, asks=True).setmaxnreg_ignored
