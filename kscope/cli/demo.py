"""`kscope demo`: a kernel recorded now, on the GPU where there is one, else in the simulator.

Every frontend's package brings a module `demo`: `TITLE` names its kernel, `obstacle()` says in words why it
cannot run here, or "" where it can, and `run()` launches it. What lives here: choosing one, recording
it, showing it. What does not: kernels (frontends).
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import export
from ..errors import MissingError, UsageError
from ..instrument import registry
from ..session import capture_path
from ..session.session import profile
from ..util.text import install_command

_OWN = "kscope-demo"
_CAPTURE = f"{_OWN}{capture_path.SUFFIX}"
"""Whatever the timeline is called: a capture of another name is somebody's."""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Adds the command to the grammar."""
    parser = commands.add_parser(
        "demo", parents=[common], help="record a small kernel and show it", allow_abbrev=False,
        description="Records a small kernel, on the GPU where there is one, else simulated, and shows what it did.",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", metavar="FILE", default=f"{_OWN}.pftrace",
        help=f"timeline to write, by suffix; the capture is {_CAPTURE} beside it",
    )  # fmt: skip
    parser.add_argument(
        "--on", metavar="FRONTEND", help=f"one of {', '.join(registry.TABLE)} (default: the first that can)"
    )
    parser.set_defaults(command=demo)


def demo(options: argparse.Namespace) -> int:
    """Runs the command."""
    output = Path(options.output)
    form, _ = export.check(output)
    capture = output.with_name(_CAPTURE)
    module, skipped = _choose(options.on)
    for line in skipped:
        print(line)
    print(f"recording {module.TITLE}", flush=True)
    with profile(capture) as prof:
        module.run()
    print()
    print(prof.trace.summary())
    prof.trace.export(output)
    where = "; open it at https://ui.perfetto.dev, it stays on your machine" if form.timeline else ""
    print(f"\n{output}: {form.what}{where}")
    print(f"{capture}: the capture; kscope summary and kscope export read it")
    return 0


def _choose(wanted: str | None) -> tuple[ModuleType, list[str]]:
    """The demo that can run here, and why those before it cannot. A DSL is imported only where there is a
    GPU for it: one that is imported takes part in every session."""
    if wanted is not None and wanted not in registry.TABLE:
        raise UsageError(f"--on {wanted}: known ones are {', '.join(registry.TABLE)}")
    skipped: list[str] = []
    absent: list[str] = []
    for name in [wanted] if wanted else registry.TABLE:
        if wanted is None and not registry.installed(registry.TABLE[name]):
            absent.append(name)
            continue
        try:
            found = _demo(registry.TABLE[name])
        except MissingError as error:
            skipped.append(f"not on {name}: {error}")
        else:
            return found, [f"not installed: {', '.join(absent)} (kscope doctor says how)"] * bool(absent) + skipped
    raise MissingError("; ".join(skipped))


def _demo(entry: registry.Entry) -> ModuleType:
    """Raises MissingError that says why it cannot run."""
    if not registry.installed(entry):
        raise MissingError(f"{entry.dsl} is not installed: {install_command(entry.extra)}")
    if entry.extra:  # what an extra installs runs on CUDA
        registry.backend("cuda")
    module = import_module(f"{entry.target.partition(':')[0]}.demo")
    if obstacle := module.obstacle():
        raise MissingError(obstacle)
    return module
