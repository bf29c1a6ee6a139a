"""A corpus on disk: for each kernel its PTX without marks, with marks, and how it is assembled."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from kscope.marks.grammar import PREFIX
from kscope.ptx import cfg

_RETURN = re.compile(r"^(?!\s*//)([^\n]*?)\bret\s*;", re.M)


@dataclass(frozen=True)
class Kept:
    """What is known of a kernel besides its texts.

    Attributes:
        name: of the kernel.
        frontend: of its language.
        flags: of ptxas.
        shared: bytes of shared memory per block, None if unknown.
        whole: nothing was selected in it, so a region is around all of it.
    """

    name: str
    frontend: str
    flags: tuple[str, ...] = ("-lineinfo", "--gpu-name=sm_90a")
    shared: int | None = None
    whole: bool = False


def keep(folder: Path, about: Kept, plain: str, marked: str) -> None:
    """Write a kernel. A text without marks gets a region around its whole body."""
    folder.mkdir(parents=True, exist_ok=True)
    if PREFIX not in marked:
        about, marked = Kept(about.name, about.frontend, about.flags, about.shared, True), around(marked)
    at = folder / re.sub(r"[^\w.]", "_", about.name)[:120]
    if plain:
        Path(f"{at}.plain").write_text(plain)
    Path(f"{at}.marked").write_text(marked)
    Path(f"{at}.json").write_text(json.dumps(asdict(about)))


def around(text: str) -> str:
    """A text with a region around the body of each kernel: behind the declarations, and in front of each return."""
    for function in reversed(cfg.functions(text)):
        body = text[function.open : function.close]
        first = next((one.start for one in function.statements if _does(text[one.start : one.end])), function.open)
        body = text[first : function.close]
        body = _RETURN.sub(lambda one: f"{one[1]}\n{PREFIX}exit body - - lines\n{one[0][len(one[1]) :]}", body)
        text = f"{text[:first]}\n{PREFIX}enter body - - lines\n{body}{text[function.close :]}"
    return text


def _does(statement: str) -> bool:
    return not statement.lstrip().startswith((".", "//", "{"))
