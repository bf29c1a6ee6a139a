"""Core dumps of an H200 beside what cuda-gdb says of them, written ones, and damaged ones."""

from __future__ import annotations

import json
import lzma
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from core_files import LANE, one_warp
from nvcc import MARKS, compiled, needs_nvcc

import kscope
from kscope.capture.samples import SampledFunction
from kscope.cli import main
from kscope.core_dumps import reading, tables, text
from kscope.core_dumps.reading import read
from kscope.core_dumps.verdict import Verdict, verdict
from kscope.errors import FormatError, MissingError
from kscope.instrument.recording import Recording
from kscope.lowering import assembler
from kscope.lowering.plan import lower
from kscope.machine_code import code_map, tools

DATA = Path(__file__).resolve().parents[1] / "data" / "core"


def unpacked(language: str, folder: Path) -> Path:
    path = folder / f"{language}.core"
    path.write_bytes(lzma.decompress((DATA / f"{language}.core.xz").read_bytes()))
    return path


@pytest.fixture
def needs_nvdisasm() -> None:
    try:
        tools.find("nvdisasm")
    except MissingError:
        pytest.skip("no nvdisasm")


@pytest.mark.parametrize(("language", "block"), [("triton", 48), ("cupy", 49)])
def test_every_warp_is_where_cuda_gdb_has_it(language: str, block: int, tmp_path: Path) -> None:
    dump, said = read(unpacked(language, tmp_path)), (DATA / f"{language}.gdb.txt").read_text()
    warps = re.findall(r"^\*? +(\d+) +0x\S+ +0x\S+ +(0x\S+) +0 \((\d+),0,0\) +\((\d+),0,0\)", said, re.M)
    theirs = [(int(b), int(t) // 32, int(pc, 16)) for _, pc, b, t in warps]
    assert len(theirs) == 4, "cuda-gdb lists the warps of the SM with its focus"
    assert [(one.block, one.number, one.pc) for one in dump.warps if one.block == block] == theirs
    lanes = re.findall(r"^\*? +\d+ +(?:active|divergent) +(0x\S+)", said, re.M)
    (first,) = [one for one in dump.warps if (one.block, one.number) == (block, 0)]
    ours = [first.pc, *(pc for pc, count in first.others for _ in range(count))]
    assert sorted(ours) == sorted(int(pc, 16) for pc in lanes)
    [grid] = dump.grids
    assert (grid.number, grid.blocks, grid.threads) == (4, (64, 1, 1), (128, 1, 1))
    assert f"SM {first.sm}" in said and dump.devices == ("NVIDIA H200 0",) and dump.driver == "580.159"


@pytest.mark.usefixtures("needs_nvdisasm")
def test_a_triton_kernel_without_marks_has_the_source_line_of_every_warp(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = unpacked("triton", tmp_path)
    assert main(["watch", "--core", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"core dump {file}: NVIDIA H200 0, driver 580.159",
        "pipeline, launch 4: 2 of 64 blocks were running, with 8 warps",
        "  warps 0-3 of block 48 were at /src/kscope/bench/faults_triton.py:21",
        "  warps 0-3 of block 49 were at /src/kscope/bench/faults_triton.py:31",
        "",
    ]
    assert main(["watch", "--core", str(file), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "kscope.watch.core"
    group = answer["launches"][0]["groups"][0]
    assert (group["where"], group["count"], group["sms"]) == ("/src/kscope/bench/faults_triton.py:21", 4, "86")
    assert group["code"] == ["0x250 @P1 ERRBAR", "0x2d0 LDS R8, [UR4]"]


@pytest.mark.usefixtures("needs_nvdisasm")
@pytest.mark.parametrize(
    ("dump", "said"),
    [
        ("marked", ["warps 0-3 of block 5 were in `wait_full` at /src/kscope/tests/gpu/core_kernels.py:54"]),
        (
            "fails",
            [
                "warp 1 of block 5 failed (illegal address), was at /src/kscope/tests/gpu/core_kernels.py:64",
                "warps 0,2-3 of block 5 were at /src/kscope/tests/gpu/core_kernels.py:64",
            ],
        ),
    ],
)
def test_regions_and_failures_of_recorded_dumps(dump: str, said: list[str], tmp_path: Path) -> None:
    (launch,) = verdict(unpacked(dump, tmp_path)).launches
    assert [text.sentence(group) for group in launch.groups] == said


@pytest.mark.usefixtures("needs_nvdisasm")
def test_the_instruction_that_failed_is_known(tmp_path: Path) -> None:
    (launch,) = verdict(unpacked("fails", tmp_path)).launches
    assert launch.groups[0].code == ("0x120 LDG.E R2, desc[UR4][R2.64]",), "the others have gone on"


@pytest.mark.usefixtures("needs_nvdisasm")
def test_code_without_lines_is_shown_as_instructions_with_the_lanes_that_went_elsewhere(tmp_path: Path) -> None:
    found = verdict(unpacked("cupy", tmp_path))
    assert found.problems == ("1 function without source lines: pipeline; compile with -lineinfo",)
    first, second = found.launches[0].groups
    assert text.sentence(first).startswith("warp 0 of block 49 was at 0x590 ISETP.GE.AND P1, PT, R2, 0x3, PT of ")
    assert text.sentence(first).endswith("; 31 of its threads at 0x7d0 WARPSYNC.COLLECTIVE R7, `(.L_x_25)")
    assert (second.warps, [one.threads for one in second.elsewhere]) == ("1-3", [31])


def test_without_a_disassembler_the_kernel_and_its_offset_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "find", lambda tool: (_ for _ in ()).throw(MissingError(f"{tool} is not installed")))
    found = verdict(unpacked("triton", tmp_path))
    assert found.problems == ("pipeline: its source lines are not known: nvdisasm is not installed",)
    assert {one.code for one in found.launches[0].groups} == {("0x250",), ("0x2d0",), ("0x610",), ("0x690",)}


@pytest.mark.parametrize("more", [0, 8])
@pytest.mark.parametrize("extended", [False, True])
def test_rows_of_newer_drivers_and_a_million_sections_are_read(more: int, extended: bool, tmp_path: Path) -> None:
    dump = read(one_warp(tmp_path / "a.core", more=more, extended=extended))
    assert dump.devices == ("a device 0",) and dump.driver == ""
    assert dump.warps == (reading.Warp(0, 5, 7, 5, 3, 0),), "block 1 + 2 * 2, and thread 32 + 64 * 1 is of warp 3"


def test_drivers_that_do_not_know_faults_of_sms_are_read(tmp_path: Path) -> None:
    dump = read(one_warp(tmp_path / "a.core", old=True))
    assert dump.warps == (reading.Warp(0, 5, 7, 5, 3, 0),) and dump.faults == ()


def test_a_warp_is_where_its_active_lanes_are_and_lanes_that_have_ended_are_nowhere(tmp_path: Path) -> None:
    lanes = [{**LANE, "lane": number, "pc": pc} for number, pc in enumerate((0x100, 0x40, 0x100, 0x200))]
    masks = {"valid": 0b0111, "active": 0b0010}
    (warp,) = read(one_warp(tmp_path / "a.core", lane=lanes[0], others=lanes[1:], warp=masks)).warps
    assert (warp.pc, warp.others) == (0x40, ((0x100, 2),))


def test_a_launch_without_warps_has_not_begun_or_has_ended(tmp_path: Path) -> None:
    found = verdict(one_warp(tmp_path / "a.core"))
    assert text.launch_line(found.launches[1]) == "the kernel at 0x0, launch 8: none of its 6 blocks was running"


SOURCE = """#include "kscope.cuh"
extern "C" __global__ void k(volatile int* a, int n) {
  KSCOPE_KERNEL();
  {
    KSCOPE_REGION("fill");
    a[threadIdx.x] = n;
  }
  {
    KSCOPE_REGION("wait_full");
    while (a[n] == 0) __nanosleep(100);
  }
  a[0] = n;
}
"""


def marked(folder: Path) -> bytes:
    """A kernel with marks as it is loaded when it records."""
    text_, cubin = folder / "k.ptx", folder / "k.cubin"
    text_.write_text(lower(compiled(SOURCE, "-lineinfo", MARKS).decode(), Recording(), frontend="cuda").text)
    command = [assembler.ptxas() or "ptxas", "-arch=sm_90", "-lineinfo", str(text_), "-o", str(cubin)]
    subprocess.run(command, check=True)
    return cubin.read_bytes()


def at(image: bytes, instruction: str) -> int:
    [code] = code_map.with_instructions([SampledFunction("k")], image, ())
    return next(one for one, words in zip(code.at, code.text, strict=True) if instruction in words)


@needs_nvcc
@pytest.mark.usefixtures("needs_nvdisasm")
def test_a_warp_in_marked_code_has_its_region(tmp_path: Path) -> None:
    image = marked(tmp_path)
    found = verdict(one_warp(tmp_path / "a.core", image, lane={**LANE, "pc": at(image, "NANOSLEEP")}))
    assert text.sentence(found.launches[0].groups[0]).startswith("warp 3 of block 5 was in `wait_full` at ")
    assert (found.launches[0].groups[0].where or "").endswith("unit.cu:10"), "not the toolkit's header"


@needs_nvcc
@pytest.mark.usefixtures("needs_nvdisasm")
def test_a_warp_in_code_that_records_in_place_has_its_region(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, cubin = tmp_path / "unit.cu", tmp_path / "k.cubin"
    source.write_text(SOURCE)
    options = ["-DKSCOPE=1", f"-I{kscope.cuda_include()}", "-arch=sm_90", "-lineinfo", "-cubin"]
    subprocess.run(["nvcc", *options, str(source), "-o", str(cubin)], check=True)
    image = cubin.read_bytes()
    one_warp(tmp_path / "a.core", image, lane={**LANE, "pc": at(image, "NANOSLEEP")})
    assert main(["watch", "--core", str(tmp_path / "a.core")]) == 0
    assert "`wait_full` at " in capsys.readouterr().out


FAILURES: dict[str, tuple[dict[str, Any], Callable[[Verdict], str], str]] = {
    "a lane that failed": (
        {"lane": {**LANE, "exception": 14}},
        lambda found: text.sentence(found.launches[0].groups[0]),
        "warp 3 of block 5 failed (illegal address), was at ",
    ),
    "where it failed is behind it": (
        {"lane": {**LANE, "exception": 6, "pc": 1 << 40}, "warp": {"pc": 0, "known": 1}},
        lambda found: text.sentence(found.launches[0].groups[0]),
        "warp 3 of block 5 failed (misaligned address), was at 0x0 ",
    ),
    "a warp that is gone": (
        {"sm": {"exception": 12, "known": 1, "pc": 0x7F00}},
        lambda found: found.problems[0],
        "SM 5: failed assertion at 0x7f00 of no module; its warp is gone",
    ),
    "what no header names yet": (
        {"lane": {**LANE, "exception": 99}},
        lambda found: text.sentence(found.launches[0].groups[0]),
        "warp 3 of block 5 failed (exception 99), was at ",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_why_a_kernel_failed_is_said_first(case: str, tmp_path: Path) -> None:
    changed, said, expected = FAILURES[case]
    assert said(verdict(one_warp(tmp_path / "a.core", **changed))).startswith(expected)


@pytest.mark.parametrize("size", [0, 40, 64, 1000, 30_000])
def test_a_dump_that_is_cut_short_is_refused(size: int, tmp_path: Path) -> None:
    file = unpacked("triton", tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[:size])
    with pytest.raises(FormatError, match=r"triton\.core"):
        verdict(file)
    assert not tables.is_complete(file)
    file.write_bytes(whole[:40] + bytes(8) + whole[48:])
    with pytest.raises(FormatError, match="not completely written"):
        verdict(file)


def test_every_damaged_byte_of_the_tables_is_refused_or_read_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "find", lambda tool: (_ for _ in ()).throw(MissingError("none")))
    good = one_warp(tmp_path / "a.core", b"\x7fELF" + bytes(60)).read_bytes()
    refused = 0
    for place in range(0, len(good), 3):
        (tmp_path / "a.core").write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        try:
            list(text.lines(verdict(tmp_path / "a.core")))
        except FormatError:
            refused += 1
    assert refused > 50


def test_other_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "x.core"
    other.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(100))
    assert main(["watch", "--core", str(other)]) == 2
    assert "not a core dump of a GPU" in capsys.readouterr().err
    assert main(["watch", "--core", str(tmp_path / "none.core")]) == 2
    assert "none.core" in capsys.readouterr().err
    assert main(["watch", str(one_warp(tmp_path / "a.core"))]) == 2
    assert "kscope watch --core" in capsys.readouterr().err
    assert main(["watch", "--core"]) == 2
    assert "kscope watch --core PID|FILE" in capsys.readouterr().err
