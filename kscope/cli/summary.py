"""`kscope summary CAPTURE`: where the time went."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..analysis.groups import CALL_KEYS, KEYS
from ..analysis.summary import summarize
from ..util.terminal import terminal_width, wrapped
from .common import filters, json_output
from .common.command_parser import Command
from .common.outputs import STRICT


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command("summary", summary)
    filters.add(parser)
    calls = f"with --torch also {', '.join(CALL_KEYS)}; of a session with launch_stacks also line"
    keys = f"a row per region and {', '.join(KEYS)}; several with commas; {calls}"
    parser.add_argument("--by", metavar="KEYS", default="", help=keys)
    about = "torch.profiler's trace of the same run: the origin of each launch"
    parser.add_argument("--torch", metavar="TRACE", type=Path, help=about)
    filters.add_roles(parser)
    parser.add_argument("--stalls", action="store_true", help="also show where warps waited, of a capture with samples")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="all numbers as JSON")
    form.add_argument("--csv", action="store_true", help="one line per row, all numbers")
    form.add_argument("--markdown", action="store_true", help="a Markdown table")
    json_output.add(parser, top=f"the N longest rows (table: 50 per kernel, JSON: {json_output.MOST})", json=False)
    parser.add_argument("--strict", action="store_true", help=f"exit code {STRICT} if records were lost or doubtful")


def summary(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    trace = filters.filtered_trace(options, shows_problems=not options.csv)
    roles = filters.roles(options.role)
    with filters.busy_bar(len(trace), "summary"):
        found = summarize(trace, options.by, roles)
    waits = trace.stalls() if options.stalls else None
    doubts = list[str]()
    if trace.samples is not None and not trace.filtered:
        from ..analysis.samples import crosscheck  # of few captures

        doubts += crosscheck.doubts(trace, trace.samples)
    if options.json:
        data = found.to_dict(options.top or json_output.MOST)
        data |= {} if waits is None else {"stalls": waits.to_dicts()}
        data |= {} if trace.samples is None else {"doubts": doubts}
        print(json_output.answer(options, data, trace))
    elif options.csv:
        print(found.csv(options.top), end="")
    elif options.markdown:
        print(found.markdown(options.top), end="")
    else:
        print(found.text(top=options.top or 50))
        if waits is not None:
            print(f"\n{waits}")
        for doubt in doubts:
            print("\n".join(wrapped(f"! {doubt}", terminal_width())))
    return STRICT if options.strict and trace.problems else 0
