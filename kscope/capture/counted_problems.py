"""Problems with a count."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..util.text import counted
from .model import Problem


def note(problems: list[Problem], kind: str, count: int | np.integer[Any], noun: str, rest: str) -> None:
    """Add the problem `3 records: why` if the count is not 0; `rest` is the text after the noun."""
    if count:
        problems.append(Problem(kind, f"{counted(int(count), noun)}{rest}", int(count)))
