"""Machine code as text: instructions per region, and the effect of marks on a build."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st
from synth import Rec

from kscope.analysis.instructions import region_code
from kscope.analysis.trust import perturbation as perturb
from kscope.capture import layout
from kscope.capture.capture import Capture
from kscope.capture.layout import Kind
from kscope.capture.model import KernelMeta
from kscope.errors import FormatError, MissingError, UsageError
from kscope.instrument.recording import Recording
from kscope.lowering import plan
from kscope.lowering.lowered import Lowered
from kscope.machine_code import disassembly, occupancy, tools
from kscope.trace import Trace, decode

IDS = {layout.record_id("probe", Kind.SPAN): "probe"}


@pytest.fixture
def samples(root: Path) -> Path:
    return root / "tests" / "data" / "sass"


@pytest.mark.parametrize("name", ["loop_nvdisasm.txt", "loop_cuobjdump.txt"])
def test_both_disassemblers_show_the_eight_instructions_between_the_marks(samples: Path, name: str) -> None:
    [function] = disassembly.functions((samples / name).read_text())
    assert (function.name, len(function.instructions)) == ("ks", 289)
    found = disassembly.sites(function, IDS)
    [site] = found.sites
    assert (site.region, site.between, site.straight, found.unresolved) == ("probe", 8, True, ())
    between = [one.name for one in function.instructions if site.begin < one.at < site.end]
    assert between == ["FFMA"] * 8


def test_code_of_another_region_has_no_sites(samples: Path) -> None:
    [function] = disassembly.functions((samples / "loop_nvdisasm.txt").read_text())
    assert disassembly.sites(function, {layout.record_id("other", Kind.SPAN): "other"}).sites == ()


def test_ids_of_tight_loop_records_are_resolved_before_the_loop() -> None:
    number = layout.record_id("probe", Kind.SPAN)
    [function] = disassembly.functions(
        kernel(
            f"LOP3.LUT R13, R15, {number:#x}, RZ, 0xfc, !PT",
            "@P0 CS2R.32 R4, SR_CLOCKLO",
            "FFMA R0, R0, R1, R0",
            "@P0 CS2R.32 R10, SR_CLOCKLO",
            "@P0 SHF.L.U32 R12, R4, R15.reuse, RZ",
            "@P0 SHF.L.U32 R14, R10, R15, RZ",
            "@P0 STG.E.128 desc[UR12][R6.64], R12",
            "@!P1 BRA 0x10",
        )
    )
    [site] = disassembly.sites(function, IDS).sites
    assert (site.begin, site.end, site.between) == (0x10, 0x30, 1)


def test_predicated_records_are_traced_to_their_clock_reads() -> None:
    number = layout.record_id("probe", Kind.SPAN)
    [function] = disassembly.functions(
        kernel(
            f"LOP3.LUT R9, R11, {number:#x}, RZ, 0xfc, !PT",
            "CS2R.32 R7, SR_CLOCKLO",
            "SEL R30, R7, R30, P1",
            "FFMA R0, R0, R1, R0",
            "CS2R.32 R13, SR_CLOCKLO",
            "SEL R28, R28, R13.reuse, !P1",
            "SHF.L.U32 R15, R30, R11.reuse, RZ",
            "SHF.L.U32 R17, R28, R11, RZ",
            "SEL R8, R15, R8, P1",
            "SEL R10, R17, R10, P1",
            "@P1 STG.E.128 desc[UR14][R12.64], R8",
        )
    )
    [site] = disassembly.sites(function, IDS).sites
    assert (site.begin, site.end, site.between) == (0x10, 0x40, 2)


def test_an_id_that_a_claim_behind_the_kernel_writes_is_found_if_it_is_the_only_one() -> None:
    number, other = (layout.record_id(name, Kind.SPAN) for name in ("probe", "other"))
    code = (
        "BRA 0x70",
        "CS2R.32 R4, SR_CLOCKLO",
        "FFMA R0, R0, R1, R0",
        "CS2R.32 R6, SR_CLOCKLO",
        "@P6 STG.E.128 desc[UR12][R8.64], R4",
        "EXIT",
        "EXIT",
        f"IMAD.MOV.U32 R5, RZ, RZ, {number:#x}",
        "BRA 0x10",
    )
    [function] = disassembly.functions(kernel(*code))
    ids = IDS | {other: "other"}
    [site] = disassembly.sites(function, ids).sites
    assert (site.region, site.begin, site.end) == ("probe", 0x10, 0x30)
    [function] = disassembly.functions(kernel(*code[:8], f"IMAD.MOV.U32 R5, RZ, RZ, {other:#x}", "BRA 0x10"))
    assert disassembly.sites(function, ids).sites == ()


@pytest.mark.parametrize("selected", ["SEL R4, R7, R8, P1", "SEL R4, R4, R4, P1", "SEL R4, RZ, 0x1, P1", "SEL R4"])
def test_an_ambiguous_clock_read_leaves_the_site_unresolved(selected: str) -> None:
    clocks = [f"CS2R.32 R{number}, SR_CLOCKLO" for number in (4, 7, 8)]
    [function] = disassembly.functions(kernel(*clocks, selected, "NOP", END, IDENTIFY, STORE))
    assert disassembly.sites(function, IDS).unresolved == ("probe",)


def kernel(*lines: str) -> str:
    """A listing of one function `k`, one instruction per line, labels before their lines."""
    out, at = ['\t.section\t.text.k,"ax",@progbits'], 0
    for line in lines:
        if line.endswith(":"):
            out.append(line)
            continue
        out.append(f"        /*{at:04x}*/                   {line} ;")
        at += 16
    return "\n".join(out)


BEGIN, END = "CS2R.32 R4, SR_CLOCKLO", "CS2R.32 R6, SR_CLOCKLO"
IDENTIFY, STORE = f"MOV R5, {next(iter(IDS)):#x}", "@P0 STG.E.128 desc[UR4][R8.64], R4"


def site(*lines: str) -> disassembly.Site:
    [function] = disassembly.functions(kernel(*lines))
    [found] = disassembly.sites(function, IDS).sites
    return found


def test_branches_between_marks_are_detected() -> None:
    assert site(BEGIN, "FADD R0, R0, R0", END, IDENTIFY, STORE).straight
    assert not site(BEGIN, "@P1 BRA `(.L_x_1)", "FADD R0, R0, R0", ".L_x_1:", END, IDENTIFY, STORE).straight
    assert not site("@P1 BRA `(.L_x_1)", BEGIN, ".L_x_1:", "FADD R0, R0, R0", END, IDENTIFY, STORE).straight


def test_a_branch_to_the_first_clock_read_is_a_loop_around_the_region() -> None:
    assert site(".L_x_1:", BEGIN, "FADD R0, R0, R0", END, IDENTIFY, STORE, "@P1 BRA `(.L_x_1)").straight


def test_ids_are_followed_through_imad_umov_and_copies() -> None:
    word = next(iter(IDS))
    signed = word - (1 << 32)
    assert site(f"IMAD.MOV.U32 R5, RZ, RZ, -{-signed:#x}", BEGIN, "NOP", END, STORE).between == 1
    assert site(f"UMOV UR6, {word:#x}", BEGIN, "NOP", END, "IMAD.U32 R5, RZ, RZ, UR6", STORE).between == 1
    moved = ("CS2R R12, SR_CLOCKLO", "NOP", END, IDENTIFY, "IMAD.MOV.U32 R4, RZ, RZ, R12.reuse", STORE)
    assert site(*moved).between == 1


def test_split_constants_are_combined() -> None:
    ids = {0x3C004000: "probe"}  # 1.0 and 2.0 as fp16
    [function] = disassembly.functions(kernel(BEGIN, END, "HFMA2.MMA R5, -RZ, RZ, 1, 2", STORE))
    assert [found.region for found in disassembly.sites(function, ids).sites] == ["probe"]


def test_unresolvable_clocks_are_named() -> None:
    [function] = disassembly.functions(kernel("IADD3 R4, R1, R2, RZ", "NOP", END, IDENTIFY, STORE))
    assert disassembly.sites(function, IDS).unresolved == ("probe",)


@given(
    st.lists(
        st.sampled_from(
            [
                BEGIN,
                END,
                IDENTIFY,
                STORE,
                "MOV R4, R6",
                "BRA 0x10",
                "EXIT",
                ".L_1:",
                "STG.E.128 ,",
                "X",
                "SHF.L.U32 R4",
                "SEL R4",
            ]
        )
    )
)
def test_arbitrary_listings_are_read(lines: list[str]) -> None:
    for function in disassembly.functions(kernel(*lines)):
        for found in disassembly.sites(function, IDS).sites:
            assert found.begin < found.end


@given(st.text(max_size=200))
def test_arbitrary_text_parses_to_functions_or_none(text: str) -> None:
    assert isinstance(disassembly.functions(f"Function : x\n{text}"), tuple)


def trace(name: str = "k", cycles: int = 50) -> Trace:
    module = synth.module(("probe", "gone"), name=name)
    records = [Rec("probe", 2000 + 100 * n, 2000 + 100 * n + cycles) for n in range(6)]
    return decode(Capture(synth.EPOCH, (synth.device([synth.slab(records)]),), (module,)))


def test_region_instructions_are_static_counts_times_executions() -> None:
    listing = kernel(BEGIN, *["FADD R0, R0, R0"] * 20, END, IDENTIFY, STORE)
    found = region_code(trace(), disassembly.functions(listing))
    [row] = found.regions
    assert (row.least, row.most, row.executions, row.cycles, row.text) == (20, 20, 6, 50, "20 a time")
    assert row.ipc_least == pytest.approx(0.4)
    assert found.problems == ()


def test_regions_in_several_places_have_a_range_of_instructions() -> None:
    one = (BEGIN, "FADD R0, R0, R0", END, IDENTIFY, STORE)
    two = (BEGIN, *["FADD R0, R0, R0"] * 3, END, IDENTIFY, STORE)
    [row] = region_code(trace(), disassembly.functions(kernel(*one, *two))).regions
    assert (row.places, row.static, row.text) == (2, 4, "1 to 3 a time")


def test_regions_with_branches_have_no_exact_instruction_count() -> None:
    listing = kernel(BEGIN, "BRA `(.L_x_1)", "NOP", ".L_x_1:", END, IDENTIFY, STORE)
    [row] = region_code(trace(), disassembly.functions(listing)).regions
    assert (row.least, row.ipc_least, row.text) == (None, None, "2 in its code, with branches")


def test_code_of_another_kernel_or_build_is_named() -> None:
    listing = disassembly.functions(kernel(BEGIN, END, IDENTIFY, STORE))
    assert region_code(trace("other"), listing).problems == ("kernel other: not in this code, which has k",)
    assert "a different build" in region_code(trace(), listing, {"k": 5}).problems[0]
    assert region_code(trace(), listing, {"k": synth.KERNEL}).problems == ()
    empty = disassembly.functions(kernel("EXIT"))
    assert "no mark of it in this code" in region_code(trace(), empty).problems[0]


# actual output of ptxas

PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) {{
	.reg .b64 %a;
	.reg .f32 %x;
	.reg .b32 %i;
	.reg .pred %p;
	ld.param.u64 %a, [out];
	mov.u32 %i, 0;
	ld.global.f32 %x, [%a];
{body}
	st.global.f32 [%a], %x;
	ret;
}}
"""
FMA = "\tfma.rn.f32 %x, %x, %x, %x;\n"


def region(body: str, name: str = "probe") -> str:
    return f"\t//kscope enter {name} - - with\n{body}\t//kscope exit {name} - - with\n"


@pytest.fixture(scope="module")
def ptxas() -> str:
    backends = pytest.importorskip("triton.backends.nvidia")
    return str(Path(backends.__path__[0]) / "bin" / "ptxas")


def build(ptxas: str, folder: Path, body: str) -> tuple[Path, Lowered]:
    lowered = plan.lower(PTX.format(body=body), Recording(records=16), frontend="test")
    (folder / "k.ptx").write_text(lowered.text)
    subprocess.run([ptxas, "-arch=sm_90", folder / "k.ptx", "-o", folder / "k.cubin"], check=True)
    return folder / "k.cubin", lowered


@pytest.mark.parametrize("fmas", [0, 1, 17, 64])
def test_every_assembled_instruction_is_counted(ptxas: str, tmp_path: Path, fmas: int) -> None:
    cubin, lowered = build(ptxas, tmp_path, region(FMA * fmas) + region(FMA * 3, "other"))
    ids = {layout.record_id(name, Kind.SPAN): name for name in ("probe", "other")}
    [function] = disassembly.functions(tools.disassembly(cubin))
    found = disassembly.sites(function, ids)
    assert found.unresolved == ()
    assert {one.region: one.straight for one in found.sites} == {"probe": True, "other": True}
    count = {one.region: one.between for one in found.sites}
    claim = 40  # the claim's instructions may be scheduled into the first region, never more than there are
    assert fmas <= count["probe"] <= fmas + claim
    assert 3 <= count["other"] <= 3 + claim
    assert tools.builds(cubin) == {kernel.name: kernel.id for kernel in lowered.meta.kernels}


def test_a_capture_is_joined_only_with_the_build_it_was_recorded_from(ptxas: str, tmp_path: Path) -> None:
    cubin, lowered = build(ptxas, tmp_path, region(FMA * 9))
    functions = disassembly.functions(tools.disassembly(cubin))
    number = lowered.meta.kernels[0].id
    slab = synth.slab([Rec("probe", 2000, 2100)], kernel=number)
    module = replace(synth.module(("probe",)), kernels=(KernelMeta("k", number, 3),))
    mine = decode(Capture(synth.EPOCH, (synth.device([slab]),), (module,)))
    assert [row.region for row in region_code(mine, functions, tools.builds(cubin)).regions] == ["probe"]
    assert "a different build" in region_code(trace(), functions, tools.builds(cubin)).problems[0]


def test_code_is_matched_to_the_right_kernel_of_one_name(ptxas: str, tmp_path: Path) -> None:
    cubin, lowered = build(ptxas, tmp_path, region(FMA * 9))
    mine = lowered.meta.kernels[0].id
    other = mine ^ 1
    slabs = [synth.slab([Rec("probe", 2000, 2100)], kernel=number, grid_id=number) for number in (mine, other)]
    modules = tuple(
        replace(synth.module(("probe",)), kernels=(KernelMeta("k", number, 3),)) for number in (mine, other)
    )
    found = region_code(
        decode(Capture(synth.EPOCH, (synth.device(slabs),), modules)),
        disassembly.functions(tools.disassembly(cubin)), tools.builds(cubin),
    )  # fmt: skip
    assert [(row.kernel, row.region, row.executions) for row in found.regions] == [(f"k 0x{mine:x}", "probe", 1)]
    [problem] = found.problems
    assert problem.startswith(f"kernel k 0x{other:x}: this code is a different build")


def test_marks_show_in_the_perturbation_report(ptxas: str, tmp_path: Path) -> None:
    (tmp_path / "on").mkdir()
    on, _ = build(ptxas, tmp_path / "on", region(FMA))
    (tmp_path / "off.ptx").write_text(PTX.format(body=FMA))
    off = tmp_path / "off.cubin"
    subprocess.run([ptxas, "-arch=sm_90", tmp_path / "off.ptx", "-o", off], check=True)
    found = perturb.perturbation(off, on, threads=256, times_ns=(100.0, 108.0))
    assert (found.on.kernel, found.on.arch) == ("k", 90)
    assert found.on.registers > found.off.registers
    assert found.on.instructions > found.off.instructions > 3
    assert (found.off.warps_per_sm, found.slowdown) == (64, pytest.approx(0.08))
    with pytest.raises(UsageError, match="kernel 'x' is not in both"):
        perturb.perturbation(off, on, kernel="x")
    with pytest.raises(UsageError, match="two times above 0"):
        perturb.perturbation(off, on, times_ns=(0.0, 1.0))


def test_register_and_spill_counts_are_parsed_from_tool_output(samples: Path) -> None:
    usage = (samples / "loop_usage.txt").read_text()
    code = (samples / "loop_nvdisasm.txt").read_text()
    found = perturb.build(usage, code, "ks", threads=1024)
    assert (found.registers, found.stack_bytes, found.shared_bytes, found.instructions) == (32, 0, 0, 289)
    spilled = usage.replace("STACK:0", "STACK:48").replace("REG:32", "REG:65")
    more = perturb.build(spilled, code.replace("FFMA R0", "STL [R1], R0"), "ks", threads=1024)
    report = perturb.Perturbation(found, more, None, None)
    assert report.slowdown is None
    assert "spills more registers" in report.warnings[0]
    assert "0 warps fit on an SM instead of 64" in report.warnings[1]


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "arch", "warps"),
    [
        (32, 0, 256, 90, 64),
        (128, 0, 256, 90, 16),  # 65536 / (128 * 32) = 16
        (110, 98304, 256, 90, 16),  # registers in units of 8 a thread: 112, and two blocks of 96 KiB + 1
        (40, 0, 1024, 80, 32),  # 4 * (16384 / (40 * 32)) = 48 warps, whole blocks of 32
        (40, 0, 32, 80, 32),  # 32 blocks at most
        (40, 0, 64, 90, 48),  # 12 warps in each of four partitions
        (32, 0, 128, 120, 48),  # 48 warps at most
        (32, 99 << 10, 32, 120, 1),  # 100 KiB, of which a block takes one in addition
        (16, 0, 32, 86, 16),  # 16 blocks at most
        (255, 0, 1024, 90, 0),  # cannot run
    ],
)
def test_occupancy_is_the_least_of_its_limits(registers: int, shared: int, threads: int, arch: int, warps: int) -> None:
    assert occupancy.SMS[arch].fitting(registers, shared, threads // 32) * threads // 32 == warps


@pytest.mark.parametrize(
    ("registers", "warps"), [(32, 64), (33, 48), (40, 48), (41, 40), (136, 12), (144, 12), (255, 8)]
)
def test_warps_that_fit_are_those_of_four_partitions_of_an_sm(registers: int, warps: int) -> None:
    assert occupancy.warps_by_registers(registers) == warps


@pytest.mark.parametrize("threads", [0, 2000])
def test_impossible_block_sizes_are_refused(samples: Path, threads: int) -> None:
    usage, code = ((samples / f"loop_{tool}.txt").read_text() for tool in ("usage", "nvdisasm"))
    with pytest.raises(UsageError, match="1 to 1024"):
        perturb.build(usage, code, "ks", threads=threads)


def test_errors_for_missing_tools_name_their_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "_PACKAGES", {})
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    if Path("/usr/local/cuda/bin/nvdisasm").exists():
        pytest.skip("the CUDA toolkit is where it always is")
    with pytest.raises(MissingError, match="nvdisasm is not installed: it comes with the CUDA toolkit"):
        tools.find("nvdisasm")


def test_an_elf_file_that_is_not_a_cubin_is_refused(ptxas: str, tmp_path: Path) -> None:
    assert ptxas
    (tmp_path / "x.cubin").write_bytes(b"\x7fELF" + bytes(100))
    with pytest.raises(FormatError, match=r"x.cubin: nvdisasm refused it"):
        tools.disassembly(tmp_path / "x.cubin")
