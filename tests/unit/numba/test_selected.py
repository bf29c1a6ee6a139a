"""Selected lines and kinds in unannotated Numba kernels: compiled, cached separately, simulated."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from contract import numba_offline

from kscope.capture import layout
from kscope.errors import UsageError
from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope.instrument.selection import auto, catalog
from kscope.instrument.selection.auto import KINDS, Lines, Selection
from kscope.marks.grammar import Mark
from kscope_numba import evaluator, rewrite, select, source

from .conftest import Backend
from .reading import normal, ptx, regions
from .test_rewrite_fuzz import COUNT, Listener, both, compiled
from .test_states import Array, is_marked

Written = Callable[..., dict[str, Any]]
KERNELS = """
    @cuda.jit
    def helper(a, n):
        t = np.float32(0)
        for k in range(n):
            if k == 3:
                return t
            t += a
        return t

    @cuda.jit
    def kernel(x, n):
        i = cuda.grid(1)
        if i >= x.size:
            return
        s = x[i]
        for k in range(4):
            if k == 2:
                continue
            s += k
        cuda.syncthreads()
        x[i] = helper(s, n)

    @cuda.jit
    def other(x, n):
        x[0] = n
"""
ANNOTATED = KERNELS.replace(
    "        for k in range(4):\n            if k == 2:\n                continue\n            s += k\n",
    '        with kscope.region("a"):\n            for k in range(4):\n                if k == 2:\n'
    "                    continue\n                s += k\n",
)
SIGNATURE = "void(float32[:], int64)"
FILE = "selected_kernels.py"


def recording(*lines: str, kinds: tuple[str, ...] = (), kernels: tuple[str, ...] = ()) -> Recording:
    return Recording(selection=Selection(kinds, tuple(Lines.of(one) for one in lines), kernels))


@pytest.fixture
def kernels(written: Written) -> dict[str, Any]:
    return written(KERNELS, FILE)


def line(text: str) -> int:
    """The line of the file of kernels that has this text."""
    return next(number for number, found in enumerate(KERNELS.splitlines(), 6) if text in found)


LOOP = f"a={FILE}:{line('range(4)')}-{line('s += k')}"


def launch(kernel: Any, gpu: Backend) -> bytes:
    kernel[128, 32](Array(), 3)
    return gpu.loaded[-1]


@pytest.mark.parametrize("cc", [(8, 0), (9, 0), (10, 0)])
@pytest.mark.parametrize(
    ("place", "first"),
    [
        (f"{line('range(4)')}-{line('s += k')}", line("range(4)")),
        (f"{line('if k == 2')}-{line('s += k')}", line("if k == 2")),
        (f"{line('if i >=')}-{line('helper(s')}", line("if i >=")),
        (f"{line('def kernel')}-{line('helper(s')}", line("i = cuda")),
        (f"{line('if k == 3')}-{line('t += a')}", line("if k == 3")),
        (str(line("syncthreads")), line("syncthreads")),
    ],
)
def test_lines_become_a_region_at_their_place(
    frontend: Any, kernels: dict[str, Any], cc: tuple[int, int], place: str, first: int
) -> None:
    frontend.enable(recording(f"a={FILE}:{place}"))
    text = ptx(numba_offline.built(kernels["kernel"], SIGNATURE, cc), cc)
    assert {name: where.rpartition(":")[2] for name, (_, where) in regions(text).items() if where} == {"a": str(first)}
    assert f".target sm_{cc[0]}{cc[1]}" in text


def test_selected_lines_compile_as_the_annotated_kernel_does(frontend: Any, written: Written, tmp_path: Path) -> None:
    frontend.enable(recording(LOOP))
    bare = ptx(numba_offline.built(written(KERNELS, FILE)["kernel"], SIGNATURE))
    frontend.enable(Recording())
    annotated = ptx(numba_offline.built(written(ANNOTATED, FILE)["kernel"], SIGNATURE))
    assert _code(bare) == _code(annotated)


def _code(text: str) -> str:
    """The code without its hash, places and lines."""
    text = re.sub(rf"{layout.META_SYMBOL}\[[^;]*;", "", normal(text))
    kept = [one for one in text.splitlines() if not one.lstrip().startswith((".loc", ".file", "//"))]
    return re.sub(r"(?<=mov\.u32 ks_[zt], )\d+", "hash", "\n".join(kept))


def test_a_kernel_that_is_not_selected_is_byte_identical(frontend: Any, kernels: dict[str, Any]) -> None:
    frontend.disable()
    plain = normal(ptx(numba_offline.built(kernels["other"], SIGNATURE)))
    frontend.enable(recording(LOOP))
    assert normal(ptx(numba_offline.built(kernels["other"], SIGNATURE))) == plain


def test_compiled_kernels_are_separate_per_state(taught: Any, gpu: Backend, kernels: dict[str, Any]) -> None:
    kernel = kernels["kernel"]
    plain = launch(kernel, gpu)
    assert not is_marked(plain)
    taught.enable(recording(LOOP))
    marked = launch(kernel, gpu)
    assert is_marked(marked)
    taught.enable(recording(LOOP.replace("a=", "b=")))
    assert launch(kernel, gpu) not in (marked, plain)
    taught.disable()
    assert launch(kernel, gpu) == plain
    taught.enable(recording(LOOP))
    assert launch(kernel, gpu) == marked
    taught.disable()


def test_selected_device_function_lines_are_marked_in_calling_kernels(
    taught: Any, gpu: Backend, kernels: dict[str, Any]
) -> None:
    plain = launch(kernels["kernel"], gpu)
    taught.enable(recording(f"t={FILE}:{line('t += a')}"))
    assert is_marked(launch(kernels["kernel"], gpu))
    assert not is_marked(launch(kernels["other"], gpu))
    taught.disable()
    assert launch(kernels["kernel"], gpu) == plain


def test_kernels_are_selected_by_name_and_device_functions_are_any_kernels(
    taught: Any, gpu: Backend, kernels: dict[str, Any]
) -> None:
    taught.enable(recording(LOOP, kernels=("oth*",)))
    assert not is_marked(launch(kernels["kernel"], gpu))
    taught.enable(recording(LOOP, kernels=("ker*",)))
    assert is_marked(launch(kernels["kernel"], gpu))
    taught.enable(recording(f"t={FILE}:{line('t += a')}", kernels=("ker*",)))
    assert is_marked(launch(kernels["kernel"], gpu))


CACHED = """
import sys
from pathlib import Path
from contract import numba_offline
from numba.cuda import dispatcher, types
from numba.cuda.codegen import JITCUDACodegen
import kscope_numba
from kscope.instrument import registry
from kscope.instrument.selection.auto import Selection
from kscope.instrument.recording import Recording
sys.path.insert(0, sys.argv[1])
kscope_numba.teach()
if sys.argv[2] != "plain":
    registry.frontend("numba").enable(Recording(selection=Selection.of(None, sys.argv[2])))
JITCUDACodegen.magic_tuple = lambda codegen: ((13, 0), numba_offline.CC)
compiled, original = [], dispatcher._Kernel.__init__
def counting(kernel, *args, **options):
    compiled.append(1)
    original(kernel, *args, **options)
dispatcher._Kernel.__init__ = counting
dispatcher._Kernel.bind = lambda kernel: kernel._codelibrary.get_cubin(cc=numba_offline.CC)
with numba_offline.device():
    import cached
    cached.kernel.compile((types.float32[:], types.int64))
    (made,) = cached.kernel.overloads.values()
    cubin = made._codelibrary.get_cubin(cc=numba_offline.CC).code
print(b"kscope_ctl" in cubin, len(compiled))
"""


def test_the_disk_cache_has_entries_for_each_selection(tmp_path: Path) -> None:
    lines = "from numba import cuda", "", "@cuda.jit(cache=True)", "def kernel(x, n):", "    for k in range(n):"
    (tmp_path / "cached.py").write_text("\n".join([*lines, "        x[k] = k", ""]))

    def run(state: str) -> str:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        }
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", CACHED, str(tmp_path), state],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert run("plain") == "False 1"
    assert run("a=cached.py:5-6") == "True 1"
    assert run("plain") == "False 0"
    assert run("a=cached.py:5-6") == "True 0"


def test_errors_name_the_region_and_its_lines(frontend: Any, kernels: dict[str, Any]) -> None:
    frontend.enable(recording(f"a={FILE}:{line('range(4)')}-{line('if k == 2')}"))
    with pytest.raises(UsageError, match=f"region a={FILE}.* cut through the for loop at lines {line('range(4)')}"):
        numba_offline.built(kernels["kernel"], SIGNATURE)


def test_a_file_that_was_edited_is_refused(frontend: Any, kernels: dict[str, Any]) -> None:
    path = Path(kernels["__file__"])
    path.write_text(path.read_text().replace("s += k", "s += 2 * k"))
    frontend.enable(recording(LOOP))
    with pytest.raises(
        UsageError, match=f"region {LOOP}: kernel .* cannot be marked: its source differs from what was imported"
    ):
        numba_offline.built(kernels["kernel"], SIGNATURE)


def test_a_selected_kernel_without_source_is_reported(frontend: Any, kernels: dict[str, Any]) -> None:
    path = Path(kernels["__file__"])
    path.write_text(path.read_text().replace("s += k", "s += 2 * k"))
    for kinds in (("loop",), ("store",)):
        frontend.enable(recording(kinds=kinds))
        assert not frontend.problems()
        numba_offline.built(kernels["kernel"], SIGNATURE)
        (problem,) = frontend.problems()  # the helper is there unchanged
        assert problem.kind == "nothing" and problem.text.startswith("auto=: nothing is marked in kernel (")
        assert "its source differs from what was imported" in problem.text
    frontend.enable(recording(kinds=("loop",), kernels=("other",)))
    numba_offline.built(kernels["kernel"], SIGNATURE)
    assert not frontend.problems()


def test_numba_errors_in_selected_code_have_the_users_line(frontend: Any, written: Written) -> None:
    wrong = KERNELS.replace("s += k", "s += x.nothing")
    space = written(wrong, FILE)
    frontend.enable(recording(LOOP))
    with pytest.raises(Exception, match="nothing") as caught:
        numba_offline.built(space["kernel"], SIGNATURE)
    assert re.search(rf"line {line('s += k')}\b|\({line('s += k')}\)", str(caught.value))


def test_kinds_of_statements_are_marked_and_listed(taught: Any, gpu: Backend, written: Written) -> None:
    kernel_of_this_test = written(KERNELS.replace("def kernel(", "def listed("), FILE)["listed"]
    plain = launch(kernel_of_this_test, gpu)
    with catalog.listing() as found:
        taught.enable(recording(kinds=tuple(KINDS)))
        assert is_marked(launch(kernel_of_this_test, gpu))
    taught.disable()
    assert launch(kernel_of_this_test, gpu) == plain
    (kernel,) = (one for one in found if one.kernel == "listed")  # kernels of other tests may be compiled as well
    assert (kernel.frontend, kernel.kernel, kernel.target) == ("numba", "listed", "sm_90")
    names = [auto.name(*place) for place in (("loop", FILE, line("range(n)")), ("barrier", FILE, line("syncthreads")))]
    assert {site.region for site in kernel.sites} >= {*names, f"store {FILE}:{line('helper(s')}"}
    loops = {site.region: site.loops for site in kernel.sites}
    assert loops[f"iteration {FILE}:{line('range(4)')}"] == (f"{FILE}:{line('range(4)')}",)


def test_a_name_that_an_earlier_selection_used_is_listed_where_it_is_now(
    taught: Any, gpu: Backend, written: Written
) -> None:
    taught.enable(recording(LOOP))
    text, annotated = (one.replace("def kernel(", "def renamed(") for one in (KERNELS, ANNOTATED))
    launch(written(text, FILE)["renamed"], gpu)
    name, first = LOOP.partition("=")[0], line("s = x[i]")
    with catalog.listing() as found:
        taught.enable(recording(f"{name}={FILE}:{first}"))
        launch(written(text, FILE)["renamed"], gpu)
        taught.enable(Recording())
        launch(written(annotated.replace('"a"', f'"{name}"'), "annotated_kernels.py")["renamed"], gpu)
    taught.disable()
    listed = [[site.where for site in one.sites] for one in found if one.kernel == "renamed"]
    assert listed == [[f"{FILE}:{first}"], []]


def test_a_dry_run_leaves_nothing_in_the_cache(taught: Any, gpu: Backend, written: Written, tmp_path: Path) -> None:
    kernel = written(KERNELS.replace("@cuda.jit\n    def kernel", "@cuda.jit(cache=True)\n    def kernel"), FILE)[
        "kernel"
    ]
    with catalog.listing() as found:
        taught.enable(recording(LOOP))
        assert is_marked(launch(kernel, gpu))
    taught.disable()
    assert found and not list(tmp_path.rglob("*.nb?"))
    launch(kernel, gpu)
    assert list(tmp_path.rglob("*.nb?"))


def test_the_two_builds_of_a_listed_kernel_are_cubins(
    taught: Any, gpu: Backend, kernels: dict[str, Any], tmp_path: Path
) -> None:
    with catalog.listing() as found:
        taught.enable(recording(LOOP))
        launch(kernels["kernel"], gpu)
    taught.disable()
    assert found[0].build is not None
    paths = found[0].build(tmp_path)
    assert paths is not None
    off, on = (path.read_bytes() for path in paths)
    assert off.startswith(b"\x7fELF") and not is_marked(off) and is_marked(on)
    assert found[0].symbol.encode() in off


def test_an_annotated_kernel_is_listed_with_its_two_builds(
    taught: Any, gpu: Backend, written: Written, tmp_path: Path
) -> None:
    with catalog.listing() as found:
        taught.enable(Recording())
        launch(written(ANNOTATED.replace('"a"', '"mine"'), "annotated_kernels.py")["kernel"], gpu)
    taught.disable()
    (kernel,) = found
    assert (kernel.kernel, kernel.sites) == ("kernel", ())
    assert kernel.build is not None
    off, on = (path.read_bytes() for path in kernel.build(tmp_path) or ())
    assert (is_marked(off), is_marked(on)) == (False, True)


# in Python


def test_random_lines_lowered_do_what_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener()
    monkeypatch.setattr(registry, "_frontends", {"listener": listener})
    hear = listener.emit
    monkeypatch.setattr(
        listener, "emit", lambda mark, context, value=None: evaluator.collect(mark, value) or hear(mark, context, value)
    )
    done = 0
    for seed in range(COUNT // 3):
        function, random = compiled(seed), Random(seed)
        numbers = sorted(set(_lines_of(function)))
        first = random.choice(numbers)
        one = Lines(
            "lines", function.__code__.co_filename, first, min(numbers[-1], first + random.choice([0, 1, 2, 5]))
        )
        names: dict[str, Any] = {}

        def place(mark: Mark, value: Any, *where: Any, names: dict[str, Any] = names) -> str:
            name, late = f"mark_{len(names)}", isinstance(value, evaluator.RuntimeValue)
            names[name] = lambda *given: listener.log.append((mark, given[0] if late else value))
            return name

        def change(definition: Any, function: Any = function, one: Lines = one, place: Any = place) -> Any:
            wrapped, named = select.wrap_regions(definition, function, select.FunctionSelection((one,)))
            return rewrite.rewrite(wrapped, function, place, named)

        try:
            lowered = source.rebuild(function, change, names)
        except UsageError:
            continue
        native = source.rebuild(function, partial(_native, one=one), {})
        for draw in range(3):
            python, ours = both(native, lowered, listener, seed * 3 + draw)
            assert ours == python, seed
            bare, _ = both(function, function, listener, seed * 3 + draw)
            assert (python[0], _unmarked(python[1])) == (bare[0], _unmarked(bare[1])), seed
        done += 1
    assert done > COUNT / 3 * 0.3


def _native(definition: Any, one: Lines) -> Any:
    import ast

    from kscope.instrument.selection import pylines
    from kscope.language.selected_scopes import scope_expression

    return ast.fix_missing_locations(pylines.wrap(definition, [one], scope_expression))


def _unmarked(log: list[Any]) -> list[Any]:
    return [one for one in log if not (isinstance(one, tuple) and isinstance(one[0], Mark) and one[0].name == "lines")]


def _lines_of(function: Any) -> Iterator[int]:
    return (number for _, _, number in function.__code__.co_lines() if number)


SIMULATED = """
import sys
import numpy as np, kscope
from numba import cuda
import kernels_to_simulate as module

def launch():
    out = np.arange(64, dtype=np.float32)
    module.kernel[2, 32](out, 5)
    return out

plain, code = launch(), module.kernel.fn.__code__
loop, adds = (f"kernels_to_simulate.py:{number}" for number in sys.argv[1:])
for options in ({"mark": "a=" + loop}, {"mark": ["h=" + adds]}, {"auto": True}):
    with kscope.profile(**options) as prof:
        assert (launch() == plain).all()
    assert prof.trace.recorded.clock == "host"
    print(*sorted({str(name).split()[0] for name in prof.trace.region_names()[prof.trace.region]}))
assert module.kernel.fn.__code__ is code
assert (launch() == plain).all()
"""


def test_simulated_kernels_record_selected_lines_and_get_their_code_back(tmp_path: Path) -> None:
    text = "import numpy as np\nfrom numba import cuda\n" + "\n".join(one[4:] for one in KERNELS.splitlines())
    (tmp_path / "kernels_to_simulate.py").write_text(text)
    environment = {
        **os.environ,
        "NUMBA_ENABLE_CUDASIM": "1",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
    }
    places = f"{line('range(4)') - 3}-{line('s += k') - 3}", str(line("t += a") - 3)
    done = subprocess.run(
        [sys.executable, "-c", SIMULATED, *places], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["a", "h", "load loop store"]


RECURSIVE = """
    @cuda.jit
    def depth(i):
        cuda.syncthreads()
        if i > 1:
            return depth(i - 1)
        return i

    @cuda.jit
    def kernel(x, n):
        x[0] = depth(n)
"""


@pytest.mark.parametrize(
    "selected",
    [recording(kinds=tuple(KINDS)), recording(LOOP), recording(f"t={FILE}:{line('t += a')}")],
    ids=["kinds", "lines", "lines of a callee"],
)
def test_a_debug_build_compiles_under_every_selection(
    frontend: Any, kernels: dict[str, Any], selected: Recording
) -> None:
    frontend.enable(selected)
    text = "selected code in kernel is not recorded: debug=True inlines nothing"
    with pytest.warns(UserWarning, match=text):
        library = numba_offline.built(kernels["kernel"], SIGNATURE, debug=True, opt=False, lto=False)
    cubin = library.get_cubin(cc=numba_offline.CC).code
    assert not is_marked(cubin) and b"kscope" not in cubin
    assert [(one.kind, one.text) for one in frontend.problems()] == [("nothing", text)]


@pytest.mark.parametrize("lto", [False, True])
def test_a_recursive_function_compiles_under_a_selection(frontend: Any, written: Written, lto: bool) -> None:
    """Its own operations are reported, and those of the kernel recorded."""
    frontend.enable(recording(kinds=tuple(KINDS)))
    kernel = written(RECURSIVE, FILE, __name__="__main__")["kernel"]
    with pytest.warns(UserWarning, match="selected code in .*depth.* is not recorded: the function was compiled"):
        made = ptx(numba_offline.built(kernel, SIGNATURE, lto=lto))
    assert [name.split()[0] for name in regions(made)] == ["store"]
