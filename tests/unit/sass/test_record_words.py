"""Records that share registers: each is stored with the words that its marks wrote."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kscope import ptx
from kscope.errors import UnsupportedError
from kscope.instrument.recording import Recording
from kscope.sass.recording import borrowed_registers, regions, register_choice, registers, rows
from kscope.sass.recording.kernel import Recorded, record_kernel

from .kernels import ASSEMBLERS, EACH, HEAD, assembled, needs_tools

pytestmark = needs_tools
KERNEL = ptx.Kernel(Recording(records=16), ("elected",), 4, ("0x11112222", "0x33334444"), 90)
EARLY = f"""{HEAD}{ptx.control_symbol()}.visible .entry early(.param .u64 p) .reqntid 128
{{
    .reg .b32 %r<8>; .reg .b64 %d<4>;
    ld.param.u64 %d1, [p]; cvta.to.global.u64 %d1, %d1; mov.u32 %r1, %ctaid.x;
    //kscope enter first - - with
    st.global.u32 [%d1], %r1;
    //kscope exit first - - with
    //kscope enter second - - with
    st.global.u32 [%d1+4], %r1;
    //kscope exit second - - with
    //kscope instant third u32 - call %r1
    ret;
}}
"""
"""ptxas has the value of the third record before the first one is stored."""


def made(tool: str) -> Recorded:
    return record_kernel(EARLY, KERNEL, lambda text, table: assembled(text, tool, ("-lineinfo",) if table else ()))


@pytest.fixture
def quads(monkeypatch: pytest.MonkeyPatch) -> dict[regions.Key, int]:
    """Records share registers, as in a kernel that has few. Returns the first register of each record once chosen."""
    found: dict[regions.Key, int] = {}

    def chosen(
        pool: registers.Pool, some: Sequence[regions.Record], together: frozenset[frozenset[regions.Key]], *_: object
    ) -> registers.Allocation:
        allocation = pool.owned(some, regions.shared_numbers(some, together))
        found.update(allocation.quads)
        return allocation

    monkeypatch.setattr(register_choice, "choose_registers", chosen)
    monkeypatch.setattr(rows, "planned", lambda text, _, found, spots, pairs, __: rows.alone(text, found, spots, pairs))
    return found


@pytest.mark.parametrize("tool", EACH)
def test_a_value_that_comes_early_has_registers_that_no_open_record_uses(
    tool: str, quads: dict[regions.Key, int]
) -> None:
    made(tool)
    assert quads["third", "instant"] not in (quads["first", ""], quads["second", ""])


def test_a_word_of_another_record_is_found(quads: dict[regions.Key, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borrowed_registers.Lender, "overlapping", lambda *_: frozenset())
    with pytest.raises(UnsupportedError, match=r"of record .* was not written by its marks alone"):
        made(ASSEMBLERS[0])
    assert quads["third", "instant"] == quads["first", ""]
