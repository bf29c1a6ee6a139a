"""Files that are written whole or not at all.

What lives here: the file beside, which takes the other's place. What does not: what is written, and whether that place
may be taken.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """A file to write to. It takes the place of `path` where the body ends; where that raises, it is gone."""
    beside = path.with_name(f".kscope-{os.getpid()}-{threading.get_ident()}.part")
    try:
        with open(beside, "wb") as file:
            yield file
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
