"""Module metadata round-trip through JSON; anything else is refused."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscope.capture import metadata
from kscope.capture.model import KernelMeta, ModuleMeta, Problem, RegionMeta, RoleMeta
from kscope.errors import FormatError

ROLES = RoleMeta("produce_tiles", (4, 5)), RoleMeta("consume_tiles", (0, 1, 2, 3))
ISSUE = RegionMeta("copy", None, "a.py:9", None, "source", "cp.async.bulk")
MODULE = ModuleMeta(
    "triton",
    (KernelMeta("matmul", (1 << 64) - 1, 8), KernelMeta("mit umlaut ä", 0, 2, ROLES, "_Z10mit_umlaut")),
    (RegionMeta("load", "i32", "a.py:7"), RegionMeta("dot"), RegionMeta("sum", "f32", None, 1), ISSUE),
    strategy="warps:0,4",
    problems=(Problem("pairing", "a mark was deleted", 3),),
)


def test_metadata_survives_its_json() -> None:
    assert metadata.from_json(metadata.to_json(MODULE)) == MODULE


def test_a_kernel_without_roles_has_its_symbol() -> None:
    module = ModuleMeta("cupy", (KernelMeta("f<int>", 1, 3, (), "_Z1fIiEvv"),), ())
    assert metadata.from_json(metadata.to_json(module)) == module


def test_metadata_of_a_file_whose_path_is_no_utf8_fits_into_a_symbol() -> None:
    module = ModuleMeta("triton", (KernelMeta("k", 1, 3),), (RegionMeta("load", None, "d\udcff/k.py:3"),))
    (region,) = metadata.from_json(metadata.to_json(module)).regions
    assert region == RegionMeta("load", None, "d?/k.py:3")


def test_metadata_end_at_the_nul_byte() -> None:
    assert metadata.from_json(metadata.to_json(MODULE) + b"\0\xff garbage") == MODULE


@pytest.mark.parametrize(
    ("field", "value", "expected_text"),
    [
        ("frontend", 3, "frontend"),
        ("clock", "sundial", "cycles, globaltimer"),
        ("fill", None, "ring, stop"),
        ("strategy", "everyone", "expected 'lane0-warp0', 'elected'"),
        ("kernels", [["k", -1, 8]], "from 0 to"),
        ("kernels", [["k", 1, 63]], "from 2 to 20"),
        ("kernels", [["k", 1.5, 3]], "kernel's id"),
        ("kernels", [["k", True, 3]], "kernel's id"),
        ("kernels", [["k"]], "a list of 3 or 4 or 5"),
        ("kernels", [["k", 1, 3, [], 5]], "kernel's symbol"),
        ("kernels", [["k", 1, 3, [["load", [32]]]]], "role's warp is 32, expected a number from 0 to 31"),
        ("kernels", [["k", 1, 3, [["load", 4]]]], "a name and a list of warps"),
        ("kernels", [["k", 1, 3, [["", [4]]]]], "a name and a list of warps"),
        ("kernels", [["k", 1, 3, [["load", [4]], ["mma", [4]]]]], "no warp twice"),
        ("regions", [["load", "i16", None]], "i32, u32, f32, i64, u64, f64"),
        ("regions", [["", None, None]], "empty"),
        ("regions", {"load": 1}, "a list"),
        ("problems", [["a", "b", "many"]], "count"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_expected(field: str, value: object, expected_text: str) -> None:
    data = metadata.to_dict(MODULE) | {field: value}
    with pytest.raises(FormatError, match=expected_text):
        metadata.from_dict(data)


@pytest.mark.parametrize("name", sorted(metadata.to_dict(MODULE)))
def test_a_missing_field_is_refused(name: str) -> None:
    data = {key: value for key, value in metadata.to_dict(MODULE).items() if key != name}
    with pytest.raises(FormatError, match="expected an object with"):
        metadata.from_dict(data)


@pytest.mark.parametrize("kernel", [-1, 2, "k", None])
def test_metadata_regions_of_unknown_kernels_are_refused(kernel: object) -> None:
    data = metadata.to_dict(MODULE) | {"regions": [["sum", "f32", None, kernel]]}
    with pytest.raises(FormatError, match="region's kernel"):
        metadata.from_dict(data)


@given(st.binary(max_size=200))
def test_invalid_metadata_bytes_raise_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        metadata.from_json(data)


@given(st.recursive(st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(), st.lists))
def test_arbitrary_field_values_are_read_or_refused(value: object) -> None:
    for name in metadata.to_dict(MODULE):
        data = orjson.dumps(metadata.to_dict(MODULE) | {name: value})
        try:
            metadata.from_json(data)
        except FormatError:
            continue


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ("block", "lane0-warp0"),
        ("warp", "elected"),
        ("warp:any", "elected-any"),
        ("lanes", "all"),
        ("warps:0,4", MODULE.strategy),
    ],
)
def test_the_strategies_of_earlier_captures_are_read(earlier: str, now: str) -> None:
    assert metadata.from_dict({**metadata.to_dict(MODULE), "strategy": earlier}).strategy == now
