"""Adds commands to the parser, and words the parser's messages about typing errors."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from ...util.text import nearest

Command = Callable[..., argparse.ArgumentParser]
"""command(name, run, **more): a parser like argparse's add_parser(); run(namespace) returns the exit code."""
USAGE_ERROR = 2
"""Exit code of a command line that cannot be parsed, or without a command, which prints the help."""
_CHOICE = r"(?s)(argument \S+: )?invalid choice: '(.*?)' \(choose from (.*)\)"


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations. Its errors are one line, and suggest the nearest command, option or choice."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **more})

    def error(self, message: str) -> NoReturn:
        """Print the error to stderr on one line, with a hint, and exit with code 2."""
        if (found := re.match(_CHOICE, message)) is not None:
            names = [name.strip(" '") for name in found[3].split(",")]
            message += self._within(found[2]) or nearest(found[2], names)
        message = message.removesuffix(", args")  # what a script's arguments are to argparse: they may be missing
        self.exit(USAGE_ERROR, f"{self.prog}: {message} ({self.prog} --help)\n")

    def _within(self, word: str) -> str:
        """The suggestion for a word that is a command of one of this parser's commands."""
        for name, one in _commands_of(self).items():
            if word in _commands_of(one):
                return f"; did you mean {name} {word}?"
        return ""

    def refuse(self, words: Iterable[str]) -> NoReturn:
        """The error for surplus words on a command line."""
        words = list(words)
        flag = next((word.partition("=")[0] for word in words if word.startswith("-")), "")
        self.error(f"unrecognized arguments: {' '.join(words)}{nearest(flag, self._option_string_actions)}")


def _commands_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    return next((one.choices for one in parser._actions if isinstance(one.choices, Mapping)), {})


def no_command(options: argparse.Namespace) -> int:
    """Print the help of a command line that ends where a command is expected; returns the exit code."""
    options.parser.print_help()
    return USAGE_ERROR


def commands(
    parser: argparse.ArgumentParser, does: Mapping[str, str], *parents: Any, metavar: str = "COMMAND"
) -> Command:
    """A function that adds commands. does: command -> its help. parents: have the flags of every command."""
    subparsers = parser.add_subparsers(metavar=metavar, parser_class=Parser)
    parser.set_defaults(command=no_command, parser=parser)

    def add(name: str, run: Callable[[argparse.Namespace], int], **more: Any) -> argparse.ArgumentParser:
        text = does[name]
        described: dict[str, Any] = {"description": f"{text[0].upper()}{text[1:]}.", **more}
        one = subparsers.add_parser(name, parents=parents, **described)
        one.set_defaults(command=run, parser=one)
        return one

    return add


def listing(groups: Mapping[str, Mapping[str, str]]) -> str:
    """A help text: title -> command -> its help."""
    width = max(len(name) for members in groups.values() for name in members) + 2
    return "\n\n".join(
        "\n".join([f"{title}:", *(f"  {name:{width}}{does}" for name, does in members.items())])
        for title, members in groups.items()
    )
