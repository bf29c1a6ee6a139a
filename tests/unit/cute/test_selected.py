"""Selected lines and kinds in unannotated CuTe kernels: compiled like annotated ones, and restored."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cutlass.base_dsl import ast_preprocessor, dsl

from kscope.capture import layout, metadata, wire
from kscope.capture.model import ModuleMeta, RegionMeta
from kscope.errors import UnsupportedError, UsageError
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalog
from kscope.instrument.selection.auto import KINDS, Lines, Selection, unmatched
from kscope_cute import loops

from .conftest import VERSION, Made, arguments, compile, source
from .test_caches import call, enter, hashes

__all__ = ["hashes"]  # a fixture

HELPER = """
@cute.jit
def twice(value):
    doubled = value + value
    return doubled
"""
BODY = """
total = Float32(0)
for k in range(n):
    value = x[k]
    if value > 1.0:
        total = total + value
    else:
        total = total - twice(value)
    if k == 3:
        total = total * 2.0
for u in cutlass.range_constexpr(3):
    total = total + Float32(u)
cute.arch.sync_threads()
x[thread] = total
"""
_META = re.compile(rf"{layout.META_SYMBOL}\[\d+\] = \{{([^}}]*)\}}")


def kernels() -> tuple[Any, dict[str, int]]:
    """A new module, and its line numbers by their text."""
    module = source(BODY, before=HELPER)
    lines = Path(module.__file__).read_text().splitlines()
    return module, {text.strip(): number for number, text in enumerate(lines, 1)}


def recording(*lines: str, kinds: tuple[str, ...] = (), kernels: tuple[str, ...] = ()) -> Recording:
    return Recording(selection=Selection(kinds, tuple(Lines.of(one) for one in lines), kernels))


def regions(made: Made) -> dict[str, RegionMeta]:
    return {region.name: region for region in read(made).regions}


def read(made: Made) -> ModuleMeta:
    """The metadata in a compiled kernel."""
    found = _META.search(made.ptx)
    assert found is not None, "no marks"
    return metadata.from_json(bytes(map(int, found[1].split(","))))


def since_4_8() -> None:
    if VERSION < (4, 8):
        pytest.skip("needs nvidia-cutlass-dsl 4.8")


def is_marked(made: Made) -> bool:
    return _META.search(made.ptx) is not None


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_lines_become_a_region_at_their_place(frontend: Any, arch: str) -> None:
    module, line = kernels()
    first, last = line["for k in range(n):"], line["total = total * 2.0"]
    frontend.enable(recording(f"loop={module.__file__}:{first}-{last}", f"odd={module.__file__}:{last}"))
    found = regions(compile(module.host, *arguments(), arch=arch))
    assert {name: region.where for name, region in found.items()} == {
        "loop": f"{module.__file__}:{first}",
        "odd": f"{module.__file__}:{last}",
    }


def test_selected_lines_compile_as_the_annotated_kernel_does(frontend: Any) -> None:
    module, line = kernels()
    first, last = line["for k in range(n):"], line["total = total * 2.0"]
    frontend.enable(recording(f"loop={module.__file__}:{first}-{last}"))
    bare = compile(module.host, *arguments())
    rows = BODY.strip("\n").splitlines()
    body = "\n".join([rows[0], 'with region("loop"):', *("    " + row for row in rows[1:9]), *rows[9:]])
    frontend.enable(Recording())
    annotated = compile(source(body, before=HELPER).host, *arguments())
    assert bare.events == annotated.events == 2
    assert len(bare.ptx.splitlines()) == len(annotated.ptx.splitlines())


def test_selected_helper_lines_are_marked_at_every_call(frontend: Any) -> None:
    module, line = kernels()
    frontend.enable(recording(f"twice={module.__file__}:{line['doubled = value + value']}"))
    assert regions(compile(module.host, *arguments())).keys() == {"twice"}


def test_a_function_compiled_plain_gains_and_loses_selected_marks(frontend: Any) -> None:
    module, line = kernels()
    place = f"{module.__file__}:{line['for k in range(n):']}-{line['total = total * 2.0']}"
    plain = compile(module.host, *arguments())
    assert not is_marked(plain)
    for name in ("a", "b"):
        frontend.enable(recording(f"{name}={place}"))
        assert regions(compile(module.host, *arguments())).keys() == {name}
    frontend.enable(Recording())
    assert compile(module.host, *arguments()).cubin == plain.cubin
    frontend.enable(recording(f"a={place}"))
    assert is_marked(compile(module.host, *arguments()))
    frontend.disable()
    again = compile(module.host, *arguments())
    assert (again.ptx, again.cubin) == (plain.ptx, plain.cubin)


def test_caches_separate_selections(frontend: Any, hashes: list[str]) -> None:
    module, line = kernels()
    place = f"{module.__file__}:{line['total = Float32(0)']}"
    for selected in (None, f"a={place}", f"b={place}", None, f"a={place}"):
        enter(frontend, None if selected is None else recording(selected))
        call(module)
    plain, first, second = hashes[:3]
    assert len({plain, first, second}) == 3
    assert hashes[3:] == [plain, first]


def test_hooks_are_installed_only_with_a_selection(frontend: Any) -> None:
    def hooks() -> tuple[Any, Any]:
        replace = vars(dsl.BaseDSL)["_preprocess_and_replace_code"]
        return replace, vars(ast_preprocessor.DSLPreprocessor)["check_decorator"]

    before = hooks()
    frontend.enable(Recording())
    assert hooks() == before
    frontend.enable(recording("a=nothing.py:1-2"))
    assert hooks() != before
    frontend.disable()
    assert hooks() == before


def test_a_missing_hook_is_named(frontend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ast_preprocessor.DSLPreprocessor, "check_decorator")
    frontend.enable(Recording())
    with pytest.raises(UnsupportedError, match=r"has no base_dsl\.ast_preprocessor\.DSLPreprocessor\.check_decorator"):
        frontend.enable(recording("a=nothing.py:1-2"))


def test_kernels_are_selected_by_name(frontend: Any) -> None:
    module, line = kernels()
    place = f"a={module.__file__}:{line['x[thread] = total']}"
    frontend.enable(recording(place, kernels=("other*",)))
    assert not is_marked(compile(module.host, *arguments()))
    frontend.enable(recording(place, kernels=("kern*",)))
    assert is_marked(compile(module.host, *arguments()))


def test_lines_that_cut_a_block_are_refused_by_name_and_line(frontend: Any) -> None:
    module, line = kernels()
    first, last = line["for k in range(n):"], line["value = x[k]"]
    frontend.enable(recording(f"a={module.__file__}:{first}-{last}"))
    with pytest.raises(
        UsageError, match=f"region a=.*:{first}-{last}: the lines cut through the for loop at lines {first}"
    ):
        compile(module.host, *arguments())
    frontend.disable()
    assert not is_marked(compile(module.host, *arguments()))


def test_a_function_that_cute_does_not_preprocess_is_refused(frontend: Any) -> None:
    module = source("x[thread] = twice(x[0])", before=HELPER.replace("@cute.jit", "@cute.jit(preprocess=False)"))
    rows = [row.strip() for row in Path(module.__file__).read_text().splitlines()]
    frontend.enable(recording(f"a={module.__file__}:{rows.index('doubled = value + value') + 1}"))
    with pytest.raises(UsageError, match=r"region a=.* twice, which has preprocess=False"):
        compile(module.host, *arguments())
    frontend.enable(recording(kinds=("store",)))
    assert is_marked(compile(module.host, *arguments()))


def test_a_function_that_cute_does_not_preprocess_is_reported_for_kinds(frontend: Any) -> None:
    module = source("x[thread] = twice(x[0])", before=HELPER.replace("@cute.jit", "@cute.jit(preprocess=False)"))
    for kernels, named in (((), 1), (("other*",), 0)):
        frontend.enable(recording(kinds=("store",), kernels=kernels))
        compile(module.host, *arguments())
        found = [problem for problem in frontend.problems() if module.__file__ in problem.text]
        assert len(found) == named
        assert all(
            one.kind == "nothing" and "nothing is marked in twice" in one.text and "preprocess=False" in one.text
            for one in found
        )


def test_kinds_of_statements_are_marked_and_listed(frontend: Any, tmp_path: Path) -> None:
    module, line = kernels()
    file = Path(module.__file__).name
    plain = compile(module.host, *arguments())
    with catalog.listing() as found:
        frontend.enable(recording(kinds=tuple(KINDS)))
        assert is_marked(compile(module.host, *arguments()))
    frontend.disable()
    assert compile(module.host, *arguments()).cubin == plain.cubin
    (kernel,) = found
    assert (kernel.frontend, kernel.kernel, kernel.target) == ("cute", "kernel", "sm_90a")
    assert [(site.what, site.where) for site in kernel.sites] == [
        ("loop", f"{file}:{line['for k in range(n):']}-{line['total = total * 2.0']}"),
        ("iteration", f"{file}:{line['value = x[k]']}-{line['total = total * 2.0']}"),
        ("load", f"{file}:{line['value = x[k]']}"),
        ("loop", f"{file}:{line['for u in cutlass.range_constexpr(3):']}-{line['total = total + Float32(u)']}"),
        ("iteration", f"{file}:{line['total = total + Float32(u)']}"),
        ("barrier", f"{file}:{line['cute.arch.sync_threads()']}"),
        ("store", f"{file}:{line['x[thread] = total']}"),
    ]
    assert kernel.build is not None
    paths = kernel.build(tmp_path)
    assert paths is not None
    off, on = (path.read_bytes() for path in paths)
    assert kernel.symbol.encode() in off and wire.CTL_SYMBOL.encode() not in off
    assert wire.CTL_SYMBOL.encode() in on


VECTORIZED = """
part = cute.make_rmem_tensor((16,), Float32)
for u in cutlass.range(16, vectorize=True):
    part[u] = x[u] * 2.0
x[thread] = part[3]
"""


@pytest.mark.filterwarnings("ignore:kscope")
def test_selected_code_in_a_vectorized_loop_is_skipped_and_reported(frontend: Any) -> None:
    since_4_8()
    module = source(VECTORIZED)
    line = 1 + Path(module.__file__).read_text().splitlines().index("        part[u] = x[u] * 2.0")
    frontend.enable(recording(kinds=("loop", "load", "store")))
    found = read(compile(module.host, *arguments(), arch="sm_100a"))
    file = Path(module.__file__).name
    assert {region.name for region in found.regions} == {f"loop {file}:{line - 1}", f"store {file}:{line + 1}"}
    (problem,) = found.problems
    assert (problem.kind, problem.region) == ("skipped", f"load {file}:{line}")
    assert f"'load {file}:{line}' ({module.__file__}:{line}) is not recorded: it is in a loop with" in problem.text


@pytest.mark.filterwarnings("ignore:kscope")
def test_a_kernel_with_selected_code_only_in_a_vectorized_loop_compiles_plain(frontend: Any) -> None:
    since_4_8()
    module = source(VECTORIZED)
    plain = compile(module.host, *arguments(), arch="sm_100a")
    frontend.enable(recording(kinds=("load",)))
    made = compile(module.host, *arguments(), arch="sm_100a")
    assert made.cubin == plain.cubin
    assert "'load kernel_0.py:14' " in " ".join(problem.text for problem in frontend.problems())


def test_a_region_in_a_vectorized_loop_is_refused_with_its_line(frontend: Any) -> None:
    since_4_8()
    module = source(VECTORIZED.replace("part[u] =", "with region('mine'):\n        part[u] ="))
    frontend.enable(Recording())
    with pytest.raises(UnsupportedError, match=r"region 'mine' \(.*kernel_0.py:14\).*put the region around the loop"):
        compile(module.host, *arguments(), arch="sm_100a")


@pytest.mark.filterwarnings("ignore")  # the problem is a warning; CuTe's, of names that 4.4 still needs
def test_a_selected_loop_body_that_pipelining_splits_is_skipped_and_reported(frontend: Any) -> None:
    since_4_8()
    from . import kernels

    frontend.enable(recording(kinds=("iteration", "wait", "loop")))
    found = read(compile(kernels.pipelined_host, *kernels.fakes()))
    lines = Path(kernels.__file__).read_text().splitlines()
    at = next(number for number, text in enumerate(lines, 1) if "prefetch_stages=P_STAGES" in text)
    skipped = [problem for problem in found.problems if problem.kind == "pairing"]
    assert [problem.region for problem in skipped] == [f"iteration kernels.py:{at}"]
    assert f"{kernels.__file__}:{at + 1}" in skipped[0].text
    assert f"loop kernels.py:{at}" in {region.name for region in found.regions}
    assert not unmatched(Selection(("iteration",)), [found])


@pytest.mark.filterwarnings("ignore:kscope")
def test_a_kernel_that_does_not_compile_with_selected_marks_compiles_without_them(
    frontend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    since_4_8()
    monkeypatch.setattr(loops, "unmark_vectorized", lambda module: ())  # as if CuTe refused marks in other loops
    module = source(VECTORIZED)
    plain = compile(module.host, *arguments(), arch="sm_100a")
    frontend.enable(recording(kinds=("load", "store")))
    made = compile(module.host, *arguments(), arch="sm_100a")
    assert made.cubin == plain.cubin
    found = {problem.region: problem.text for problem in frontend.problems() if module.__file__ in problem.text}
    assert found.keys() == {"load kernel_0.py:14", "store kernel_0.py:15"}
    assert "it does not compile with marks (error: compiler pass failed" in found["load kernel_0.py:14"]


def test_a_name_that_an_earlier_selection_used_is_listed_where_it_is_now(frontend: Any) -> None:
    module, line = kernels()
    places = [f"{module.__file__}:{line[text]}" for text in ("value = x[k]", "x[thread] = total")]
    annotated = source("with kscope.region('mine'):\n    x[thread] = Float32(1)")
    frontend.enable(recording(f"mine={places[0]}"))
    compile(module.host, *arguments())
    with catalog.listing() as found:
        frontend.enable(recording(f"mine={places[1]}"))
        compile(module.host, *arguments())
        frontend.enable(Recording())
        compile(annotated.host, *arguments())
    frontend.disable()
    assert [[site.where for site in kernel.sites] for kernel in found] == [[places[1]], []]


def test_an_annotated_kernel_is_listed_with_its_two_builds(frontend: Any, tmp_path: Path) -> None:
    module = source("with kscope.region('mine'):\n    x[thread] = Float32(1)")
    with catalog.listing() as found:
        frontend.enable(Recording())
        assert is_marked(compile(module.host, *arguments()))
    frontend.disable()
    (kernel,) = found
    assert kernel.sites == ()
    assert kernel.build is not None
    off, on = (path.read_bytes() for path in kernel.build(tmp_path) or ())
    assert wire.CTL_SYMBOL.encode() in on
    assert wire.CTL_SYMBOL.encode() not in off


def test_random_lines_compile_and_pair(frontend: Any) -> None:
    """A record for each entered region; unpaired marks are a problem of the module and a warning."""
    module, line = kernels()
    low, high = line["total = Float32(0)"], line["x[thread] = total"]
    random, compiled = Random(7), 0
    for _ in range(10):
        first = random.randint(low, high)
        last = min(high, first + random.choice([0, 1, 2, 4, 12]))
        frontend.enable(recording(f"a={module.__file__}:{first}-{last}"))
        try:
            made = compile(module.host, *arguments())
        except UsageError:
            continue
        assert regions(made).keys() == {"a"}
        compiled += 1
    assert compiled >= 4
