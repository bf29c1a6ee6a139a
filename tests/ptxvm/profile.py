"""How many examples hypothesis draws: few and always the same by default, twice as many in .ci/run
(HYPOTHESIS_PROFILE=repeat), and many with KSCOPE_THOROUGH=1 or HYPOTHESIS_PROFILE=thorough."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_PROFILE = os.environ.get("HYPOTHESIS_PROFILE")
THOROUGH = os.environ.get("KSCOPE_THOROUGH", "") not in ("", "0") or _PROFILE == "thorough"
FACTOR = 25 if THOROUGH else 0.6 if _PROFILE == "repeat" else 0.3


def examples(few: int) -> settings:
    """Settings for a property: of `few` examples 30 % by default, 60 % in .ci/run, and 25 times as many thoroughly."""
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
