"""`kscope pipeline CAPTURE`: stages, waits and copies in flight of kernels recorded with auto="pipeline"."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..analysis.pipelines.stages import pipelines
from .common import filters, json_output
from .common.command_parser import Command


def add(command: Command) -> None:
    """Add the command to the parser."""
    about = 'Rebuilds the phases of barriers of kernels recorded with auto="pipeline" (--kinds pipeline).'
    parser = command("pipeline", pipeline, description=about)
    filters.add(parser)
    json_output.add(parser)


def pipeline(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    trace = filters.filtered_trace(options)
    with filters.busy_bar(len(trace), "pipeline"):
        found = pipelines(trace)
    kernels, problems = [asdict(one) for one in found.kernels], [one.as_dict() for one in found.problems]
    json_output.show(options, lambda: {"kernels": kernels, "problems": problems}, lambda: found, trace)
    return 0
