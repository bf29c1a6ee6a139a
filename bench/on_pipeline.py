"""The cost of auto="pipeline": a warp-specialized matmul in Gluon and persistent ones in Triton, plain, with regions
that are placed by hand, with every operation on barriers, and with Proton's scopes around these operations.

    python bench/on_pipeline.py                      # on an sm_90 GPU
    python bench/on_pipeline.py --compile            # without a GPU: machine code of every variant
"""

from __future__ import annotations

import ast
import importlib.util
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import triton
import triton.profiler.language as pl
from triton.backends.compiler import GPUTarget

import kscope

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests")]
from fresh_module import fresh  # noqa: E402
from gpu_time import microseconds  # noqa: E402
from offline import source, without_gpu  # noqa: E402
from on_triton import at_rest  # noqa: E402  # the examples' folder has its kernels
from protons import MODES, instrumented  # noqa: E402

ROUNDS, LAUNCHES, SLEEP = 9, 4, 4_000_000
SCHEDULED = "pipeline, schedule"
MULTIPLY = ROOT / "tests" / "gpu" / "pipeline_kernels.py"
GLUON = ROOT / "examples" / "gluon_warp_specialized.py"


class Marked(ast.NodeTransformer):
    """A module whose regions are gone, or are Proton's scopes; these are also around arrivals and around the statements
    whose texts contain one of `more`. The functions' docstrings have the number, so that each has its own machine code.
    """

    def __init__(self, by_proton: bool, number: int, more: tuple[str, ...] = ()) -> None:
        self.by_proton, self.number, self.more = by_proton, number, ("mbarrier.arrive", *more)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:  # ast's name
        self.generic_visit(node)
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        node.body = [ast.Expr(ast.Constant(f"Variant {self.number}.")), *body]
        return node

    def visit_With(self, node: ast.With) -> list[ast.stmt]:  # ast's name
        self.generic_visit(node)
        call = node.items[0].context_expr
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "kscope.region":
            return [node]
        return self._scoped(ast.literal_eval(call.args[0]), node.body)

    def visit_Expr(self, node: ast.Expr) -> list[ast.stmt]:
        return self._named(node)

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        return self._named(node)

    def _named(self, node: ast.stmt) -> list[ast.stmt]:
        text = ast.unparse(node)
        name = next((one for one in self.more if one in text and not isinstance(node, ast.With)), None)
        return [node] if name is None else self._scoped(name.split("(")[0], [node])

    def _scoped(self, name: str, body: list[ast.stmt]) -> list[ast.stmt]:
        if not self.by_proton:
            return body
        begin, end = (ast.parse(f"pl.{act}_scope({name!r})").body for act in ("enter", "exit"))
        return [*begin, *body, *end]


def changed(path: Path, by_proton: bool, number: int, more: tuple[str, ...] = ()) -> Any:
    """The module of a file, changed."""
    tree = ast.fix_missing_locations(Marked(by_proton, number, more).visit(ast.parse(path.read_text())))
    text = f"import triton.profiler.language as pl\n{ast.unparse(tree)}".replace(
        "from __future__ import annotations", ""
    )
    copy = Path(tempfile.mkdtemp()) / f"{path.stem}_{number}.py"
    copy.write_text(text)
    return fresh(copy)


Launch = Callable[[Any], Callable[[], object]]


@dataclass(frozen=True)
class Variant:
    """How a kernel is recorded. number: of the copy of its module. within: the context of launches."""

    number: int
    within: Callable[[], AbstractContextManager[Any]]
    by_proton: bool = False
    by_hand: bool = False


def _variants(by_hand: bool, proton: bool) -> dict[str, Variant]:
    pool = 4 << 30
    found = {"plain": Variant(0, nullcontext)}
    if by_hand:
        found["by hand"] = Variant(1, lambda: kscope.profile(auto=False, pool=pool), by_hand=True)
    found["pipeline"] = Variant(0, lambda: kscope.profile(auto="pipeline", pool=pool))
    found[SCHEDULED] = Variant(0, lambda: kscope.profile(auto="pipeline", placement="schedule", pool=pool))
    for at, (name, options) in enumerate(MODES.items() if proton else ()):
        size = {"buffer_size": 65536} if "buffer_type" in options else {}
        found[name] = Variant(2 + at, partial(instrumented, **size, **options), by_proton=True)
    return found


@dataclass(frozen=True)
class Kernel:
    """A kernel. more: statements with these texts are in Proton's scopes, beside regions. by_hand: it has regions.
    keeps_scopes: Triton's compiler leaves Proton's scopes in it. stages: of Triton's pipeline.
    """

    path: Path
    launch: Launch
    more: tuple[str, ...] = ()
    by_hand: bool = False
    keeps_scopes: bool = True
    stages: int = 3
    variants: dict[str, Variant] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "variants", _variants(self.by_hand, self.keeps_scopes))

    def module(self, how: Variant) -> Any:
        if how.by_hand:
            return importlib.import_module(self.path.stem)
        return changed(self.path, how.by_proton, how.number, self.more)


def gluon(module: Any) -> Callable[[], object]:
    import torch

    a, b = (torch.randn(module.SIZE, module.SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
    tiles = ((a, [module.BM, module.BK]), (b, [module.BK, module.BN]), (torch.empty_like(a), [module.BM, module.BN]))
    made = [
        module.TensorDescriptor.from_tensor(
            matrix, shape, module.gl.NVMMASharedLayout.get_default_for(shape, module.gl.float16)
        )
        for matrix, shape in tiles
    ]
    grid = (module.SIZE // module.BM, module.SIZE // module.BN)
    return lambda: module.matmul[grid](*made, module.SIZE, module.BK, module.STAGES, num_warps=4)


def persistent(apart: bool, stages: int = 3) -> Launch:
    def launch(module: Any) -> Callable[[], object]:
        import torch

        size = 4096
        a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
        c = torch.empty_like(a)
        options = {"num_warps": 4 if apart else 8, "num_stages": stages}
        return lambda: module.multiply[(132,)](a, b, c, size, size, size, **module.TILES, APART=apart, **options)

    return launch


# The waits of Triton's own pipeline are not in its source: scopes are around what is, the loads with the product.
KERNELS = {
    "Gluon, warp-specialized, 2048^3": Kernel(GLUON, gluon, by_hand=True),
    "Triton, persistent, 4096^3, 3 stages": Kernel(MULTIPLY, persistent(False), ("tl.dot(",)),
    "Triton, persistent, 4096^3, 4 stages": Kernel(MULTIPLY, persistent(False, 4), ("tl.dot(",), stages=4),
    "Triton, warp-specialized, 4096^3": Kernel(MULTIPLY, persistent(True), keeps_scopes=False),
}


def measure(name: str, kernel: Kernel) -> None:
    """Print what each variant of a kernel takes."""
    launches = {variant: kernel.launch(kernel.module(how)) for variant, how in kernel.variants.items()}
    launches |= dict.fromkeys(("pipeline", SCHEDULED), launches["plain"])
    times: dict[str, list[float]] = {variant: [] for variant in launches}
    failed: dict[str, str] = {}
    recorded = dict[str, Any]()
    for _ in range(ROUNDS):
        for variant, launch in launches.items():
            if variant in failed:
                continue
            try:
                with kernel.variants[variant].within() as opened:
                    launch()
                    times[variant].append(microseconds(launch, LAUNCHES, SLEEP))
            except Exception as error:  # a mode of Proton that this kernel has no room for
                failed[variant] = f"{type(error).__name__}: {error}".splitlines()[0][:80]
                continue
            recorded |= {variant: opened} if variant.startswith("pipeline") else {}
    plain = statistics.median(times["plain"])
    print(name)
    for variant, one in recorded.items():
        problems = [f"{problem.kind}: {problem.text[:160]}" for problem in one.trace.problems]
        print(f"    {variant}: {len(one.trace):,} records in {LAUNCHES + 1} launches, {problems}")
    for variant, found in times.items():
        took = statistics.median(found) if found else float("nan")
        print(f"    {variant:28} {took:8.1f} us  {took / plain - 1:+7.1%}  {failed.get(variant, '')}", flush=True)


def main() -> None:
    import torch

    warnings.simplefilter("ignore")
    pl.enable_semantic("triton")
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    for name, kernel in KERNELS.items():
        measure(name, kernel)
    for stages in (2, 3, 4, 5):  # 3 are too few, says kscope pipeline
        launch = persistent(False, stages)(changed(MULTIPLY, False, 0))
        launch()
        times = [microseconds(launch, LAUNCHES, SLEEP) for _ in range(ROUNDS)]
        print(f"Triton, persistent, {stages} stages: {statistics.median(times):.1f} us")


def compile_only(target: GPUTarget) -> None:
    """Print the size of each variant's machine code."""
    pl.enable_semantic("triton")
    with without_gpu(target):
        for name, kernel in KERNELS.items():
            for variant, how in kernel.variants.items():
                plain = how.by_proton or variant == "plain"
                options = {"placement": "schedule"} if variant == SCHEDULED else {}
                auto = variant.startswith("pipeline") and "pipeline"
                recording = nullcontext() if plain else at_rest(auto=auto, **options)
                try:
                    with recording, how.within() if how.by_proton else nullcontext():
                        made = triton.compile(*_source(kernel.module(how), "Triton, warp" in name, kernel.stages))
                    print(f"{name}, {variant}: {len(made.asm['cubin']):,} bytes")
                except Exception as error:
                    print(f"{name}, {variant}: {type(error).__name__}: {str(error)[:200]}")


def _source(module: Any, apart: bool, stages: int) -> tuple[Any, GPUTarget, dict[str, int]]:
    target = GPUTarget("cuda", 90, 32)
    if hasattr(module, "multiply") and hasattr(module, "TILES"):
        types = {**dict.fromkeys("abc", "*fp16"), **dict.fromkeys("MNK", "i32")}
        constants = {**module.TILES, "APART": apart}
        options = {"num_warps": 4 if apart else 8, "num_stages": stages}
        return source(module.multiply, types, constants), target, options
    tiles = {"a": (module.BM, module.BK), "b": (module.BK, module.BN), "c": (module.BM, module.BN)}
    layout = module.gl.NVMMASharedLayout.get_default_for
    types = {
        name: f"tensordesc<fp16[{x}, {y}],{layout([x, y], module.gl.float16)!r}>" for name, (x, y) in tiles.items()
    }
    types |= {"K": "i32", "BK": "constexpr", "STAGES": "constexpr"}
    return (
        module.GluonASTSource(module.matmul, types, {"BK": module.BK, "STAGES": module.STAGES}),
        target,
        {"num_warps": 4},
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--compile"]:
        compile_only(GPUTarget("cuda", 90, 32))
    else:
        main()
