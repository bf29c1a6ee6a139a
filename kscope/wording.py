"""Numbers in sentences.

What lives here: how problems and tables say how many. What does not: the sentences.
"""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """``1 record``, ``1,000 records``, ``2 launches``."""
    plural = noun + ("es" if noun.endswith(("s", "ch")) else "s")
    return f"{count:,} {noun if count == 1 else plural}"
