"""The package's metadata: what an index shows of the README, and what a release needs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kscope.instrument import registry

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
WHERE = "https://example.org/owner/kscope/blob/v1"


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The definitions of setup.py, without a build."""
    pytest.importorskip("setuptools")
    monkeypatch.chdir(ROOT)
    with mock.patch("setuptools.setup") as called:
        names = runpy.run_path("setup.py")
    return {**names, "given": called.call_args.kwargs}


def test_links_and_pictures_of_the_description_lead_into_the_repository(setup: dict[str, Any]) -> None:
    text = setup["description"](README, WHERE)
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.S))
    assert len(targets) > 25
    assert [target for target in targets if not target.startswith("https://")] == []
    assert f"({WHERE}/docs/tutorial/README.md)" in text
    assert f"({WHERE.replace('/blob/', '/raw/')}/docs/img/attention.png)" in text
    assert "<!--" not in text
    ours = [target.partition("#")[0] for target in targets if target.startswith(WHERE)]
    paths = [target.removeprefix(WHERE).lstrip("/") for target in ours]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_extras_of_kernel_languages_install_a_disassembler() -> None:
    """Which finds regions whose work moved elsewhere; Triton includes one."""
    text = (ROOT / "pyproject.toml").read_text()
    for entry in registry.TABLE.values():
        extra = re.search(rf"^{entry.extra} = (.*)$", text, re.M)
        if entry.extra not in ("", "triton", "cuda"):
            assert extra is not None and '"nvidia-cuda-nvdisasm>=13"' in extra[1], entry.extra


def test_without_a_repository_the_description_has_no_broken_links(setup: dict[str, Any]) -> None:
    text = setup["given"]["long_description"]
    assert re.findall(r"\]\((?!https://)[^)]*\)", re.sub(r"```.*?```", "", text, flags=re.S)) == []
    assert "![" not in text
    assert "the tutorial" in text and "kscope.profile" in text
    assert setup["given"]["long_description_content_type"] == "text/markdown"


def test_the_release_checks_its_tag_and_its_files_before_it_publishes() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert (
        workflow.index("the tag is the version")
        < workflow.index("twine check --strict")
        < workflow.index("pypi-publish")
    )
    command = re.search(r"sed -n '(.*?)' kscope/_version.py", workflow)
    assert command is not None
    assert re.search(r'^__version__ = "(.*)"$', (ROOT / "kscope" / "_version.py").read_text(), re.M)
    assert "KSCOPE_REPOSITORY" in workflow and "KSCOPE_REPOSITORY" in (ROOT / "setup.py").read_text()


def test_ci_builds_the_site_checks_the_package_and_follows_the_tutorial() -> None:
    run = (ROOT / ".ci" / "run").read_text()
    assert all(words in run for words in ("step docs make docs", "twine check --strict", "tests/newcomer.py"))
    pinned = (ROOT / ".ci" / "docs.txt").read_text().split()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in pinned)
