"""Which ptxas it is, by what it says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from kscope.lowering import assembler


@pytest.mark.parametrize(
    ("script", "release"),
    [
        ("#!/bin/sh\necho 'Cuda compilation tools, release 12.8, V12.8.93'\n", 12),
        ("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n", 13),
        ("#!/bin/sh\necho usage\n", None),
        ("no program", None),
        (None, None),
    ],
)
def test_a_ptxas_says_of_which_release_it_is(tmp_path: Path, script: str | None, release: int | None) -> None:
    path = tmp_path / "ptxas"
    if script is not None:
        path.write_text(script)
        path.chmod(0o755)
    assert assembler.release(str(path)) == release


def test_a_cache_tells_one_ptxas_from_another(tmp_path: Path) -> None:
    first, second = tmp_path / "ptxas", tmp_path / "other"
    first.write_text("1")
    second.write_text("22")
    names = {assembler.identity(path and str(path)) for path in (None, first, second, tmp_path / "gone")}
    assert len(names) == 4
