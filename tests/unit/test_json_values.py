"""Values that Python holds and files do not: texts become UTF-8, numbers 64 bits, and everything becomes JSON."""

from __future__ import annotations

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st

from kscope.capture.layout import name_hash
from kscope.util.json_values import clean, dump_json, single_line


@given(st.text(st.characters()))
def test_clean_text_is_valid_utf8_and_keeps_valid_text(text: str) -> None:
    good = not any("\ud800" <= letter <= "\udfff" for letter in text)
    assert (clean(text).encode().decode() == text) == good and len(clean(text)) == len(text)


def test_control_characters_become_spaces_in_single_lines() -> None:
    assert single_line("a\n\x1b\udcffb") == "a  ?b"


@given(st.text(st.characters()))
def test_names_hash_like_their_file_encoding(name: str) -> None:
    assert name_hash(name) == name_hash(clean(name))


def test_arrays_and_numbers_of_numpy_are_json() -> None:
    given = {"a": np.arange(3), "b": np.float64(0.5), np.int64(7): np.array(["x", None], object), "c": (1 + 2j, np.nan)}
    assert orjson.loads(dump_json(given)) == {"a": [0, 1, 2], "b": 0.5, "7": "['x' None]", "c": ["(1+2j)", None]}
    assert dump_json({"a": [1]}, indent=True) == b'{\n  "a": [\n    1\n  ]\n}'
