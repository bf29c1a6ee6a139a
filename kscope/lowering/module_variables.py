"""Finds variables in a module's PTX that outlive a launch. They exist once per loaded module, so a program that uses
one of its forms must not run the other.
"""

from __future__ import annotations

import re
from collections import Counter

from ..ptx import cfg

_DECLARED = re.compile(
    r"(?:^|(?<=[;{}]))\s*(?:\.(?:visible|extern|weak|common)\s+)*\.(?:global|const)\s+(?:\.attribute\s*\([^)]*\)\s*)?"
    r"(?:\.(?:align|ptr)\s+\d+\s+|\.\w+\s+)*([\w$%]+)\s*(?:\[|=|;|,)",
    re.M,
)
_CONSTANTS = re.compile(
    r"_?\$_?str|__unnamed_|__cudart_|kscope_|_ZN08NumbaEnv|_cudapy_cmem|printfFormat|assert(?:Message|File|Func)"
)
"""Declarations of compilers: texts of printf and assert, libdevice's tables, Numba's unused environments and
constants.
"""


_WORD = re.compile(r"[\w$%]+")


def uses_variables(text: str) -> bool:
    """True if a module names variables in global or constant memory. Headers declare thousands that nothing names;
    constants in memory count, because the text does not distinguish them from variables.

    Args:
        text: PTX.
    """
    bare = cfg.bare(text)
    declared = {name for name in _DECLARED.findall(bare) if not _CONSTANTS.match(name)}
    if not declared:
        return False
    named = Counter(word for word in _WORD.findall(bare) if word in declared)
    return any(count > 1 for count in named.values())
