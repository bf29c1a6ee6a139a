"""Computed parts of the docs are up to date: the layout's pictures, the README's summary."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from kscope.capture import layout

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_in_the_docs_are_up_to_date(pictures: ModuleType) -> None:
    pages = [page.read_text() for page in pictures.PAGES]
    assert [pictures.drawn(page) for page in pages] == pages, "run: python docs/pictures.py"
    assert all(f"<!-- picture: {name} -->" in "".join(pages) for name in pictures.pictures())


def test_a_picture_shows_every_field_of_its_structure(pictures: ModuleType) -> None:
    for name, dtype in {
        "record": layout.RECORD,
        "header": layout.HEADER,
        "gate": layout.GATE,
        "stripe": layout.STRIPE,
    }.items():
        drawn = pictures.pictures()[name]
        assert all(f" {field.replace('_end', '')} " in drawn for field in dtype.names or ())


def test_the_bit_fields_of_a_word_fill_it(pictures: ModuleType) -> None:
    for parts in (pictures._PLACE, pictures._ID):
        assert sum(size for _, _, size in parts) == 32
        assert [low for _, low, _ in parts] == [sum(size for _, _, size in parts[:i]) for i in range(len(parts))]


def test_the_page_of_outputs_explains_every_kind_of_problem() -> None:
    sources = (
        path.read_text() for folder in ("kscope", "runtime", "frontends") for path in (ROOT / folder).rglob("*.py")
    )
    kinds = {kind for source in sources for kind in re.findall(r'\bProblem\(\s*"(\w+)"', source)}
    page = (DOCS / "outputs.md").read_text()
    assert len(kinds) > 20
    assert not {kind for kind in kinds if f"`{kind}`" not in page}


def test_nothing_is_installed_by_a_name_that_no_index_has() -> None:
    """kscope is installed from a checkout: no page may recommend `pip install kscope`, with an extra or without."""
    texts = [*DOCS.glob("*.md"), ROOT / "README.md"]
    texts += [
        path for folder in ("kscope", "runtime", "frontends", "examples") for path in (ROOT / folder).rglob("*.py")
    ]
    offered = re.compile(r"pip install [^`\n]*\bkscope(\[|['\"`\s]|$)")
    commands = {path.name: found[0] for path in texts if (found := offered.search(path.read_text()))}
    assert {name: command for name, command in commands.items() if "in a checkout" not in command} == {}
