"""How many examples hypothesis draws: few and always the same by default, and many with KSCOPE_THOROUGH=1 or
HYPOTHESIS_PROFILE=thorough, as .ci/nightly does."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

THOROUGH = os.environ.get("KSCOPE_THOROUGH", "") not in ("", "0") or os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
FACTOR = 25 if THOROUGH else 0.3


def examples(few: int) -> settings:
    """Settings for a property: of `few` examples 30 % by default, and 25 times as many thoroughly."""
    return settings(
        max_examples=max(1, round(few * FACTOR)),
        deadline=None,
        derandomize=not THOROUGH,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def search(most: int) -> settings:
    """Settings to look for one example among `most`, without shrinking it."""
    return settings(
        examples(1), max_examples=most, derandomize=True, phases=(Phase.generate,), report_multiple_bugs=False
    )
