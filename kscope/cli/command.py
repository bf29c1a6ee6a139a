"""How a command adds itself to the parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

Command = Callable[..., argparse.ArgumentParser]
"""command(name, run, help, **more): a parser like argparse's add_parser(); run(namespace) returns the exit code."""


def commands(parser: argparse.ArgumentParser, *parents: argparse.ArgumentParser) -> Command:
    """What adds commands to a parser; `parents` have the flags of each."""
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, run: Callable[[argparse.Namespace], int], help: str, **more: Any) -> argparse.ArgumentParser:
        one = subparsers.add_parser(name, parents=parents, help=help, allow_abbrev=False, **more)
        one.set_defaults(command=run)
        return one

    return add
