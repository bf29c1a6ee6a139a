"""How many records may be pending in registers: decided from the assembler's output, and only if needed."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from kscope.capture import layout, metadata
from kscope.capture.model import ModuleMeta, Problem
from kscope.instrument.recording import Recording
from kscope.lowering import assembler, metadata_patch, occupancy, plan, register_budget
from kscope.lowering.register_budget import lower_to_fit
from kscope.lowering.register_usage import Usage, read_log

PLAIN = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k()
{
    ret;
}
"""
MARKS = "    //kscope enter a - - with\n    //kscope exit a - - with\n    membar.gl;\n"
MARKED = PLAIN.replace("    ret;", MARKS + "    ret;")

GOOD, SPILLS, SPILLS_MORE = Usage(False, 0, 60), Usage(False, 64, 255), Usage(False, 128, 255)
IGNORED = Usage(True, 0, 168)


def metadata_of(text: str) -> ModuleMeta:
    found = re.search(rf"{layout.META_SYMBOL}\[\d+\] = \{{([^}}]*)\}}", text)
    assert found is not None
    return metadata.from_json(bytes(map(int, found[1].split(","))))


class Assembler:
    """A stand-in for the assembler with given results: for the text without marks, and for lowered texts by
    `pending`."""

    def __init__(self, plain: Usage | None, known: tuple[Problem, ...] = (), **by_pending: Usage | None) -> None:
        self.plain, self.measured = plain, []
        self._usages = {}
        for name, usage in by_pending.items():
            pending = int(name[1:])
            text = plan.lower(MARKED, Recording(pending=pending), frontend="test", known=known).text
            self._usages[text] = pending, usage

    def __call__(self, text: str) -> Usage | None:
        if "kscope" not in text:
            self.measured.append("plain")
            return self.plain
        pending, usage = self._usages[text]
        self.measured.append(pending)
        return usage


def lowered(assembler: Assembler, **options: object) -> tuple[int, list[str]]:
    """The selected `pending`, and the kinds of problem."""
    result = lower_to_fit(MARKED, Recording(**options), frontend="test", measure=assembler)
    assert metadata.to_json(result.meta)
    bare = plan.lower(MARKED, Recording(), frontend="test")
    assert {kernel.name for kernel in result.meta.kernels} == {kernel.name for kernel in bare.meta.kernels}
    return len(assembler.measured), [problem.kind for problem in result.problems]


def test_text_without_marks_assembles_nothing():
    assembler = Assembler(GOOD)
    assert lower_to_fit(PLAIN, Recording(), frontend="test", measure=assembler).text is PLAIN
    assert assembler.measured == []


def test_one_assembly_is_enough_without_spills():
    assembler = Assembler(GOOD, p8=GOOD)
    assert lowered(assembler) == (1, [])


def test_kernels_that_spill_without_marks_are_not_changed():
    assembler = Assembler(SPILLS, p8=SPILLS)
    assert lowered(assembler) == (2, [])


def test_assembler_failures_do_not_affect_register_decisions():
    assembler = Assembler(GOOD, p8=None)
    assert lowered(assembler) == (1, [])


TEXT = {pending: plan.lower(MARKED, Recording(pending=pending), frontend="test").text for pending in (8, 0)}


def test_pending_records_change_the_lowered_text():
    assert TEXT[8] != TEXT[0]


@pytest.mark.parametrize(("plain", "sunk"), [(GOOD, SPILLS), (GOOD, IGNORED), (SPILLS, SPILLS_MORE)])
def test_marks_store_in_place_if_that_avoids_spills(plain, sunk):
    assembler = Assembler(plain, p8=sunk, p0=plain)
    result = lower_to_fit(MARKED, Recording(), frontend="test", measure=assembler)
    assert result.text == TEXT[0]
    assert result.problems == ()


SIZED = MARKED.replace("k()", "k()\n.reqntid 256")
CRAMPED = Usage(False, 9000, 32)


def test_kernels_with_spilled_registers_request_one_block_per_sm():
    measured = []

    def measure(text: str) -> Usage:
        measured.append(text)
        return SPILLS if ".minnctapersm 1" in text or "kscope" not in text else CRAMPED

    result = lower_to_fit(SIZED, Recording(), frontend="test", measure=measure)
    assert result.text == plan.lower(SIZED, Recording(), frontend="test").text.replace(
        ".reqntid 256", ".reqntid 256\n.minnctapersm 1"
    )
    assert (len(measured), result.problems) == (3, ())


def test_the_kernels_own_register_directives_stay():
    assert register_budget.request_max_registers(SIZED).count(".minnctapersm") == 1
    message = SIZED.replace("256", "256\n.maxnreg 64")
    assert register_budget.request_max_registers(message) == message
    assert register_budget.request_max_registers(MARKED) == MARKED, "the directive needs the number of threads"


def test_unavoidable_spills_are_a_problem_of_the_module():
    known = (Problem("removed", "something else"),)
    assembler = Assembler(GOOD, known, p8=SPILLS_MORE, p0=SPILLS)
    result = lower_to_fit(MARKED, Recording(), frontend="test", measure=assembler, known=known)
    assert [problem.kind for problem in result.meta.problems] == ["removed", "registers"]
    assert "64 more bytes of registers spill" in result.problems[1].text


def test_a_lost_setmaxnreg_is_named():
    assembler = Assembler(GOOD, p8=IGNORED, p0=IGNORED)
    result = lower_to_fit(MARKED, Recording(), frontend="test", measure=assembler)
    assert "setmaxnreg is ignored" in result.problems[0].text


def test_records_stored_in_place_that_spill_are_reported():
    in_place = plan.lower(MARKED, Recording(pending=0), frontend="test").text
    measured = []

    def measure(text: str) -> Usage:
        measured.append(text)
        return SPILLS if text == in_place else GOOD

    result = lower_to_fit(MARKED, Recording(pending=0), frontend="test", measure=measure)
    assert len(measured) == 2
    assert [problem.kind for problem in result.problems] == ["registers"]


LOG = """ptxas info    : 0 bytes gmem
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register requirements.
ptxas info    : Function properties for k
    8 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers
"""


def test_the_log_of_ptxas_is_read(tmp_path):
    ptxas = tmp_path / "ptxas"
    ptxas.write_text(f"#!/bin/sh\nfor last; do :; done\nprintf cubin > $last\ncat >&2 <<'END'\n{LOG}END\n")
    ptxas.chmod(0o755)
    found = register_budget.assemble(MARKED, str(ptxas), ())
    assert found is not None
    assert found.usage == Usage(True, 32, 168)
    assert found.cubin == b"cubin"


def test_text_reaches_ptxas_as_utf_8_in_every_locale(tmp_path):
    ptxas = tmp_path / "ptxas"
    ptxas.write_text(f"#!/bin/sh\nfor last; do :; done\ncp $2 {tmp_path}/text\nprintf cubin > $last\n")
    ptxas.chmod(0o755)
    text = '.file 1 "/home/小林/x.py"'
    code = f"from kscope.lowering import register_budget; assert register_budget.assemble({text!a}, {str(ptxas)!r}, ())"
    command = [sys.executable, "-X", "utf8=0", "-c", code]
    env = {
        **os.environ,
        "LC_ALL": "C",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONPATH": str(Path(register_budget.__file__).parents[2]),
    }
    subprocess.run(command, env=env, check=True)
    assert (tmp_path / "text").read_bytes() == text.encode()


def test_no_usage_is_returned_when_ptxas_fails(tmp_path):
    ptxas = tmp_path / "ptxas"
    ptxas.write_text("#!/bin/sh\nexit 255\n")
    ptxas.chmod(0o755)
    assert register_budget.assemble(MARKED, str(ptxas), ()) is None


@pytest.mark.parametrize("script", ["#!/bin/sh\necho usage\n", "no program", None])
def test_no_usage_is_returned_without_a_cubin(tmp_path, script):
    ptxas = tmp_path / "ptxas"
    if script is not None:
        ptxas.write_text(script)
        ptxas.chmod(0o755)
    assert register_budget.assemble(MARKED, str(ptxas), ("-maxrregcount",)) is None


def test_registers_are_read_by_kernel():
    log = "".join(
        f"ptxas info    : Compiling entry function '{name}' for 'sm_90'\n"
        f"ptxas info    : Function properties for {name}\n"
        f"    0 bytes stack frame\n"
        f"ptxas info    : Used {count} registers\n"
        for name, count in (("a", 40), ("b", 70))
    )
    assert read_log(log).entries == (("a", 40), ("b", 70))


def grown(text: str, plain: int, marked: int, narrow: Usage | None = None) -> tuple[str, list[str], list[str]]:
    """The text lowered to fit if kernel k needs that many registers, what was measured, and the kinds of problem."""
    measured = []

    def measure(text: str) -> Usage | None:
        kind = "plain" if "kscope" not in text else "bounded" if ".maxnreg" in text else "marked"
        measured.append(kind)
        count = {"plain": plain, "marked": marked, "bounded": 64}[kind]
        usage = Usage(False, 0, count, (("k", count),))
        return narrow if kind == "bounded" and narrow else usage

    result = lower_to_fit(text, Recording(), frontend="test", measure=measure)
    return result.text, measured, [problem.kind for problem in result.problems]


def test_a_kernel_can_be_launched_with_as_many_threads_as_before():
    text, measured, problems = grown(MARKED, plain=60, marked=68)
    assert ".maxnreg 64\n{" in text
    assert measured == ["marked", "plain", "bounded"]
    assert not problems
    assert ".maxnreg 128\n{" in grown(MARKED, plain=100, marked=130)[0]


@pytest.mark.parametrize(("plain", "marked"), [(66, 70), (40, 64), (130, 200)])
def test_no_register_bound_where_the_plain_kernel_needs_as_many(plain, marked):
    assert ".maxnreg" not in grown(MARKED, plain, marked)[0]


def test_kernels_with_maxntid_get_no_register_bound():
    text, measured, _ = grown(MARKED.replace("k()\n", "k()\n.maxntid 256, 1, 1\n"), plain=60, marked=68)
    assert ".maxnreg" not in text
    assert measured == ["marked"]


def test_a_bound_that_causes_spills_reduces_pending_records_and_is_reported():
    _, measured, problems = grown(MARKED, plain=60, marked=68, narrow=Usage(False, 16, 64, (("k", 64),)))
    assert measured == ["marked", "plain", "bounded", "bounded"]
    assert problems == ["registers"]


def test_register_bounds_refused_by_the_assembler_are_dropped():
    def measure(text: str) -> Usage | None:
        count = 68 if "kscope" in text else 60
        return None if ".maxnreg" in text else Usage(False, 0, count, (("k", count),))

    assert ".maxnreg" not in lower_to_fit(MARKED, Recording(), frontend="test", measure=measure).text


def test_register_bounds_are_independent_between_kernels_of_a_module():
    def measure(text: str) -> Usage:
        plain, roomy = "kscope" not in text, ".minnctapersm" in text
        large, small = 250 if plain else 255 if roomy else 168, 60 if plain else 64 if ".maxnreg" in text else 68
        return Usage(False, 0 if plain or roomy else 64, large, (("large", large), ("small", small)))

    head, body = MARKED[: MARKED.index(".visible")], MARKED[MARKED.index(".visible") :]
    large, small = (body.replace(" k()", f" {name}()") for name in ("large", "small"))
    text = head + large.replace("large()\n", "large()\n.maxntid 256, 1, 1\n") + small
    found = lower_to_fit(text, Recording(), frontend="test", measure=measure).text
    assert ".maxntid 256, 1, 1\n.minnctapersm 1" in found
    assert found.count(".maxnreg 64") == 1
    assert found.index("small()") < found.index(".maxnreg 64")


TURNS = MARKED.replace(
    "    ret;",
    "L:\n    //kscope enter b - - with\n    ld.global.u32 %r1, [%rd1];\n    //kscope exit b - - with\n"
    "    setp.ne.u32 %p1, %r1, 0;\n    @%p1 bra L;\n    ret;",
)
"""With a loop that loads."""


def spent(own: Usage, other: Usage | None, **more: Usage) -> tuple[bool, list[str]]:
    """True if the loop uses loop registers, and the measurement."""
    measured = []

    def measure(text: str) -> Usage | None:
        kind = "own" if "ks_nth0" in text else "plain" if "kscope" not in text else "other"
        measured.append(f"bounded {kind}" if ".maxnreg" in text else kind)
        return {"own": own, "other": other, "plain": GOOD, **more}[measured[-1]]

    result = lower_to_fit(TURNS, Recording(), frontend="test", measure=measure)
    return "ks_nth0" in result.text, measured


def needing(registers: int, spilled: int = 0) -> Usage:
    return Usage(False, spilled, registers, (("k", registers),))


def test_loop_registers_are_used_for_loading_loops_if_occupancy_is_kept():
    assert spent(needing(40), needing(36)) == (True, ["other", "own"])
    assert spent(needing(32), needing(20)) == (True, ["other", "own"])


def test_loop_registers_are_not_used_at_the_cost_of_warps_or_spills():
    assert spent(needing(41), needing(36)) == (False, ["other", "own"])
    assert spent(needing(40, spilled=8), needing(36)) == (False, ["other", "own"])


def test_without_per_kernel_usage_the_module_maximum_is_used():
    assert spent(Usage(False, 0, 40), Usage(False, 0, 36))[0]
    assert not spent(Usage(False, 0, 60), Usage(False, 0, 40))[0]


def test_loop_registers_are_not_used_without_ptxas():
    assert spent(GOOD, None) == (False, ["other"])


def test_loop_registers_are_not_used_if_the_bound_would_spill():
    bounds = {"plain": needing(60), "bounded other": needing(64), "bounded own": needing(64, spilled=16)}
    assert spent(needing(70), needing(66), **bounds) == (False, ["other", "plain", "bounded other", "bounded own"])
    bounds["bounded own"] = needing(64)
    assert spent(needing(70), needing(66), **bounds)[0]


def test_pending_records_are_reduced_before_loop_registers_are_used():
    usages = iter([SPILLS, GOOD, GOOD, SPILLS])  # as lowered, without marks, stored in place, with registers spent
    texts = []

    def measure(text: str) -> Usage:
        texts.append(text)
        return next(usages)

    result = lower_to_fit(TURNS, Recording(), frontend="test", measure=measure)
    assert ["ks_nth0" in text for text in texts] == [False, False, False, True]
    assert result.text == texts[2]
    assert texts[3] == plan.lower(TURNS, Recording(pending=0), frontend="test", spare=True).text


SMALL = MARKED.replace("k()\n", "k()\n.reqntid 128\n")
FITS = {112: 4, 128: 4, 136: 3, 138: 3}
"""Registers per thread and blocks of 128 threads on an SM of compute capability 9.0."""


def crowded(
    marked: Usage, *, shared: int | None = 0, narrow: int = 0, cooperative: bool = False
) -> tuple[str, list[str], list[str]]:
    """SMALL lowered to fit, the measured texts, and the problems. narrow: bytes that spill with bounded registers."""
    measured = []

    def measure(text: str) -> Usage:
        measured.append("plain" if "kscope" not in text else "bounded" if ".maxnreg" in text else "marked")
        return {"plain": needing(112), "marked": marked, "bounded": needing(128, narrow)}[measured[-1]]

    result = lower_to_fit(SMALL, Recording(), frontend="test", measure=measure, shared=shared, cooperative=cooperative)
    return result.text, measured, [problem.text for problem in result.problems]


def test_marks_do_not_reduce_the_blocks_per_sm() -> None:
    (limits,) = occupancy.limits(SMALL, 0).values()
    assert {count: limits.blocks(count) for count in FITS} == FITS
    text, measured, problems = crowded(needing(138))
    assert ".reqntid 128\n.maxnreg 128\n{" in text
    assert (measured, problems) == (["marked", "plain", "bounded"], [])


def test_blocks_that_are_lost_because_a_bound_would_spill_are_reported() -> None:
    text, measured, problems = crowded(needing(138), narrow=16)
    assert ".maxnreg" not in text
    assert measured == ["marked", "plain", "bounded", "bounded"]
    (problem,) = problems
    assert problem.startswith(
        "kernel k: with its regions 3 instead of 4 blocks fit on an SM (138 instead of 112 registers per thread); fewer"
    )


def test_a_cooperative_kernel_has_marks_only_if_as_many_blocks_fit() -> None:
    """Its grid may be what fits on the device without marks."""
    text, measured, problems = crowded(needing(138), cooperative=True)
    assert (text, measured, problems) == (*crowded(needing(138))[:2], [])
    text, _, problems = crowded(needing(138), narrow=16, cooperative=True)
    (problem,) = problems
    assert text is SMALL
    assert problem.startswith("kernel k: its regions are not recorded, because it is launched cooperatively")
    assert "3 instead of 4 blocks" in problem


def test_blocks_that_shared_memory_limits_anyway_need_no_bound() -> None:
    assert crowded(needing(138), shared=70_000)[1:] == (["marked"], [])


def test_unknown_shared_memory_disables_the_occupancy_bound() -> None:
    assert crowded(needing(138), shared=None)[1:] == (["marked"], [])


def test_registers_that_the_kernel_gains_are_reported() -> None:
    """ptxas gave the plain kernel 32 registers, and spilled the rest."""

    def measure(text: str) -> Usage:
        if ".maxnreg 32" in text:
            return needing(32, 20_000)
        return needing(255) if "kscope" in text else needing(32, 10_892)

    result = lower_to_fit(SMALL, Recording(), frontend="test", measure=measure, shared=0)
    (problem,) = result.problems
    assert "10892 fewer bytes of registers spill" in problem.text and "2 instead of 16 blocks" in problem.text
    assert "`kscope trust perturb` compares both" in problem.text and problem.kind == "registers"


def test_blocks_that_the_kernel_gains_are_reported() -> None:
    def measure(text: str) -> Usage:
        return needing(128) if "kscope" in text else needing(138)

    result = lower_to_fit(SMALL, Recording(), frontend="test", measure=measure, shared=0)
    (problem,) = result.problems
    assert problem.kind == "occupancy"
    assert problem.text == (
        "kernel k: with its regions 4 instead of 3 blocks fit on an SM (128 instead of 138 registers per thread); it"
        " may be faster than without them: `kscope trust perturb` compares both"
    )


def test_ptxas_takes_a_register_limit_beside_the_number_of_threads(tmp_path: Path) -> None:
    program = assembler.ptxas()
    if program is None:
        pytest.skip("no ptxas")
    found = register_budget.assemble(PLAIN.replace("k()", "k()\n.reqntid 128\n.maxnreg 64"), program, ("-arch=sm_90a",))
    assert found is not None


def test_equal_texts_with_other_metadata_are_assembled_once(tmp_path: Path) -> None:
    """The cubins are those of the whole texts, byte for byte."""
    program = assembler.ptxas()
    if program is None:
        pytest.skip("no ptxas")
    first = plan.lower(MARKED, Recording(), frontend="test")
    about = replace(first.meta, problems=(Problem("registers", "more than before", kernel="k"),))
    second = metadata_patch.with_meta(first.text, about)
    before = register_budget._assemble.cache_info().misses
    for text, meta in ((first.text, first.meta), (second, about)):
        made = register_budget.assemble(text, program, ("-arch=sm_90a",))
        whole = register_budget._assemble.__wrapped__(text, program, ("-arch=sm_90a",))
        assert made is not None and made == whole
        assert metadata.to_json(meta) in made.cubin
    assert register_budget._assemble.cache_info().misses == before + 1


@pytest.mark.parametrize(("long", "times"), [(0, 3), (1 << 20, 4)], ids=["a long one", "a short one"])
def test_a_kernel_that_always_spills_is_assembled_at_most_four_times(
    long: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its records, without, with fewer that wait, if that is quick with none, and no more for the problem."""
    monkeypatch.setattr(register_budget, "_LONG", long)
    assembled: list[str] = []

    @lru_cache(None)
    def assemble(text: str) -> Usage:
        assembled.append(text)
        return SPILLS if "kscope" in text else GOOD

    def measure(text: str) -> Usage:
        return metadata_patch.assemble_once(text, assemble)

    body = "".join(MARKS.replace("membar.gl;", "").replace(" a ", f" a{n} ") for n in range(9))
    result = lower_to_fit(MARKED.replace(MARKS, body), Recording(), frontend="test", measure=measure)
    assert [problem.kind for problem in metadata_of(result.text).problems] == ["registers"]
    assert measure(result.text) == SPILLS
    assert len(assembled) == times


@pytest.mark.parametrize(
    ("directive", "shared", "most"), [("\n.reqntid 128", 0, 8), ("", None, 6), ("\n.maxntid 128", None, 6)]
)
def test_no_kernel_is_assembled_more_than_eight_times(
    monkeypatch: pytest.MonkeyPatch, directive: str, shared: int | None, most: int
) -> None:
    """Whatever the assembler reports: 300 random reports on each text of a kernel to which every try applies."""
    lower = lru_cache(None)(lambda *args, **kwargs: plan.lower(*args, **{**kwargs, "known": ()}))
    monkeypatch.setattr(register_budget, "lower", lower)
    monkeypatch.setattr(register_budget.cfg, "functions", lru_cache(None)(register_budget.cfg.functions))
    body = "".join(MARKS.replace("membar.gl;", "").replace(" a ", f" a{n} ") for n in range(9))
    text = TURNS.replace(MARKS, body).replace("k()", f"k(){directive}")
    draw, counts = random.Random(1), set[int]()
    for _ in range(300):
        measured: list[str] = []

        def measure(candidate: str, measured: list[str] = measured) -> Usage:
            assert candidate not in measured
            measured.append(candidate)
            registers = draw.choice([32, 60, 64, 66, 112, 128, 138, 168, 255])
            return Usage(draw.random() < 0.1, draw.choice([0, 0, 16, 400, 9000]), registers, (("k", registers),))

        lower_to_fit(text, Recording(), frontend="test", measure=measure, shared=shared)
        counts.add(len(measured))
    assert max(counts) == most


def test_the_work_of_lowering_is_linear_in_the_marks() -> None:
    """Also if each is beside a wait whose loop has the same label in every kernel."""
    wait = (
        "{ .reg .pred p;\nW: mbarrier.try_wait.parity.shared::cta.b64 p, [%r1], 0;\n@p bra.uni D;\nbra.uni W;\nD:\n}\n"
    )

    def calls(marks: int) -> int:
        body = "".join(MARKS.replace(" a ", f" a{n % 40} ") + wait for n in range(marks))
        text, count = MARKED.replace(MARKS, body), 0

        def counted(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(counted)
        try:
            plan.lower(text, Recording(), frontend="test")
        finally:
            sys.setprofile(None)
        return count

    assert calls(400) < 5 * calls(100)
