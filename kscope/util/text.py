"""Phrases shared by messages and tables."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """``1 record``, ``1,000 records``, ``2 launches``."""
    plural = noun + ("es" if noun.endswith(("s", "ch")) else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def install_command(extra: str) -> str:
    """The command that installs an extra of kscope."""
    return f"pip install '.[{extra}]' in a checkout of kscope"
