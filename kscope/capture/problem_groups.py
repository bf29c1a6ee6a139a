"""Kinds of problems in five groups; a group has one remedy and one page in docs/problems."""

from __future__ import annotations

GROUPS: dict[str, tuple[str, ...]] = {
    "lost": (
        "count", "cut", "half", "limited", "lost", "missing", "overwritten", "partial", "refused", "torn",
        "unidentified", "unrecorded", "unsampled",
    ),
    "unfinished": ("drain", "driver", "unclosed", "unfinished"),
    "unmarked": (
        "absent", "cooperative", "empty", "metadata", "nothing", "off", "options", "pairing", "plain", "removed",
        "skipped", "unmatched",
    ),
    "changed": ("hollow", "moved", "occupancy", "placement", "registers", "unproved"),
    "uncertain": (
        "ambiguous", "assumed", "blocks", "clock", "collision", "compensated", "foreign", "garbled", "lines",
        "nameless", "order", "pipeline", "rate", "unknown", "unlinked", "unpaired", "version", "wrap",
    ),
}  # fmt: skip
"""Group -> its kinds. docs/problems/GROUP.md explains each and gives its remedy."""

GROUP_OF: dict[str, str] = {kind: group for group, kinds in GROUPS.items() for kind in kinds}
"""Kind -> its group."""
