"""`kscope demo`: record a small kernel, on the GPU if there is one, else in the simulator."""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import export
from ..errors import MissingError, UsageError
from ..instrument import registry
from ..instrument.frontend import Demo
from ..session import capture_path
from ..session.profile import profile
from ..util.text import install_command
from .common.command_parser import Command

_STEM = "kscope-demo"
_CAPTURE = f"{_STEM}{capture_path.SUFFIX}"
"""Independent of --output, so that the demo never overwrites another capture."""


def add(command: Command) -> None:
    """Add the command to the parser."""
    about = "Records a small kernel, on the GPU if there is one, else simulated, and prints a summary."
    parser = command("demo", demo, description=about)
    about = f"timeline to write, by suffix; the capture is {_CAPTURE} beside it"
    parser.add_argument("-o", "--output", metavar="FILE", default=f"{_STEM}.pftrace", help=about)
    about = f"one of {', '.join(registry.TABLE)} (default: the first that can run)"
    parser.add_argument("--on", metavar="FRONTEND", help=about)


def demo(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    output = Path(options.output)
    form, _ = export.check(output)
    capture = output.with_name(_CAPTURE)
    module, skipped = _select(options.on)
    for line in skipped:
        print(line)
    print(f"recording {module.TITLE}", flush=True)
    with profile(capture) as prof:
        module.run()
    print()
    print(prof.trace.summary())
    prof.trace.export(output)
    where = "; open it at https://ui.perfetto.dev; it stays on your machine" if form.timeline else ""
    print(f"\n{output}: {form.description}{where}")
    print(f"{capture}: the capture; kscope summary and kscope export read it")
    return 0


def _select(requested: str | None) -> tuple[Demo, list[str]]:
    """The first demo that can run here, and the reasons why those before it cannot.

    DSLs are imported only if there is a GPU: every imported DSL is part of the session.
    """
    if requested is not None and requested not in registry.TABLE:
        raise UsageError(f"--on {requested}: expected one of {', '.join(registry.TABLE)}")
    skipped: list[str] = []
    absent: list[str] = []
    for name in [requested] if requested else registry.TABLE:
        if requested is None and not registry.installed(registry.TABLE[name]):
            absent.append(name)
            continue
        try:
            module = _demo(name)
        except MissingError as error:
            skipped.append(f"not on {name}: {error}")
        else:
            return module, [f"not installed: {', '.join(absent)} (see kscope doctor)"] * bool(absent) + skipped
    raise MissingError("; ".join(skipped))


def _demo(name: str) -> Demo:
    """The demo of a frontend. Raises MissingError if it cannot run here."""
    entry = registry.TABLE[name]
    if not registry.installed(entry):
        raise MissingError(f"{entry.dsl} is not installed: {install_command(entry.extra)}")
    if entry.extra:  # DSLs with an extra need CUDA
        registry.backend("cuda")
    module = registry.demo(name)
    if obstacle := module.obstacle():
        raise MissingError(obstacle)
    return module
