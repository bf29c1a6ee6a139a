"""Cycles that one region adds in the loop of a Triton kernel: kscope, and Proton as Triton ships it, on the same loop.

A, B and C are the loops of on_regions.py; their places in the instruction cache are Triton's choice. The machine code
of every variant is checked as there: a row has a doubt if its work does not lie between its marks, as Triton's compiler
and Proton let arithmetic move out of them.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
import triton.profiler.language as pl
from offline import source
from on_regions import SECTIONS, WORK, Config, disassembled, doubt, loop_of, per_iteration
from on_triton import in_place, lowering
from proton_twins import twin
from protons import instrumented
from rows import Row, row
from triton_kernels import loop

import kscope

CONFIGS = SECTIONS["regions"]
REPEATS = 7
SHARED = 228 << 10
"""Bytes of shared memory per SM; the system takes 1024 of them per block."""
MODES = {
    "Proton shared clock32": {"optimizations": "clock32"},
    "Proton shared clock64": {},
    "Proton global clock32": {"buffer_type": "global", "buffer_size": 65536, "optimizations": "clock32"},
    "Proton global clock64": {"buffer_type": "global", "buffer_size": 65536},
}
Around = Callable[[], Any]


@contextmanager
def recorded(change: Any = None) -> Iterator[None]:
    """A context in which kscope records."""
    with lowering(change) if change else nullcontext(), kscope.profile():
        yield


def variants() -> dict[str, tuple[Any, Around]]:
    """Each profiler's kernel, and the context of its launches."""
    found: dict[str, tuple[Any, Around]] = {
        "kscope": (loop, recorded),
        "kscope, in place": (loop, lambda: recorded(in_place)),
    }
    modes = {name: partial(instrumented, host_work=True, **options) for name, options in MODES.items()}
    return found | {name: (twin(loop), around) for name, around in modes.items()}


def cycles(kernel: Any, tag: int, config: Config, repeats: int) -> tuple[list[float], Any]:
    """Cycles per iteration of the median block, by run; and the compiled kernel."""
    blocks = config.blocks * torch.cuda.get_device_properties(0).multi_processor_count
    out = torch.empty(blocks * config.block, device="cuda")
    taken = torch.zeros(blocks, device="cuda", dtype=torch.int64)
    count = WORK[config.loop].get("FFMA", 0)

    def launch(iterations: int) -> Any:
        return kernel[(blocks,)](
            out, taken, iterations, COUNT=count, THREADS=config.block, TAG=tag, num_warps=config.block // 32
        )

    def block(iterations: int) -> float:
        launch(iterations)
        torch.cuda.synchronize()
        return float(taken.double().median())

    compiled = launch(config.iterations)
    return per_iteration(block, config.iterations, repeats), compiled


def checked(cubin: bytes, config: Config, path: Path) -> tuple[int, str]:
    """The instructions of the loop, and what is wrong with its marks."""
    path.write_bytes(cubin)
    (code,) = [code for name, code in disassembled(path).items() if name.startswith("loop")]
    body = loop_of(code, WORK[config.loop])
    return len(body), doubt(body, WORK[config.loop])


def measure(section: str, options: Any) -> Iterator[Row]:
    """Cycles that every variant adds to the loop without marks."""
    pl.enable_semantic("triton")
    repeats = 3 if options.quick else REPEATS
    for config in CONFIGS:
        path = options.folder / f"loop{config.where}.cubin"
        plain, made = cycles(loop, 0, config, repeats)
        base, (without, _) = statistics.median(plain), checked(made.asm["cubin"], config, path)
        for tag, (name, (kernel, around)) in enumerate(variants().items(), 1):
            with around():
                seen, made = cycles(kernel, tag, config, repeats)
            length, doubts = checked(made.asm["cubin"], config, path)
            if config.blocks * (made.metadata.shared + 1024) > SHARED:
                doubts = (
                    f"{doubts}; {config.blocks} blocks with {made.metadata.shared:,} bytes do not fit on an SM".strip(
                        "; "
                    )
                )
            notes = {"sass": length - without, **({"doubt": doubts} if doubts else {})}
            yield row(name, config.where, "cycles", [one - base for one in seen], **notes)


def dry(section: str, options: Any) -> Iterator[Row]:
    """Without a GPU: the loop with kscope's regions, compiled and checked. Rows are instructions that marks add."""
    from triton.backends.compiler import GPUTarget

    target = GPUTarget("cuda", int(re.sub(r"\D", "", options.arch)), 32)
    types = {"out": "*fp32", "cycles": "*i64", "iterations": "i32"}
    for config in CONFIGS:
        constants = {"COUNT": WORK[config.loop].get("FFMA", 0), "THREADS": config.block, "TAG": 0}
        lengths, doubts, options_of_triton = [], "", {"num_warps": config.block // 32}
        for state in (kscope.disable, kscope.enable):
            state()
            made = triton.compile(source(loop, types, constants), target=target, options=options_of_triton)
            length, doubts = checked(made.asm["cubin"], config, options.folder / "loop.cubin")
            lengths.append(length)
        yield row(
            "kscope", config.where, "instructions", [lengths[1] - lengths[0]], **({"doubt": doubts} if doubts else {})
        )
    kscope.disable()
