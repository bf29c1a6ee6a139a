"""Computed parts of the docs are up to date: the layout's pictures, the README's summary."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import kscope
from kscope.capture import layout, wire

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
    for name, fields in {
        "record": layout.RECORD,
        "header": layout.HEADER,
        "head": wire.HEAD,
        "launch": wire.LAUNCH,
        "gate": wire.GATE,
        "stripe": wire.STRIPE,
    }.items():
        drawn = pictures.pictures()[name]
        assert all(f" {field.replace('_end', '')} " in drawn for field in fields.names)


def test_the_bit_fields_of_a_word_fill_it(pictures: ModuleType) -> None:
    for parts in (pictures._PLACE, pictures._ID, pictures._WHO, pictures._HEAD_BLOCK, pictures._SEAL):
        assert sum(size for _, _, size in parts) == 32
        assert [low for _, low, _ in parts] == [sum(size for _, _, size in parts[:i]) for i in range(len(parts))]


COMPUTED = {
    "kscope/capture/counted_problems.py": None,  # the kinds of note(), see below
    "kscope/instrument/selection/auto.py": r'UNMATCHED = "(\w+)"',
    "kscope/lowering/register_usage.py": r'kind = "(\w+)" if .* else "(\w+)"',
    "kscope/readers/columns.py": None,  # the kinds of notes.add() and notes.count(), see below
    "kscope/capture/metadata.py": None,  # of a module's metadata, where a frontend put it
}
"""Files that create problems of a kind that is no constant, and where the kind is."""


def kinds_in_the_code() -> set[str]:
    """Every kind that the code can emit."""
    kinds: set[str] = set()
    for folder in ("kscope", "runtime", "frontends"):
        for path in (ROOT / folder).rglob("*.py"):
            source, name = path.read_text(), str(path.relative_to(ROOT))
            kinds.update(re.findall(r'(?:notes\.(?:count|add)\(|\bnote\([\w.]+,)\s*"(\w+)"', source))
            nodes = ast.walk(ast.parse(source)) if "Problem" in source else ()
            calls = [node for node in nodes if isinstance(node, ast.Call)]
            named = [(call, {vars(call.func).get("id"), vars(call.func).get("attr")}) for call in calls]
            first = [call.args[0] for call, names in named if "Problem" in names]
            constant = [kind.value for kind in first if isinstance(kind, ast.Constant)]
            kinds.update(map(str, constant))
            assert len(constant) == len(first) or name in COMPUTED, f"{name}: a kind that this test cannot find"
            if pattern := COMPUTED.get(name):
                found = {kind for match in re.finditer(pattern, source) for kind in match.groups()}
                assert found, name
                kinds |= found
    return kinds


def test_every_kind_of_problem_is_on_one_page() -> None:
    pages = {path.name: path.read_text() for path in (DOCS / "problems").glob("*.md") if path.stem != "README"}
    rows = [line.split("|")[1] for page in pages.values() for line in page.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(kinds_in_the_code())
    index = (DOCS / "problems" / "README.md").read_text()
    assert all(f"({name})" in index for name in pages)


def test_nothing_is_installed_by_a_name_that_no_index_has() -> None:
    """kscope is installed from a checkout: no page may recommend `pip install kscope`, with an extra or without."""
    texts = [*DOCS.glob("*.md"), ROOT / "README.md"]
    texts += [
        path for folder in ("kscope", "runtime", "frontends", "examples") for path in (ROOT / folder).rglob("*.py")
    ]
    offered = re.compile(r"pip install [^`\n]*\bkscope(\[|['\"`\s]|$)")
    commands = {path.name: found[0] for path in texts if (found := offered.search(path.read_text()))}
    assert {name: command for name, command in commands.items() if "in a checkout" not in command} == {}


def test_the_api_page_has_every_public_name() -> None:
    page = (DOCS / "api.md").read_text()
    shown = {name.split(".")[-1] for name in re.findall(r"^::: ([\w.]+)$", page, re.M)}
    shown |= {name for members in re.findall(r"members: \[(.*?)\]", page) for name in members.split(", ")}
    errors = {name for name in kscope.__all__ if name.endswith("Error")}
    assert set(kscope.__all__) - {"__version__"} - errors <= shown
    assert "::: kscope.errors" in page


DESIGN_WORDS = re.compile(r"\b(slabs?|stripes?|claim(?:s|ed|ing)?|drain(?:s|ed|ing)?|anchors?|teach(?:es)?)\b", re.I)


def test_pages_for_users_do_without_the_words_of_the_design() -> None:
    """A name in code, such as the kind `drain`, is what the reader sees on the screen; prose says it otherwise."""
    pages = [page for page in DOCS.rglob("*.md") if page.parent.name != "design"] + [ROOT / "README.md"]
    assert len(pages) > 40
    found = {}
    for page in pages:
        prose = re.sub(r"```.*?```|`[^`]*`|^    .*?$", "", page.read_text(), flags=re.S | re.M)
        if words := set(DESIGN_WORDS.findall(prose)):
            found[page.name] = words
    assert found == {}


def test_pages_say_warp_where_a_warp_is_meant() -> None:
    """A lane is one of AllThreads, or of the hardware, which the pages about marks explain."""
    pages = [*DOCS.glob("*.md"), *(DOCS / "howto").glob("*.md"), *(DOCS / "problems").glob("*.md"), ROOT / "README.md"]
    about = {"regions.md", "simulator.md", "api.md", "numba.md", "cuda.md", "triton.md", "cupy.md", "cute.md"}
    lines = [line for page in pages if page.name not in about for line in page.read_text().splitlines()]
    assert len(lines) > 500
    meant = re.compile(r"AllThreads|lane 0|lane0|lane_id|`lane`")
    assert [line for line in lines if re.search(r"\blanes?\b", line) and not meant.search(line)] == []


def test_the_concepts_page_needs_at_most_20_terms() -> None:
    """A term is a word that the page sets in bold, or in italics where it is first used."""
    page = (DOCS / "concepts.md").read_text().partition("\n\n")[2]
    terms = {term.lower().rstrip(".") for term in re.findall(r"(?<![*\w])\*{1,2}([^*\n]+)\*{1,2}", page)}
    assert {"mark", "region", "warp", "capture", "trace"} <= terms
    assert len(terms) <= 20, sorted(terms)


def test_every_page_is_in_the_sites_navigation_and_howtos_fit_a_screen() -> None:
    site = (ROOT / "mkdocs.yml").read_text()
    pages = [str(page.relative_to(ROOT)) for page in DOCS.rglob("*.md")]
    assert [page for page in pages if page not in site] == []
    howtos = list((DOCS / "howto").glob("*.md"))
    assert len(howtos) == 18
    assert {page.name: lines for page in howtos if (lines := len(page.read_text().splitlines())) > 60} == {}
