"""profile(launch_stacks=True): what it adds to a launch, and the lines of launches that a package makes.

make gpu PYTEST_ARGS='-k launch_stacks'
"""

from __future__ import annotations

import runpy
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import kscope
from kscope.instrument.launch_lines import LINES

from .checks import doubts, sync

Table = Callable[[str, str], None]
BLOCK = 1024


@pytest.fixture
def k() -> Iterator[ModuleType]:
    """The kernels' module, imported late because Triton may be missing; prepared."""
    kscope.enable()
    from . import merge_kernels

    yield merge_kernels
    kscope.disable()


def added(launch: Callable[[int], None], what: str, table: Table) -> None:
    """Print what launch_stacks adds to a launch."""
    took: dict[bool, list[float]] = {False: [], True: []}
    with kscope.profile(launch_stacks=True):
        for batch in range(400):
            for on in (batch % 2 == 0, batch % 2 == 1):
                LINES.record(on)
                begin = time.perf_counter_ns()
                for at in range(20):
                    launch(at)
                took[on].append((time.perf_counter_ns() - begin) / 20_000)
            sync()  # so that no launch waits for room in the queue
    plain, recorded = (np.array(took[value][50:]) for value in (False, True))
    for name, found in (("least", np.min), ("median", np.median)):
        before, now = found(plain), found(recorded)
        text = f"{before:.2f} us, with launch_stacks {now:.2f}: {now - before:+.2f} us"
        table(f"launch lines, {what}, {name} of 350 batches of 20", text)
    table(f"launch lines, {what}, median difference of neighbors", f"{np.median(recorded - plain):+.2f} us")


def test_what_launch_stacks_adds_to_a_launch(k: ModuleType, table: Table) -> None:
    import torch

    x = torch.rand(BLOCK, device="cuda")
    y = torch.empty_like(x)
    added(lambda at: k.shift[(1,)](x, y, BLOCK, at, BLOCK=BLOCK), "own line", table)


def test_launches_through_eight_functions_of_a_package_have_the_programs_lines(
    k: ModuleType, tmp_path: Path, table: Table
) -> None:
    import torch

    file = tmp_path / "site-packages" / "pack" / "calls.py"
    file.parent.mkdir(parents=True)
    inner = "def call0(kernel, *arguments, **options):\n    kernel[(1,)](*arguments, **options)\n"
    outer = "def call{}(*arguments, **options):\n    call{}(*arguments, **options)\n"
    file.write_text(inner + "".join(outer.format(at, at - 1) for at in range(1, 8)))
    call = runpy.run_path(str(file), run_name="pack.calls")["call7"]
    x = torch.rand(BLOCK, device="cuda")
    y = torch.empty_like(x)

    def here(at: int) -> None:
        call(k.shift, x, y, BLOCK, at, BLOCK=BLOCK)

    def there(at: int) -> None:
        call(k.shift, x, y, BLOCK, at, BLOCK=BLOCK)

    here(0)
    sync()
    with kscope.profile(tmp_path / "s.kscope", launch_stacks=True) as prof:
        for at in range(90):
            (there if at % 3 else here)(at)
    assert not doubts(prof.trace)
    functions = [call.line.rpartition(" ")[2] for call in prof.trace.calls]
    assert functions == ["there" if at % 3 else "here" for at in range(90)]
    added(here, "through 8 functions of a package", table)
