"""sm_80, sm_86 and sm_89: other encodings and latencies, the same records; what is not known is refused.

No device ran this code. What is proved here: nothing of the kernel changes, the checkers accept what is inserted, and
the interpreter finds the records of the marks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sassvm.launching import judged

from kscope import ptx
from kscope.errors import UnsupportedError
from kscope.lowering import schedule_placement
from kscope.sass.checks import hazards, kernel_check
from kscope.sass.cubin import insert
from kscope.sass.cubin.control_codes import Control
from kscope.sass.cubin.insertion import Insertion
from kscope.sass.encoding import writing
from kscope.sass.recording.kernel import Recorded

from .kernels import ASSEMBLERS, BRANCHING, HEAD, assembled, functions, head, needs_tools
from .listed import Line, listed
from .marked import KERNELS, text
from .stripping import printed, stripped
from .test_insert import check, some_nops
from .test_recording import KERNEL, MARKED, PLAIN, alike, made, only
from .test_runs import SIZED, TURNS, case

pytestmark = needs_tools
UNPROVED = (80, 86, 89)


def each() -> Iterator[Any]:
    """Every architecture with every assembler; one pair in runs without variations."""
    for arch in UNPROVED:
        for tool in ASSEMBLERS:
            often = arch == UNPROVED[0] and tool == ASSEMBLERS[0]
            yield pytest.param(arch, tool, marks=() if often else pytest.mark.variation)


EACH = list(each())
ARCHES = [pytest.param(one, marks=() if one == UNPROVED[0] else pytest.mark.variation) for one in UNPROVED]


def moved(text: str, arch: int) -> str:
    """A module for another architecture."""
    return text.replace(HEAD, head(arch))


def made_for(arch: int, tool: str, text: str = MARKED, kernel: ptx.Kernel = KERNEL) -> Recorded:
    return made(tool, moved(text, arch), replace(kernel, arch=arch))


@pytest.mark.parametrize(("arch", "tool"), EACH)
def test_the_rest_is_the_plain_kernel(arch: int, tool: str) -> None:
    out = made_for(arch, tool)
    plain = stripped(printed(assembled(moved(PLAIN, arch), tool), "sums"), frozenset())
    expected = [one for one in plain if one[1] != "NOP"]
    rest = iter(stripped(printed(out.data, "sums"), frozenset()))
    kept = [next((other for other in rest if alike(one, other)), None) for one in expected]
    assert None not in kept
    assert sum(one[8] != other[8] for one, other in zip(expected, kept, strict=True) if other) <= 2


@pytest.mark.parametrize(("arch", "tool"), EACH)
def test_every_record_is_that_of_its_marks(arch: int, tool: str) -> None:
    found = judged(case(tool, replace(KERNEL, arch=arch), 3, moved(TURNS, arch)))
    assert len(found.slabs) == 8
    assert sorted(len(found.ideals[slab.key].events) for slab in found.slabs) == [0] * 6 + [2 * 3 + 1] * 2


@pytest.mark.variation
@pytest.mark.parametrize("arch", UNPROVED)
def test_the_size_of_a_slab_is_read_at_the_launch(arch: int) -> None:
    found = judged(replace(case(ASSEMBLERS[0], replace(SIZED, arch=arch), 3, moved(TURNS, arch)), size=32))
    assert {len(slab.ring) for slab in found.rows} == {32}


@pytest.mark.variation
@pytest.mark.parametrize("arch", UNPROVED)
def test_at_rest_nothing_is_written(arch: int) -> None:
    one = case(ASSEMBLERS[0], replace(KERNEL, arch=arch), 3, moved(TURNS, arch))
    for shut in (replace(one, epoch=0), replace(one, bound=False)):
        found = judged(shut)
        assert not found.slabs and all(access.size == 4 for access in found.host.memory.log)  # the kernel's own


@pytest.mark.parametrize("arch", ARCHES)
def test_without_its_nops_the_code_is_the_code_before(arch: int) -> None:
    data = assembled(moved(BRANCHING, arch))
    (kernel,) = functions(data)
    assert {"BRA", "BSSY", "BSYNC", "EXIT"} <= {one.name for one in kernel.instructions}
    assert hazards.check(kernel) == ()
    check(data, kernel, some_nops(kernel, 1))


@pytest.mark.parametrize("arch", ARCHES)
def test_descriptors_that_nvdisasm_leaves_out_are_the_registers_that_it_counts(arch: int) -> None:
    """`[R2.64]` reads UR4 and UR5 by its table of registers: the encoding has them where it has them on sm_90."""
    (kernel,) = functions(assembled(moved(BRANCHING, arch)))
    memory = [one for one in kernel.instructions if one.name in ("LDG", "STG", "ATOMG", "RED")]
    assert len(memory) >= 4
    for one in memory:
        (operand,) = (operand for operand in one.operands if "[" in operand)
        first = int(operand.removeprefix("desc[UR").partition("]")[0])
        assert {name for name in one.reads if name.startswith("UR")} == {f"UR{first}", f"UR{first + 1}"}


@pytest.mark.variation
@pytest.mark.parametrize("arch", UNPROVED)
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_recorded_where_it_is_on_sm_90(name: str, arch: int) -> None:
    def outcome(arch: int) -> bool:
        module = text(name, head(arch) + ptx.control_symbol())
        try:
            found = made(ASSEMBLERS[0], module, replace(KERNEL, arch=arch))
        except UnsupportedError:
            return False
        assert hazards.check(only(found.data)) == ()
        return True

    assert outcome(arch) == outcome(90)


PRODUCT, SUM, MULTIPLY = "HMMA.16816.F32 R8, R4, R12, R8", "IADD3 R2, R1, R1, RZ", "IMAD R1, R2, R3, R4"


def hazards_of(arch: int, *lines: Line) -> str:
    return "\n".join(map(str, hazards.check(replace(listed(*lines), arch=arch))))


def after(cycles: int, first: str, then: str) -> tuple[Line, ...]:
    """An instruction so many cycles after another one."""
    waits = [("NOP", Control(stall=1))] * (cycles - 1)
    return (first, Control(stall=1)), *waits, (then, Control(stall=1))


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("product", [PRODUCT, PRODUCT.replace("F32", "F32.BF16"), PRODUCT.replace("16816", "1688")])
def test_a_product_has_no_scoreboard(product: str, arch: int) -> None:
    assert "after 23 cycles; its result takes 24" in hazards_of(arch, *after(23, product, "MOV R1, R8"))
    assert hazards_of(arch, *after(24, product, "MOV R1, R8")) == ""
    unknown = product.replace("HMMA.", "HMMA.SP.")
    assert "no scoreboard counts it" in hazards_of(arch, *after(30, unknown, "MOV R1, R8"))


@pytest.mark.parametrize("arch", [80, 90])
def test_the_operands_of_a_product_are_read_later(arch: int) -> None:
    overwritten = "R12 is overwritten after 6 cycles; it is read up to 7"
    assert overwritten in hazards_of(arch, *after(6, PRODUCT, "MOV R12, R1"))
    assert hazards_of(arch, *after(7, PRODUCT, "MOV R12, R1")) == ""


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize(("first", "then"), [(MULTIPLY, SUM), (SUM, "IMAD R3, R2, R3, R4")])
def test_a_result_comes_to_the_other_pipe_one_cycle_later(arch: int, first: str, then: str) -> None:
    assert "after 4 cycles; its result takes 5" in hazards_of(arch, *after(4, first, then))
    assert hazards_of(arch, *after(5, first, then)) == ""


def test_both_halves_of_a_wide_multiplication_take_longer_than_on_sm_90() -> None:
    wide = "IMAD.WIDE.U32 R4, R2, R3, RZ", "IADD3 R1, R4, R2, RZ"
    assert hazards_of(90, *after(3, *wide)) == ""
    assert "its result takes 5" in hazards_of(80, *after(4, *wide))


def test_a_problem_reports_once_that_no_device_ran_it() -> None:
    one, other = (schedule_placement.untested_problem(arch) for arch in (80, 80))
    assert one == other and one.kernel is None and "sm_80" in one.text
    assert {90} == schedule_placement.PROVED


def test_an_architecture_that_is_not_known_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="sm_100 is not supported"):
        made_for(100, ASSEMBLERS[0])


def test_what_nvdisasm_reads_otherwise_is_refused() -> None:
    """Each inserted instruction is compared with the text that it was assembled from."""
    data = assembled(moved(BRANCHING, 80))
    (kernel,) = functions(data)
    good = writing.new("MOV R200, R201", Control(stall=5), arch=80)
    for other in ("MOV R200, R202", "@P0 MOV R200, R201", "IADD3 R200, R201, R202, RZ"):
        wrong = replace(good, seen=writing.parsed(other))
        insertion = Insertion({kernel.instructions[3].at: [wrong]}, registers=210)
        with pytest.raises(UnsupportedError, match="where another instruction was inserted"):
            kernel_check.check(insert.inserted(data, kernel, insertion), kernel, insertion, {})
