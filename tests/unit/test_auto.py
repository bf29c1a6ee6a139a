"""User input that selects code in unannotated kernels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kscope
from kscope import cli
from kscope.capture.model import ModuleMeta, Problem, RegionMeta
from kscope.cli.common import recording_flags as flags
from kscope.errors import UsageError
from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import DEFAULT, KINDS, Lines, Selection, name, unmatched, unmatched_in_kernel
from kscope.lowering import plan
from kscope.marks.grammar import Mark


def test_a_range_of_lines_is_read_as_it_is_written() -> None:
    assert Lines.of("load=attn.py:41-47") == Lines("load", "attn.py", 41, 47)
    assert Lines.of("one=a/b.py:7") == Lines("one", "a/b.py", 7, 7)
    assert Lines.of("q k=C:/x/a.cu:3-4") == Lines("q k", "C:/x/a.cu", 3, 4)
    assert Lines.of("a=b=c.py:1") == Lines("a", "b=c.py", 1, 1)


@given(
    st.from_regex(r"[A-Za-z_.\-]{1,9}", fullmatch=True),
    st.from_regex(r"([a-z]{1,5}/){0,2}[a-z]{1,5}\.(py|cu)", fullmatch=True),
    st.integers(1, 9999),
    st.integers(0, 99),
)
def test_line_selections_round_trip_through_text(region: str, file: str, first: int, more: int) -> None:
    lines = Lines(region, file, first, first + more)
    assert Lines.of(str(lines)) == lines


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "NAME=FILE:FIRST-LAST"),
        ("load", "NAME=FILE:FIRST-LAST"),
        ("attn.py:41-47", "NAME=FILE:FIRST-LAST"),
        ("=attn.py:41", "NAME=FILE:FIRST-LAST"),
        ("load=:41", "NAME=FILE:FIRST-LAST"),
        ("load=attn.py", "NAME=FILE:FIRST-LAST"),
        ("load=attn.py:", "'' is not a range of lines"),
        ("load=attn.py:x-y", "'x-y' is not a range of lines"),
        ("load=attn.py:4-", "'4-' is not a range of lines"),
        ("load=attn.py:-4", "'-4' is not a range of lines"),
        ("load=attn.py:4-5-6", "'4-5-6' is not a range of lines"),
        ("load=attn.py:٤", "is not a range of lines"),
        ("load=attn.py:9-5", "the first comes before the last"),
        ("load=attn.py:0-5", "count from 1"),
        ("x" * 600 + "=a.py:1", "1 to 512 bytes"),
    ],
)
def test_invalid_line_ranges_are_refused_with_the_typed_text(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=r"mark|region") as refused:
        Lines.of(text)
    assert reason in str(refused.value)


def test_a_file_is_matched_by_whole_parts_of_its_path() -> None:
    assert Lines.of("a=attn.py:4").covers("/home/me/models/attn.py", 4)
    assert Lines.of("a=models/attn.py:4").covers("/home/me/models/attn.py", 4)
    assert Lines.of("a=./attn.py:4").covers("/home/me/models/attn.py", 4)
    assert Lines.of("a=/x/attn.py:4").covers("/x/attn.py", 4)
    assert not Lines.of("a=attn.py:4").covers("/home/me/flash_attn.py", 4)
    assert not Lines.of("a=other/attn.py:4").covers("/home/me/models/attn.py", 4)
    assert not Lines.of("a=/x/attn.py:4").covers("/y/x/attn.py", 4)
    assert not Lines.of("a=attn.py:4-6").covers("attn.py", 7)


def test_kinds_are_accepted_in_any_order_and_number() -> None:
    assert Selection.of("loops, WGMMA,wait,wait") == Selection(("wait", "wgmma", "loop"))
    assert Selection.of(["barriers"]) == Selection(("barrier",))
    assert Selection.of(True) == Selection(DEFAULT)
    assert Selection.of(None, None, ("attn_*",)) is None
    assert Selection.of(False, kernels=("attn_*",)) == Selection() == Recording().selection
    assert set(DEFAULT) <= set(KINDS)


def test_an_unknown_kind_is_refused_with_those_that_are_known() -> None:
    for auto in ("wiat", "", "load,", 7, [7]):
        with pytest.raises(UsageError, match="is not a kind of operation; expected wait"):
            Selection.of(auto)  # type: ignore[arg-type]  # what is refused
    with pytest.raises(UsageError, match="expected NAME=FILE"):
        Selection.of(mark=7)  # type: ignore[arg-type]  # what is refused
    with pytest.raises(UsageError, match="is not a kind of operation"):
        kscope.profile(auto="wiat")
    with pytest.raises(UsageError, match="is not a range of lines"):
        kscope.enable(mark="load=a.py:x")


def test_regions_come_as_one_several_or_by_name() -> None:
    lines = (Lines("load", "a.py", 4, 5), Lines("dot", "a.py", 7, 7))
    for regions in (["load=a.py:4-5", "dot=a.py:7"], {"load": "a.py:4-5", "dot": "a.py:7"}):
        assert Selection.of(mark=regions) == Selection(lines=lines)
    assert Selection.of(mark="dot=a.py:7") == Selection(lines=lines[1:])


def test_kernels_are_selected_by_pattern() -> None:
    selection = Selection.of("wait", None, ("attn_*", "mm"))
    assert selection is not None
    assert selection.of_kernel("attn_fwd") is selection
    assert not selection.of_kernel("softmax")
    assert Selection(("wait",)).of_kernel("softmax")


def test_an_operation_has_the_narrowest_kind_that_is_marked() -> None:
    assert Selection(("wait", "async_wait")).kind(("async_wait", "wait")) == "async_wait"
    assert Selection(("wait",)).kind(("async_wait", "wait")) == "wait"
    assert Selection(("load",)).kind(("async_wait", "wait")) is None
    assert name("wait", "/x/attn.py", 41) == "wait attn.py:41"


def test_every_selection_has_its_own_cache_key() -> None:
    selections = [
        Selection(),
        Selection(("wait",)),
        Selection(("wait", "load")),
        Selection(("wait",), kernels=("a",)),
        Selection(lines=(Lines("load", "a.py", 4, 5),)),
        Selection(lines=(Lines("load", "a.py", 4, 6),)),
        Selection(lines=(Lines("lode", "a.py", 4, 5),)),
    ]
    tags = [Recording(selection=selection).tag() for selection in selections]
    assert len(set(tags)) == len(tags)
    assert Recording(selection=Selection(("wait",))).tag() == tags[1]


def test_selected_lines_without_operations_are_a_problem() -> None:
    selection = Selection(lines=(Lines("load", "a.py", 4, 5), Lines("dot", "a.py", 7, 7)), kernels=("mm*",))
    module = ModuleMeta("triton", (), (RegionMeta("load", origin="lines"), RegionMeta("dot")))
    (problem,) = unmatched(selection, [module])
    assert problem.region == "dot", "the user's own region of that name is not what was selected"
    assert "region dot=a.py:7: no kernel whose name matches mm* that ran has an operation" in problem.text


def test_kinds_that_no_kernel_has_are_a_problem() -> None:
    selection = Selection(("wait", "dot"), kernels=("mm*",))
    own = RegionMeta("wait"), RegionMeta("dot"), RegionMeta("load a.py:4", origin="auto")
    for regions in ((), own):
        (problem,) = unmatched(selection, [ModuleMeta("triton", (), regions)])
        assert "auto=: no kernel whose name matches mm* that ran has an operation of a kind wait, dot" in problem.text
    for region in ("wait a.py:4", "dot"):
        assert not unmatched(selection, [ModuleMeta("triton", (), (own[2], RegionMeta(region, origin="auto")))])


@pytest.mark.parametrize(
    ("kinds", "texts"),
    [
        ("wait,dot", ["kernel mm: auto= marked dot, but found no operation of kind wait"]),
        ("wait,load,dot", ["kernel mm: auto= marked dot, but found no operation of kind wait, load"]),
        ("dot", []),
        ("wait", []),
        (True, []),
    ],
)
def test_kinds_without_operations_in_a_marked_kernel_are_reported(kinds: str | bool, texts: list[str]) -> None:
    selection = Selection.of(kinds)
    assert selection is not None
    own = [Mark("enter", "own"), Mark("exit", "own")]
    dot = [Mark("enter", "dot a.py:7", how="auto"), Mark("exit", "dot a.py:7", how="auto")]
    marks = "".join(f"{mark.comment()}\n" for mark in (own + dot if "dot" in selection.kinds else own))
    text = f".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry mm()\n{{\n{marks}ret;\n}}\n"
    lowered = plan.lower(text, Recording(selection=selection), frontend="triton")
    assert [problem.text for problem in lowered.meta.problems] == texts
    assert not lowered.problems, "compilers do not warn of it"


def test_narrow_kinds_belong_to_their_wider_kinds() -> None:
    selection = Selection(("wait", "wgmma", "mma", "dot"))
    (problem,) = unmatched_in_kernel(selection, "mm", ["wgmma a.py:7", "wait a.py:8"], ())
    assert problem.text == "kernel mm: auto= marked wait, wgmma, but found no operation of kind mma"
    removed = Problem("removed", "kernel mm: the compiler removed every mark of mma a.py:9")
    assert not unmatched_in_kernel(selection, "mm", ["wgmma a.py:7", "wait a.py:8"], [removed])


def test_code_that_was_matched_and_skipped_is_not_reported_as_unmatched() -> None:
    skipped = Problem("skipped", "", region="load"), Problem("pairing", "", region="wait a.py:9")
    module = ModuleMeta("cute", (), (), problems=skipped)
    assert not unmatched(Selection(("wait",), (Lines("load", "a.py", 4, 5),)), [module])


def test_command_line_flags_give_the_same_selection() -> None:
    def typed(*words: str) -> dict[str, object]:
        return flags.profile_arguments(cli.parser().parse_args(["run", *words, "script.py", "--auto"]))

    assert typed() == {}
    assert typed("--auto") == {"auto": True}
    assert typed("--auto", "--kinds", "wait,loops") == typed("--kinds", "wait,loops") == {"auto": "wait,loops"}
    assert typed("--mark", "a=x.py:1", "--mark", "b=x.py:2") == {"mark": ["a=x.py:1", "b=x.py:2"]}
