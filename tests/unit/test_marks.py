"""Marks round-trip through a comment line that every assembler accepts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscope.errors import UsageError
from kscope.marks.grammar import ACTS, HOWS, PACKED_STRATEGIES, PREFIX, TYPES, Mark, parse, quote, unquote
from kscope.marks.names import MAX_NAME_BYTES, check_name
from kscope.marks.strategies import TargetWarp, parse_strategy

NASTY = st.sampled_from(
    ["\n", "\r\n", '"', "'", "{", "}", "$", "$0", "%r1", "//", "/*", "\\", "\t", " ", "~", "\0", ";"]
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40) | st.lists(
    NASTY, min_size=1, max_size=8
).map("".join)
MARKS = st.builds(
    Mark,
    act=st.sampled_from(["enter", "exit", "instant", "counter", "pin", "kernel"]),
    name=NAMES,
    type=st.sampled_from([None, "i32", "u32", "f32"]),
    strategy=st.sampled_from([None, "lane0-warp0", "elected", "all", "warps:0,31"]),
    how=st.sampled_from(["with", "call"]),
    operand=st.sampled_from([None, "%r12", "$1", "0xFFFFFFF9", "-7", "%f3"]),
)


@given(NAMES)
def test_any_name_comes_back_from_its_quoted_form(name: str) -> None:
    assert unquote(quote(name)) == name


@given(NAMES)
def test_quoted_names_contain_only_assembler_safe_characters(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_.\-~]+", quote(name))


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_names_never_have_one_quoted_form(one: str, other: str) -> None:
    try:
        same = quote(one) == quote(other)
    except UnicodeEncodeError:  # lone surrogates never reach quote(): check_name() refuses them
        return
    assert same == (one == other)


@given(MARKS)
def test_a_mark_comes_back_from_its_comment(mark: Mark) -> None:
    assert parse(mark.comment()) == mark
    assert parse("\t" + mark.comment() + "  ") == mark


@given(MARKS)
def test_a_comment_is_one_line(mark: Mark) -> None:
    assert len(mark.comment().splitlines()) == 1
    assert mark.comment().startswith(PREFIX)


def packed(mark: Mark) -> str:
    """The mark in numbers, as a C++ compiler prints them: signed, the name's last word padded with zeros."""
    raw = mark.name.encode()
    words = [int.from_bytes(raw[at : at + 8], "little", signed=len(raw) - at >= 8) for at in range(0, len(raw), 8)]
    strategy = parse_strategy(mark.strategy) if mark.strategy else None
    number = strategy.mask << 2 if isinstance(strategy, TargetWarp) else PACKED_STRATEGIES.index(mark.strategy)
    numbers = ACTS.index(mark.act), TYPES.index(mark.type), HOWS.index(mark.how), number
    tail = f" {mark.operand}" if mark.operand is not None else ""
    return f"{PREFIX}packed {' '.join(map(str, numbers))} {'.'.join(map(str, words))}{tail}"


@given(MARKS.filter(lambda mark: not mark.name.endswith("\0")))
def test_a_mark_comes_back_from_its_numbers(mark: Mark) -> None:
    assert parse(packed(mark)) == mark


@pytest.mark.parametrize(
    "line", ["//kscope packed 9 0 0 0 97", "//kscope packed 0 9 0 0 97", "//kscope packed 0 0 0 0 255"]
)
def test_invalid_mark_numbers_are_refused(line: str) -> None:
    with pytest.raises(UsageError, match="not a kscope mark"):
        parse(line)


@pytest.mark.parametrize("line", ["", "ret;", "// a comment", "//kscopes enter a - - with"])
def test_other_comments_are_not_marks(line: str) -> None:
    assert parse(line) is None


@pytest.mark.parametrize(
    "line",
    ["//kscope leave a - - with", "//kscope enter a", "//kscope enter a i16 - with", "//kscope enter a - - goto"],
)
def test_a_garbled_mark_is_refused_with_its_text(line: str) -> None:
    with pytest.raises(UsageError, match=re.escape(line)):
        parse(line)


@pytest.mark.parametrize("name", [None, 7, b"load", ["a"], 1.5])
def test_non_string_names_are_refused(name: object) -> None:
    with pytest.raises(UsageError, match="must be a string"):
        check_name(name)


def test_a_name_may_be_wrapped_as_a_compile_time_constant() -> None:
    class Constexpr:
        value = "load"

    assert check_name(Constexpr()) == "load"


@pytest.mark.parametrize("name", ["", "x" * (MAX_NAME_BYTES + 1), "ä" * (MAX_NAME_BYTES // 2 + 1)])
def test_empty_and_overlong_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"1 to {MAX_NAME_BYTES} bytes"):
        check_name(name)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(UsageError, match="not valid Unicode"):
        check_name("load\ud800")
