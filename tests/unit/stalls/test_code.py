"""From an instruction to its source lines and open regions: on listings, and on code that nvcc and Triton made."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synth
from nvcc import compiled, needs_nvcc

from kscope.capture import metadata, sample_section
from kscope.capture.capture_data import LaunchCount
from kscope.capture.model import KernelMeta, ModuleMeta, RegionMeta
from kscope.capture.samples import NO_PLACE, ROW, SampledFunction, Samples
from kscope.cli import main
from kscope.errors import FormatError, MissingError
from kscope.instrument import loaded_code
from kscope.instrument.backend import Backend
from kscope.instrument.raw_samples import SampledCode
from kscope.machine_code import code_map, disassembly, source_lines, tools
from kscope.machine_code.disassembly import Site
from kscope.machine_code.open_regions import open_regions
from kscope.machine_code.source_lines import live_registers
from kscope.session.kernel_filter import Patterns
from kscope.session.stalls import Stalls, collect_samples, problems


def listing(*instructions: str) -> disassembly.Function:
    """A function of one instruction per 16 bytes."""
    lines = ['\t.section\t.text.k,"ax",@progbits']
    lines += [f"        /*{16 * at:04x}*/   {text} ;" for at, text in enumerate(instructions)]
    [function] = disassembly.functions("\n".join(lines))
    return function


def opened(function: disassembly.Function, *sites: tuple[str, int, int]) -> list[tuple[str, ...]]:
    return open_regions(function, [Site(name, 16 * begin, 16 * end, 0, True) for name, begin, end in sites])


def test_the_read_at_a_begin_belongs_to_what_was_open_before() -> None:
    found = opened(listing("S2R R1", "CS2R R2", "FADD R3", "CS2R R4", "STG R5", "EXIT"), ("a", 1, 3))
    assert found == [(), (), ("a",), ("a",), (), ()]


def test_one_read_may_end_a_region_and_begin_the_next() -> None:
    found = opened(listing("CS2R R2", "FADD R3", "CS2R R4", "FMUL R3", "CS2R R5", "EXIT"), ("a", 0, 2), ("b", 2, 4))
    assert found == [(), ("a",), ("a",), ("b",), ("b",), ()]


def test_a_wait_s_loop_after_the_kernel_s_end_is_in_its_region() -> None:
    function = listing(
        "CS2R R2", "SYNCS P0", "@!P0 BRA 0x60", "CS2R R4", "STG R5", "EXIT",
        "SYNCS P0", "@!P0 BRA 0x60", "BRA 0x30", "BRA 0x90",
    )  # fmt: skip
    found = opened(function, ("wait", 0, 3))
    assert found[6:] == [("wait",)] * 3 and found[5] == ()


def test_code_that_is_reached_with_and_without_a_region_has_none() -> None:
    function = listing("@P0 BRA 0x40", "CS2R R2", "FADD R3", "BRA 0x40", "FMUL R3", "CS2R R4", "EXIT")
    assert opened(function, ("a", 1, 5))[4] == ()


def test_loops_keep_their_region_and_nested_ones_are_inside() -> None:
    function = listing("CS2R R2", "CS2R R6", "FADD R3", "CS2R R7", "@P0 BRA 0x10", "CS2R R4", "EXIT")
    found = opened(function, ("outer", 0, 5), ("inner", 1, 3))
    assert found == [(), ("outer",), ("outer", "inner"), ("outer", "inner"), ("outer",), ("outer",), ()]


def test_copies_of_an_unrolled_region_are_one_region() -> None:
    function = listing("CS2R R2", "FADD R3", "CS2R R4", "MOV R1", "CS2R R2", "FADD R3", "CS2R R4", "EXIT")
    assert opened(function, ("a", 0, 2), ("a", 4, 6)) == [(), ("a",), ("a",), (), (), ("a",), ("a",), ()]


def test_a_subroutine_is_in_the_region_of_its_only_caller() -> None:
    function = listing("CS2R R2", "CALL.REL 0x50", "CS2R R4", "STG R5", "EXIT", "FADD R3", "RET R4")
    assert opened(function, ("a", 0, 2))[5:] == [("a",), ("a",)]


def test_code_after_an_indirect_branch_is_assigned_by_address() -> None:
    function = listing("CS2R R2", "BRX R3", "FADD R3", "CS2R R4", "EXIT")
    assert opened(function, ("a", 0, 3))[2:] == [("a",), ("a",), ()]


TEXT = """
	.section	.text.k,"ax",@progbits
	//## File "/src/k.cu", line 3
        /*0000*/                   LDC R1, c[0x0][0x28] ;
	//## File "/src/h.cuh", line 1 inlined at "/src/k.cu", line 8
	//## File "/src/k.cu", line 8 inlined at "/src/k.cu", line 20
	//## File "/src/k.cu", line 20
        /*0010*/             @!P0  FMUL R12, R10,   2 ;
        /*0020*/                   EXIT ;
	.section	.text.other,"ax",@progbits
        /*0000*/                   EXIT ;
"""


def test_a_line_has_the_calls_that_were_inlined_around_it() -> None:
    chain = (("/src/h.cuh", 1), ("/src/k.cu", 8), ("/src/k.cu", 20))
    assert source_lines.lines(TEXT) == {"k": {0: (("/src/k.cu", 3),), 16: chain, 32: chain}, "other": {}}
    assert source_lines.texts(TEXT)["k"][16] == "@!P0 FMUL R12, R10, 2"


def test_the_body_of_a_with_statement(tmp_path: Path) -> None:
    file = tmp_path / "k.py"
    file.write_text("def k(warp):\n    with region('a'):\n        one()\n\n        two()\n    three()\n")
    assert source_lines.body(f"{file}:2") == (str(file), 2, 5)
    assert source_lines.body(f"{file}:3") is None
    assert source_lines.body(f"{tmp_path}/none.py:1") is source_lines.body("k.cu:4") is source_lines.body(None) is None


SOURCE = """#include "kscope.cuh"
__device__ int helper(int x, int n) {
  for (int k = 0; k < n; k++) x = x * 3 + k;
  return x;
}
extern "C" __global__ void before(float* a) { a[threadIdx.x] += 1; }
extern "C" __global__ void k(float* a, int n) {
  KSCOPE_KERNEL();
  float x = a[threadIdx.x];
  for (int i = 0; i < n; i++) {
    {
      KSCOPE_REGION("outer");
      {
        KSCOPE_REGION("wait");
        unsigned done = 0;
        while (!done)
          asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                       : "=r"(done) : "r"((unsigned)i) : "memory");
      }
      x = __sinf(x) * a[i];
    }
    __syncthreads();
    {
      KSCOPE_REGION("math");
      a[i] = helper((int)x, n);
    }
  }
  a[threadIdx.x] = x;
}
"""


def line(text: str) -> int:
    return next(number for number, one in enumerate(SOURCE.splitlines(), 1) if text in one)


@pytest.fixture(scope="module")
def cubin() -> bytes:
    try:
        tools.find("nvdisasm")
    except MissingError:
        pytest.skip("no nvdisasm")
    return compiled(SOURCE, "-arch=sm_90", "-lineinfo", "-DKSCOPE=1", to="cubin")


REGIONS = tuple(RegionMeta(name, where=f"unit.cu:{line(name)}") for name in ("outer", "wait", "math"))


@needs_nvcc
def test_code_by_nvcc_has_regions_and_lines(cubin: bytes) -> None:
    [function] = code_map.with_instructions([SampledFunction("k")], cubin, REGIONS)
    assert function.why_unknown == "" and function.unresolved == ()
    code = {
        word: [one for one, text in enumerate(function.text) if re.search(rf"\b{word}\b", text)]
        for word in ("SYNCS", "MUFU", "BAR", "IMAD")
    }
    assert {function.stack(one) for one in code["SYNCS"]} == {("outer", "wait")} and len(code["SYNCS"]) > 1
    assert max(code["SYNCS"]) > max(code["BAR"])  # the loop is after the kernel's end
    assert {function.stack(one) for one in code["MUFU"]} == {("outer",)}
    assert {function.stack(one) for one in code["BAR"]} == {()}
    in_helper = [one for one, _ in enumerate(function.at) if function.chain(one)[:1] and function.chain(one)[0][1] == 3]
    assert in_helper and {function.stack(one) for one in in_helper} == {("math",)}
    call, calls = line("helper((int)x"), {function.chain(one)[-1][1] for one in in_helper}
    assert call in calls and calls <= {3, call}  # nvcc may name no call in what is left of an unrolled loop
    lines = {region.name: (region.first, region.last) for region in function.regions}
    assert lines["math"][0] == line('"math"') and lines["math"][1] >= line("helper((int)x")
    assert lines["outer"][0] <= lines["wait"][0] and lines["wait"][1] <= lines["outer"][1]


@needs_nvcc
def test_each_instruction_knows_how_many_registers_hold_a_value(cubin: bytes) -> None:
    [function] = code_map.with_instructions([SampledFunction("k")], cubin, REGIONS)
    assert len(function.live) == len(function.at)
    used = {int(number) for text in function.text for number in re.findall(r"\bR([0-9]+)", text)}
    assert 0 < max(function.live) <= max(used) + 1
    assert function.live[-1] == 0 and "NOP" in function.text[-1], "the padding needs none"


@needs_nvcc
def test_code_whose_registers_the_disassembler_does_not_count_has_the_rest(
    cubin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> str:
        raise FormatError("nvdisasm refused it: Cannot print life ranges as flow analysis is disabled")

    [counted] = code_map.with_instructions([SampledFunction("k")], cubin, REGIONS)
    monkeypatch.setattr(tools, "with_live_registers", refused)
    assert code_map.with_instructions([SampledFunction("k")], cubin, REGIONS) == [replace(counted, live=())]


def test_live_registers_are_the_first_column_of_the_disassembler_s_table() -> None:
    text = """
.text.a:
        .section        .text.a,"ax",@progbits       // | GPR   | PRED   | UGPR   | UPRED   |
        /*0000*/                   LDC R1, c[0x0] ;  // |   12  |        |    2   |         |
        /*0010*/                   EXIT ;            // |       |   1    |        |         |
        .section        .text.b,"ax",@progbits       // |       |        |        |         |
        /*0000*/                   NOP ;             // |    3  |        |        |         |
"""
    assert live_registers(text) == {"a": {0: 12, 16: 0}, "b": {0: 3}}


@needs_nvcc
def test_regions_know_what_their_code_moves_and_a_capture_keeps_it(cubin: bytes) -> None:
    [function] = code_map.with_instructions([SampledFunction("k")], cubin, REGIONS)
    work = {region.name: region.work for region in function.regions}
    assert work["outer"] is not None and work["outer"].unknown == "it has branches"
    samples = Samples(1024, ("wait",), (function,))
    assert sample_section.from_bytes(sample_section.to_bytes(samples)).functions == (function,)


@needs_nvcc
def test_a_missing_function_is_reported(cubin: bytes) -> None:
    known, missing = code_map.with_instructions([SampledFunction("before"), SampledFunction("none")], cubin, ())
    assert known.at and known.regions == () and NO_PLACE not in known.place
    assert missing.why_unknown == "its module has no function of this name"


def test_what_is_no_cubin_is_refused_with_a_reason() -> None:
    for data in (b"", b"\x7fELF" + bytes(60), bytes(1000)):
        [function] = code_map.with_instructions([SampledFunction("k")], data, ())
        assert function.why_unknown and not function.at


class Sampled(Backend):
    """A backend with samples of one module."""

    def __init__(self, cubin: bytes) -> None:
        self.cubin = cubin

    def samples(self) -> tuple[SampledCode, ...]:
        functions = (SampledFunction("k"), SampledFunction("unseen", why_unknown="its module was not seen"))
        rows = np.array([(0, 0, 0, 5), (1, 0, 0, 2)], ROW)
        return (SampledCode(Samples(1024, ("wait",), functions, rows, dropped=4, full=1), (self.cubin,), {0: 0}),)

    module_loaded = arm = disarm = resume = collect = modules = None  # type: ignore[assignment]  # not called


Sampled.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # the rest is not called


META = ModuleMeta("cuda", (KernelMeta("k", 77, 8),), REGIONS)


def marked(cubin: bytes) -> bytes:
    """The cubin with metadata, as a module that records has it."""
    return cubin + b"\0" + metadata.to_json(META)


@needs_nvcc
def test_a_session_that_cannot_sample_keeps_the_code_of_launched_kernels(
    cubin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded_code, "_images", {})
    loaded_code.keep(marked(cubin))
    samples, found = Stalls(1024).collected((META,), Patterns(), {77: LaunchCount(1)})
    assert samples is not None and not samples and not found
    [function] = samples.functions
    assert (function.kernel, function.name) == (77, "k") and function.at
    assert {one.name for one in function.regions} == {"outer", "wait", "math"}
    for session, launches in (
        (Stalls(1024), {77: LaunchCount()}),
        (Stalls(1024), {}),
        (Stalls(None), {77: LaunchCount(1)}),
    ):
        assert session.collected((META,), Patterns(), launches) == (None, ())
    assert Stalls(1024).collected((META,), Patterns(("other",)), {77: LaunchCount(1)}) == (None, ())


@needs_nvcc
def test_a_cubin_judges_the_regions_of_a_capture_without_samples(
    cubin: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = synth.capture(synth.slab(synth.EVERY_KIND))
    kernel = replace(META.kernels[0], id=recorded.modules[0].kernels[0].id)
    path, code = tmp_path / "run.kscope", tmp_path / "k.cubin"
    recorded.save(path)
    code.write_bytes(cubin)
    assert main(["crosscheck", str(path), "--code", str(code)]) == 2
    assert "not a cubin of kernels with marks" in capsys.readouterr().err
    code.write_bytes(cubin + b"\0" + metadata.to_json(replace(META, kernels=(kernel,))))
    main(["crosscheck", str(path), "--code", str(code), "--json"])
    rows = {row["region"]: row["verdict"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["outer"] == rows["math"] == "pure"


@needs_nvcc
def test_a_session_joins_samples_with_their_kernel(cubin: bytes) -> None:
    samples = collect_samples([Sampled(cubin)], (META,), Patterns())
    assert samples is not None
    known, unseen = samples.functions
    assert known.kernel == 77 and known.at and unseen.kernel is None
    assert {one.text.partition(":")[0] for one in problems(samples)} == {
        "the hardware dropped 4 samples",
        "the hardware's buffer for samples was full, which loses samples",
    }
