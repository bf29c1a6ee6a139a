"""Plain kernels: annotated kernels compile as without annotations, and no hook stays in Numba."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from contract.numba_offline import built
from numba.cuda import codegen, compiler, dispatcher
from numba.cuda.core import bytecode
from numba.cuda.cudadrv import nvrtc
from numba.cuda.typing import context

from kscope.instrument.recording import Recording

from .reading import normal, ptx, regions

Written = Callable[..., dict[str, Any]]
SIGNATURE = "void(float32[::1], int64)"
ANNOTATED = """
    LOAD = kscope.scope("load")

    @cuda.jit
    def helper(x, i):
        with kscope.region("helper", value=i):
            if x[i] > 0:
                return x[i] * 2
            return x[i]

    @cuda.jit
    def kernel(x, n):
        i = cuda.grid(1)
        with kscope.region("outer") as outer:
            for k in range(n):
                with LOAD:
                    if x[k] > 3:
                        break
                x[i] += helper(x, k)
                outer.pin(x[i])
        LOAD.enter()
        x[i] += 1
        LOAD.exit()
        kscope.instant("tick", x[i])
        kscope.counter("depth", i)
"""
BARE = """


    @cuda.jit
    def helper(x, i):

        if x[i] > 0:
            return x[i] * 2
        return x[i]

    @cuda.jit
    def kernel(x, n):
        i = cuda.grid(1)

        for k in range(n):

            if x[k] > 3:
                break
            x[i] += helper(x, k)


        x[i] += 1



"""
"""The same source without kscope's calls."""
SIZE = 2000
MADE = ("False.ptx", "False.cubin", "True.ptx", "True.cubin")
POINTS = [
    (codegen.CUDACodeLibrary, name)
    for name in ("finalize", "llvm_strs", "get_asm_strs", "get_lto_ptx", "get_cubin", "get_cufunc", "_link_all")
] + [
    (nvrtc, "compile"), (compiler, "compile_cuda"), (dispatcher, "compile_cuda"),
    (dispatcher.CUDACache, "_index_key"), (bytecode.FunctionIdentity, "from_function"),
    (context.CallStack, "finditer"),
]  # fmt: skip

SCRIPT = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from contract.numba_offline import built
import kscope_numba
kscope_numba.teach()
space = {{"__name__": "kernels"}}
exec(compile(Path(sys.argv[1]).read_text(), "kernels.py", "exec", dont_inherit=True), space)
for lto in (False, True):
    library = built(space["kernel"], {signature!r}, lto=lto, lineinfo=sys.argv[2] == "lines")
    Path(f"{{sys.argv[3]}}.{{lto}}.cubin").write_bytes(library.get_cubin(cc=(9, 0)).code)
    text = library.get_lto_ptx(cc=(9, 0)) if lto else library.get_asm_str(cc=(9, 0))
    Path(f"{{sys.argv[3]}}.{{lto}}.ptx").write_text(text)
"""


@pytest.mark.parametrize("lines", ["none", "lines"])
def test_annotated_kernels_equal_bare_ones_while_recording_is_off(tmp_path: Path, root: Path, lines: str) -> None:
    made = {}
    places = [str(root / part) for part in (".", "frontends", "runtime", "tests")]
    script = SCRIPT.format(paths=places, signature=SIGNATURE)
    for name, text in (("annotated", ANNOTATED), ("bare", BARE)):  # in one folder: line information names it
        source = tmp_path / "kernels.py"
        source.write_text(("import kscope\nfrom numba import cuda\n" + textwrap.dedent(text)).ljust(SIZE, "\n"))
        os.utime(source, (0, 0))  # line tables have a file's size and time
        command = [sys.executable, "-c", script, str(source), lines, name]
        subprocess.run(command, check=True, cwd=tmp_path)
        made[name] = {kind: (tmp_path / f"{name}.{kind}").read_bytes() for kind in MADE}
    assert [kind for kind in MADE if made["annotated"][kind] != made["bare"][kind]] == []


def test_every_hook_is_gone_after_disable(frontend: Any) -> None:
    before = [vars(owner).get(name) for owner, name in POINTS]
    frontend.enable(Recording())
    assert all(vars(owner).get(name) is not was for (owner, name), was in zip(POINTS, before, strict=True))
    frontend.enable(Recording(records=8))
    frontend.disable()
    assert [vars(owner).get(name) for owner, name in POINTS] == before


@pytest.mark.parametrize(("owner", "name"), POINTS)
def test_hooks_installed_by_other_tools_stay(
    frontend: Any, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    monkeypatch.setattr(owner, name, inspect.getattr_static(owner, name))  # put back at the end
    frontend.enable(Recording())

    def theirs(*args: Any, **options: Any) -> None:
        """Never called."""

    setattr(owner, name, theirs)
    frontend.disable()
    assert vars(owner)[name] is theirs


def test_importing_and_making_the_frontend_patches_nothing() -> None:
    script = (
        "from numba import cuda; from numba.cuda import codegen, dispatcher; from numba.cuda.core import bytecode\n"
        "from numba.cuda.typing.context import CallStack\n"
        "owners = codegen.CUDACodeLibrary, dispatcher.CUDACache, dispatcher.CUDADispatcher, bytecode.FunctionIdentity\n"
        "owners += (CallStack,)\n"
        "spaces = [vars(owner) for owner in owners]\n"
        "before = [dict(space) for space in spaces]\n"
        "import kscope_numba; from kscope.instrument import registry; registry.frontend('numba')\n"
        "assert [dict(space) for space in spaces] == before"
    )
    subprocess.run(
        [sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
    )


def test_regions_compile_away_after_teach_and_record_after_enable(taught: Any, written: Written) -> None:
    kernel = written(ANNOTATED)["kernel"]
    assert "kscope" not in ptx(built(kernel, SIGNATURE))
    taught.enable(Recording())
    assert regions(ptx(built(kernel, SIGNATURE))).keys() == {"depth", "helper", "load", "outer", "tick"}
    taught.disable()
    assert "kscope" not in ptx(built(kernel, SIGNATURE))


@pytest.mark.filterwarnings("ignore:Context.call_conv:DeprecationWarning")  # Numba's own, of such a function
def test_recursive_functions_compile_plain_without_their_region(taught: Any, written: Written) -> None:
    text = """
        @cuda.jit
        def depth(i):
            {}
                if i < 1:
                    return 0
                return depth(i - 1) + 1

        @cuda.jit
        def kernel(x, n):
            x[0] = depth(n)
    """
    annotated, bare = (
        normal(ptx(built(written(text.format(line), __name__="__main__")["kernel"], SIGNATURE)))
        for line in ('with kscope.region("deeper"):', "if True:")
    )
    assert annotated == bare


def test_a_kernel_without_regions_is_the_same_in_every_state(frontend: Any, written: Written) -> None:
    kernel = written(BARE)["kernel"]

    def texts() -> list[str]:
        return [normal(ptx(built(kernel, SIGNATURE, lto=lto))) for lto in (False, True)]

    plain = texts()
    frontend.enable(Recording())
    assert texts() == plain


@pytest.mark.skipif(
    not any(point.value.startswith("kscope_numba:") for point in entry_points(group="numba_cuda_extensions")),
    reason="kscope is on the path here, and not installed",
)
def test_the_numba_entry_point_teaches_numba_regions(tmp_path: Path, root: Path) -> None:
    (tmp_path / "kernels.py").write_text("import kscope\nfrom numba import cuda\n" + textwrap.dedent(ANNOTATED))
    script = (
        "from contract.numba_offline import built\nimport kernels\n"
        "kernels.kernel._compilation_chain_init_hook()\n"  # the first call of a launch
        f"assert 'kscope' not in built(kernels.kernel, {SIGNATURE!r}, lto=False).get_asm_str(cc=(9, 0))"
    )
    places = os.pathsep.join(map(str, (tmp_path, root, *(root / part for part in ("frontends", "runtime", "tests")))))
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": places})
