"""Four kernels in the style of CUTLASS's examples: their PTX and machine code with regions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kscope.instrument.recording import Recording
from kscope_cute import register_usage

from .conftest import VERSION, Made, compile, load
from .test_marks import metadata_of

HERE = Path(__file__).resolve()
GEMM = HERE.parents[3] / "examples" / "cute_gemm.py"
_REGION = re.compile(r"^( *)with kscope\.region\(\"(\w+)\".*\):$", re.M)

_ONE_WARP = """        if warp_idx == 0:
            with kscope.region("ask"):
"""

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # CuTe's, of names that 4.4 still needs


@dataclass(frozen=True)
class Kernel:
    """A kernel of a file. since: the CuTe DSL that first has all it uses."""

    name: str
    path: Path
    arch: str
    host: str
    since: tuple[int, int] = (4, 4)


KERNELS = (
    Kernel("hopper warp-specialized", GEMM, "sm_90a", "matmul"),
    Kernel("hopper prefetch_stages", HERE.with_name("kernels.py"), "sm_90a", "pipelined_host", (4, 8)),
    Kernel("blackwell tcgen05", HERE.with_name("kernels.py"), "sm_100a", "tensor_memory_host", (4, 8)),
    Kernel("ampere mma.sync", HERE.with_name("kernels.py"), "sm_80", "ampere_host"),
)
HOPPER, PIPELINED, BLACKWELL, AMPERE = KERNELS


class Compilations:
    """Each kernel in each form, compiled once."""

    def __init__(self, folder: Path, frontend: Any) -> None:
        self._folder, self._frontend = folder, frontend
        self._made: dict[tuple[str, str], Made] = {}

    def __call__(self, kernel: Kernel, form: str) -> Made:
        """form: "on", "off" (annotated, not enabled), "bare" (without the annotations), "store" (on, with that region
        alone), "every warp" and "every warp off" (loads in no `if`)."""
        if kernel.since > VERSION:
            pytest.skip(f"{kernel.name} needs nvidia-cutlass-dsl {'.'.join(map(str, kernel.since))}")
        key = kernel.name, form
        if key not in self._made:
            self._made[key] = self._compile(kernel, form)
        return self._made[key]

    def _compile(self, kernel: Kernel, form: str) -> Made:
        source = kernel.path.read_text()
        if form in ("bare", "store"):
            source = _REGION.sub(
                lambda found: found[0] if found[2] == form else f"{found[1]}if cutlass.const_expr(True):", source
            )
        if form.startswith("every warp"):
            assert source.count(_ONE_WARP) == 1
            source = source.replace(_ONE_WARP, _ONE_WARP.replace("warp_idx == 0", "cutlass.const_expr(True)"))
        path = self._folder / form / kernel.path.name
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
        module = load(path)
        if form in ("on", "store", "every warp"):
            self._frontend.enable(Recording(records=256))
        try:
            return compile(getattr(module, kernel.host), *_arguments(module), arch=kernel.arch)
        finally:
            self._frontend.disable()


def _arguments(module: Any) -> list[Any]:
    if module.__name__.endswith("cute_gemm"):
        return [*module.fakes(2048), 132, module.driver.CUstream(0)]
    return list(module.fakes())


@pytest.fixture(scope="module")
def compilations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compilations]:
    from kscope.instrument import registry

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(GEMM.parent))  # the copies import what the examples share
        yield Compilations(tmp_path_factory.mktemp("forms"), registry.frontend("cute"))


each = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)


_ANCHORS = 25
"""Instructions at the site of a loop's anchors and at the kernel's end, most of which a warp jumps over."""


@each
def test_disabled_regions_leave_the_binary_unchanged(compilations: Compilations, kernel: Kernel) -> None:
    off, bare = compilations(kernel, "off"), compilations(kernel, "bare")
    assert off.ptx == bare.ptx
    assert off.cubin == bare.cubin


@each
def test_regions_add_no_spill_and_keep_setmaxnreg(compilations: Compilations, kernel: Kernel) -> None:
    on, off = (compilations(kernel, form) for form in ("on", "off"))
    has_setmaxnreg = "setmaxnreg" in off.ptx
    recorded, plain = register_usage.usage(on.cubin, has_setmaxnreg), register_usage.usage(off.cubin, has_setmaxnreg)
    assert recorded.spill_bytes == plain.spill_bytes
    assert recorded.setmaxnreg_ignored == plain.setmaxnreg_ignored is False


@each
def test_a_mark_costs_at_most_six_and_a_half_instructions(compilations: Compilations, kernel: Kernel) -> None:
    on, one = compilations(kernel, "on"), compilations(kernel, "store")
    added = (len(on.code) - len(one.code) - _ANCHORS) / (on.events - one.events)
    print(f"{kernel.name}: {added:.2f} instructions per mark")
    assert added <= 6.5


def test_regions_do_not_serialize_wgmma(compilations: Compilations) -> None:
    for kernel in (HOPPER, PIPELINED)[: 1 + (PIPELINED.since <= VERSION)]:
        on, off = (_counted(compilations(kernel, form), "HGMMA", "WARPGROUP") for form in ("on", "off"))
        assert on == off
        assert on["HGMMA"] > 0


def _counted(made: Made, *names: str) -> dict[str, int]:
    return {name: sum(one.name == name for one in made.code) for name in names}


SIGNS: dict[str, Callable[[str], bool]] = {
    "c": lambda code: code.startswith("CS2R") and "CLOCK" in code,
    "w": lambda code: code.startswith("SYNCS.PHASECHK"),
    "x": lambda code: code.startswith("SYNCS.ARRIVE.TRANS64 "),
    "t": lambda code: code.startswith("UTMALDG"),
    "m": lambda code: code.startswith(("HGMMA", "UTCHMMA", "HMMA")),
    "d": lambda code: code.startswith("WARPGROUP.DEPBAR"),
    "a": lambda code: code.startswith("LDGSTS"),
    "g": lambda code: code.startswith("LDGDEPBAR"),
    "p": lambda code: code.startswith("DEPBAR"),
    "b": lambda code: code.startswith("BAR.SYNC"),
    "l": lambda code: code.startswith("LDTM"),
}
"""A letter for each instruction whose order with marks matters: Clock, Wait at an mbarrier, eXpect, Tma, Mma,
wgmma.wait (D), cp.Async, its Group, its wait (P), Barrier, tensor memory Load."""


def spelled(made: Made) -> str:
    """The kernel's machine code as letters."""
    lines = (f"{one.code} {' '.join(one.operands)}" for one in made.code)
    return "".join(next((sign for sign, test in SIGNS.items() if test(line)), "") for line in lines)


def test_marks_of_the_hopper_kernel_follow_source_order(compilations: Compilations) -> None:
    word = spelled(compilations(HOPPER, "on"))
    assert re.search("cwx?ccttc", word), word  # wait_empty contains the wait, ask both copies
    assert re.search("cwccm{4}dc", word), word  # wait_ready the wait, multiply four wgmma and their wait


def test_marks_of_the_pipelined_kernel_follow_source_order(compilations: Compilations) -> None:
    word = spelled(compilations(PIPELINED, "on"))
    assert re.search("cwx?ttc", word), word
    assert re.search("cwccm+dc", word), word


def test_a_region_around_the_loads_of_a_pipelined_loop_ends_with_them(compilations: Compilations) -> None:
    """Each copy of the loads, ahead of the loop and in it, is between two clock reads; the pipeline is the same."""
    word, plain = (spelled(compilations(PIPELINED, form)) for form in ("every warp", "every warp off"))
    assert word.count("t") == plain.count("t") > 4
    assert word.count("t") == 2 * len(re.findall("cwx?ttc", word)), word
    assert re.search("cwccm+dc", word), word


def test_marks_of_the_blackwell_kernel_follow_source_order(compilations: Compilations) -> None:
    word = spelled(compilations(BLACKWELL, "on"))
    assert re.search("cwx?ccttc", word), word
    assert re.search("cwccm{4}c", word), word
    assert re.search("clc", word), word


def test_marks_of_the_ampere_kernel_follow_source_order(compilations: Compilations) -> None:
    word = spelled(compilations(AMPERE, "on"))
    assert re.search("ca+ga+gc", word), word  # fill
    assert re.search("cpbcca+gccm+c", word), word  # wait, copy, mma


@pytest.mark.parametrize(("kernel", "issued"), [
    (HOPPER, {"ask": "cp.async.bulk.tensor"}),
    (PIPELINED, {"ask": "cp.async.bulk.tensor"}),
    (BLACKWELL, {"ask": "cp.async.bulk.tensor", "issue": "tcgen05.mma"}),
    (AMPERE, {"copy": "cp.async", "fill": "cp.async"}),
])  # fmt: skip
def test_regions_that_end_at_the_issue_of_asynchronous_work_are_known(
    compilations: Compilations, kernel: Kernel, issued: dict[str, str]
) -> None:
    regions = metadata_of(compilations(kernel, "on")).regions
    assert {one.name: one.ends_at_issue_of for one in regions if one.ends_at_issue_of} == issued
