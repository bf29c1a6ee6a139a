"""How a command adds itself to the parser, and the parser's messages about typing errors."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from ..util.text import nearest

Command = Callable[..., argparse.ArgumentParser]
"""command(name, run, help, **more): a parser like argparse's add_parser(); run(namespace) returns the exit code."""
_CHOICE = re.compile(r"(argument \S+: )?invalid choice: '(.*?)' \(choose from (.*)\)", re.S)


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations, which suggests the nearest command, option or choice."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **more})

    def error(self, message: str) -> NoReturn:
        """Print usage and error to stderr, and exit with code 2."""
        if (found := _CHOICE.match(message)) is not None:
            message += nearest(found[2], [name.strip(" '") for name in found[3].split(",")])
        super().error(message)

    def refuse(self, words: Iterable[str]) -> NoReturn:
        """The error for words that are left over on a command line."""
        words = list(words)
        flag = next((word.partition("=")[0] for word in words if word.startswith("-")), "")
        self.error(f"unrecognized arguments: {' '.join(words)}{nearest(flag, self._option_string_actions)}")


def commands(parser: argparse.ArgumentParser, *parents: Any, metavar: str = "COMMAND") -> Command:
    """What adds commands to a parser; `parents` have the flags of each."""
    subparsers = parser.add_subparsers(metavar=metavar, required=True, parser_class=Parser)

    def add(name: str, run: Callable[[argparse.Namespace], int], help: str, **more: Any) -> argparse.ArgumentParser:
        described: dict[str, Any] = {"description": f"{help[0].upper()}{help[1:]}.", **more}
        one = subparsers.add_parser(name, parents=parents, **described)
        one.set_defaults(command=run, parser=one)
        return one

    return add


class Listed:
    """A `Command` that notes what is added, for a help text by groups."""

    def __init__(self, add: Command) -> None:
        self._add, self._groups = add, dict[str, list[tuple[str, str]]]()
        self._group = self._groups.setdefault("", [])

    def group(self, title: str) -> None:
        """The commands added from now on belong to this group."""
        self._group = self._groups.setdefault(title, [])

    def __call__(
        self, name: str, run: Callable[[argparse.Namespace], int], help: str, **more: Any
    ) -> argparse.ArgumentParser:
        self._group.append((name, help))
        return self._add(name, run, help, **more)

    def text(self) -> str:
        """The groups with their commands."""
        width = max(len(name) for rows in self._groups.values() for name, _ in rows) + 2
        parts = [
            "\n".join([f"{title}:", *(f"  {name:{width}}{help}" for name, help in rows)])
            for title, rows in self._groups.items()
            if rows
        ]
        return "\n\n".join(parts)
