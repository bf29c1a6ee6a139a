"""A session's facts about its samples: source texts without a file, and kernels without samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synth

from kscope.analysis.samples.crosscheck import crosscheck
from kscope.capture.capture_data import LaunchCount
from kscope.capture.model import KernelMeta, ModuleMeta
from kscope.capture.samples import ROW, CodeRegion, SampledFunction, Samples
from kscope.instrument import source_texts
from kscope.instrument.backend import Backend
from kscope.instrument.raw_samples import SampledCode
from kscope.session.kernel_filter import Patterns
from kscope.session.sources import with_sources
from kscope.session.stalls import _missed, _of_one_cubin, collect_samples, problems
from kscope.trace import decode


@pytest.fixture(autouse=True)
def _no_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_texts, "_texts", {})


def function(name: str, file: str = "kern.cu") -> SampledFunction:
    return SampledFunction(
        name, places=(((file, 7), ("/no/such/file.cu", 3)),), regions=(CodeRegion("load", file, 7, 8),)
    )


def text(name: str) -> str:
    return f'extern "C" __global__ void __launch_bounds__(128)\n{name}(float* x) {{}}  // {name}\n'


def test_a_text_without_a_file_is_kept() -> None:
    source_texts.keep("kern.cu", text("work"))
    assert with_sources([function("work")]) == ((function("work"),), {"kern.cu": text("work")})


def test_texts_that_share_a_name_are_distinguished_by_their_kernels() -> None:
    for name in ("first", "second", "third"):
        source_texts.keep("kern.cu", text(name))
    functions, texts = with_sources(
        [function("second"), function("_Z5firstPf"), function("second"), function("fourth")]
    )
    assert texts == {"kern.cu": text("second"), "kern.cu#2": text("first")}
    assert functions == (
        function("second"),
        function("_Z5firstPf", "kern.cu#2"),
        function("second"),
        function("fourth"),
    )


def test_a_text_of_an_unknown_kernel_is_no_guess() -> None:
    source_texts.keep("kern.cu", text("a"))
    source_texts.keep("kern.cu", text("b") + text("c"))
    source_texts.keep("kern.cu", text("c"))
    assert with_sources([function("c")])[1] == {}
    assert with_sources([function("b")])[1] == {"kern.cu": text("b") + text("c")}


def test_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("a kernel")
    path = str(tmp_path / "k.cu")
    assert with_sources([function("k", path)])[1] == {path: "a kernel"}


def test_old_texts_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_texts, "_MOST_TEXTS", 2)
    monkeypatch.setattr(source_texts, "_MOST_BYTES", 10)
    for one in ("a", "b", "a", "c", "longer than ten"):
        source_texts.keep("kern.cu", one)
    assert source_texts.kept_texts("kern.cu") == ["a", "c"]


MODULE = ModuleMeta("cuda", (KernelMeta("work", 77, 8), KernelMeta("other", 78, 8)), ())
LAUNCHES = {77: LaunchCount(3, 2)}


def test_a_launched_kernel_without_samples_is_named() -> None:
    [found] = _missed(Samples(1024), (MODULE,), Patterns(), LAUNCHES)
    assert (found.kernel, found.count) == ("work", 5)
    assert "ran for less than a period" in found.text
    [found] = _missed(Samples(1024, elsewhere=5), (MODULE,), Patterns(), LAUNCHES)
    assert "among those without a name" in found.text
    for sampled in (
        SampledFunction("work"),
        SampledFunction("_Z4workv", kernel=77),
        SampledFunction("_Z4workv", why_unknown="x"),
    ):
        assert list(_missed(Samples(1024, functions=(sampled,)), (MODULE,), Patterns(), LAUNCHES)) == []
    assert list(_missed(Samples(1024), (MODULE,), Patterns(("o*",)), LAUNCHES)) == []


def test_samples_of_unnamed_kernels_are_a_problem_if_they_are_many() -> None:
    few, many = (problems(Samples(1024, elsewhere=count, rows=Samples(1).rows)) for count in (0, 50))
    assert not any("without a name" in one.text for one in few)
    [found] = [one for one in many if "without a name" in one.text]
    assert found.count == 50 and "another profiler" in found.text


class Unseen(Backend):
    """A backend that sampled kernels whose modules it has not seen."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def samples(self) -> tuple[SampledCode, ...]:
        functions = tuple(SampledFunction(name, why_unknown="its module was not seen") for name in self.names)
        rows = np.array([(number, 0, 0, 5) for number in range(len(functions))], ROW)
        return (SampledCode(Samples(1024, ("wait",), functions, rows)),)

    module_loaded = arm = disarm = resume = collect = modules = None  # type: ignore[assignment]  # not called


Unseen.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # the rest is not called


def test_a_kernel_with_marks_whose_code_is_unknown_is_named() -> None:
    samples = collect_samples([Unseen("work", "library")], (MODULE,), Patterns())
    assert samples is not None and [one.kernel for one in samples.functions] == [77, None]
    assert [one.text for one in problems(samples)] == [
        "kernel work: its samples have no regions: its module was not seen"
    ]
    assert list(_missed(samples, (MODULE,), Patterns(), LAUNCHES)) == []


KNOWN = {
    "kernel_cutlass_gemm_tensorptrf16_0": (KernelMeta("gemm", 80, 8, (), "kernel_cutlass_gemm_tensorptrf16_0"),),
    "_ZN2ns3dotIfEEvPT_": (KernelMeta("ns::dot<T = float>", 80, 8), KernelMeta("do", 81, 8)),  # by nvcc
}
UNKNOWN = {
    "gemm": KNOWN["kernel_cutlass_gemm_tensorptrf16_0"],
    "_ZN2ns3dotIdEEvPT_": (KernelMeta("ns::dot<T = float>", 80, 8), KernelMeta("ns::dot<T = double>", 81, 8)),
    "_Z4dotsv": (KernelMeta("dot", 80, 8),),
    "_Z13dot_of_thingsv": (KernelMeta("dot", 80, 8),),
    "dot_2": (KernelMeta("dot", 80, 8),),
}


@pytest.mark.parametrize("symbol", [*KNOWN, *UNKNOWN])
def test_a_function_without_code_is_that_kernel_s_whose_symbol_it_has(symbol: str) -> None:
    kernels = (KNOWN | UNKNOWN)[symbol]
    samples = collect_samples([Unseen(symbol)], (ModuleMeta("cute", kernels, ()),), Patterns())
    assert samples is not None
    assert [one.kernel for one in samples.functions] == [80 if symbol in KNOWN else None]


def test_only_code_with_marks_has_a_mangled_name_of_a_kernel() -> None:
    sampled = [SampledFunction("_Z4workPi")]
    for cubin, kernel in ((b"another kernel", None), (b"\0kscope_ctl\0", 77)):
        (found,) = _of_one_cubin(sampled, cubin, (MODULE,))
        assert found.kernel == kernel


def test_a_crosscheck_says_why_a_kernel_s_code_is_unknown() -> None:
    recorded = synth.capture(synth.slab(synth.EVERY_KIND))
    kernel = replace(recorded.modules[0].kernels[0], symbol="kernel_cutlass_matmul_tensorptrf16_0")
    module = replace(recorded.modules[0], kernels=(kernel,))

    def problem(sampled: str) -> str:
        samples = collect_samples([Unseen(sampled)], (module,), Patterns())
        assert samples is not None
        (found,) = crosscheck(decode(recorded), samples).problems
        return found

    assert problem(kernel.symbol) == "kernel matmul: its module was not seen"
    assert problem("another") == "kernel matmul: it has no samples"
