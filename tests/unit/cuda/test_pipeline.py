"""auto="pipeline" in CUDA C++ that is compiled at run time: the PTX without a macro is lowered."""

from __future__ import annotations

from kscope.capture.layout import META_SYMBOL
from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection
from kscope.marks.operations import PIPELINE
from kscope_cuda import Compilation

PTX = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k()
{
.reg .b32 %r<3>;
mov.u32 %r1, 1024;
mbarrier.arrive.shared.b64 _, [%r1];
ret;
}
"""


def test_a_source_without_macros_records_its_barriers():
    recording = Recording(selection=Selection((PIPELINE,)))
    assert META_SYMBOL in Compilation(recording).lower(PTX).decode()
    assert Compilation(Recording()).lower(PTX).decode() == PTX
    plain = PTX.replace("mbarrier.arrive.shared.b64 _, [%r1];", "")
    assert Compilation(recording).lower(plain).decode() == plain
