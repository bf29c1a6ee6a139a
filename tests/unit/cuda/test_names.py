"""Names are found in every output of nvcc, and names that collide are refused with both."""

from __future__ import annotations

import struct
from contextlib import suppress
from importlib.util import find_spec
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvcc import IN_PLACE, PLAIN, compiled, kernel, needs_nvcc

from kscope.capture.layout import name_hash
from kscope.errors import FormatError, MissingError, UsageError
from kscope.machine_code import fatbin
from kscope_cuda import binary_metadata, binary_notes
from kscope_cuda.binary_metadata import describe

SOURCE = kernel(
    '  KSCOPE_REGION("load");\n  KSCOPE_REGION_V("tile ä", 1.5f);\n  KSCOPE_COUNTER("depth", n);\n  other<3>(out);',
    before='template <int N> __device__ void other(int* x) { KSCOPE_INSTANT("in a template"); }',
)
KERNELS = """
namespace ns {
template <class T, int N> __global__ void tiled(T* out) {
  KSCOPE_KERNEL(kscope::AllThreads);
  KSCOPE_REGION("tile");
  out[N] = N;
}
template __global__ void tiled<float, 2>(float*);
template __global__ void tiled<int, 3>(int*);
}
"""
TWO_HASHES = "tile 37537", "tile 61166"
TWO_SLOTS = "tile 7", "tile 166"


def names(data: bytes) -> list[tuple[str, str | None]]:
    return [(region.name, region.type) for meta in describe(data) for region in meta.regions]


EXPECTED = [("depth", "i32"), ("in a template", None), ("load", None), ("tile ä", "f32")]


@needs_nvcc
@pytest.mark.parametrize("to", ["ptx", "cubin", "fatbin", "so"])
def test_names_are_found_in_every_kind_of_object(to: str) -> None:
    assert names(compiled(SOURCE, IN_PLACE, to=to)) == EXPECTED


@needs_nvcc
@pytest.mark.parametrize(
    "arguments",
    [
        ["-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=sm_90"],
        ["-compress-mode=speed"],
        ["-compress-mode=none", "-gencode=arch=compute_80,code=compute_80"],
        ["-compress-mode=speed", "-gencode=arch=compute_80,code=compute_80"],
        ["-lineinfo", "-O1"],
        ["-rdc=true"],
    ],
    ids=" ".join,
)
def test_names_are_found_with_every_build_mode(arguments: list[str]) -> None:
    assert names(compiled(SOURCE, IN_PLACE, *arguments, to="so")) == EXPECTED


@needs_nvcc
@pytest.mark.parametrize(("to", "arguments"), [("so", ["-compress-mode=size"]), ("o", [])])
def test_names_are_found_in_code_that_is_packed_with_zstandard(to: str, arguments: list[str]) -> None:
    """Skips if it is not installed; the product's message names the package."""
    library = compiled(SOURCE + KERNELS, IN_PLACE, *arguments, to=to)
    if find_spec("zstandard"):
        assert ("load", None) in names(library)
    else:
        with pytest.raises(MissingError, match="pip install zstandard"):
            describe(library)


@needs_nvcc
def test_region_locations_are_those_of_their_macros() -> None:
    (meta,) = describe(compiled(SOURCE, IN_PLACE, to="cubin"))
    assert {region.name: region.where for region in meta.regions}["load"] == "unit.cu:5"


@needs_nvcc
def test_kernels_have_source_names_and_unique_ids() -> None:
    metas = describe(compiled(SOURCE + KERNELS, IN_PLACE, to="cubin"))
    kernels = {kernel.name: meta.strategy for meta in metas for kernel in meta.kernels}
    tiled = {"ns::tiled<T = float, int N = 2>": "all", "ns::tiled<T = int, int N = 3>": "all"}
    assert kernels == {"k": "elected", **tiled}
    assert len({kernel.id for meta in metas for kernel in meta.kernels}) == 3


@needs_nvcc
def test_plain_code_has_no_names() -> None:
    assert describe(compiled(SOURCE, PLAIN, to="so")) == ()


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("void k(int *, int)", "k"),
        ("void ns::k(T *) [with T = float]", "ns::k<T = float>"),
        ("void <unnamed>::k()", "<unnamed>::k"),
        ("void k(void (*)(int))", "k"),
        ("something else", "something else"),
    ],
)
def test_kernel_names_omit_the_parameter_list(spelled: str, name: str) -> None:
    assert binary_metadata.name(spelled) == name


@needs_nvcc
def test_two_names_with_one_hash_are_refused_with_both_and_where_they_are() -> None:
    one, other = TWO_HASHES
    assert name_hash(one) == name_hash(other)
    data = compiled(kernel(f'  KSCOPE_REGION("{one}");\n  KSCOPE_REGION("{other}");'), IN_PLACE, to="cubin")
    message = (
        rf"unit\.so: the names '{one}' \(unit\.cu:5\) and '{other}' \(unit\.cu:6\) have the same 28-bit hash: rename"
    )
    with pytest.raises(UsageError, match=message):
        describe(data, "unit.so")


@needs_nvcc
def test_two_names_of_explicit_enters_with_one_register_are_refused() -> None:
    one, other = TWO_SLOTS
    assert name_hash(one) % binary_notes.SLOTS == name_hash(other) % binary_notes.SLOTS
    marks = "\n".join(f'  KSCOPE_{act}("{name}");' for name, act in product(TWO_SLOTS, ("ENTER", "EXIT")))
    data = compiled(kernel(marks), IN_PLACE, to="cubin")
    with pytest.raises(UsageError, match=f"'{one}'.*'{other}'.*share one register of KSCOPE_ENTER: rename"):
        describe(data)
    assert len(names(compiled(kernel(marks.replace("ENTER", "INSTANT").replace("EXIT", "INSTANT")), IN_PLACE))) == 2


@needs_nvcc
def test_one_name_with_two_types_of_value_is_refused_with_both_places() -> None:
    data = compiled(kernel('  KSCOPE_COUNTER("x", 1);\n  KSCOPE_COUNTER("x", 1.5f);'), IN_PLACE, to="cubin")
    with pytest.raises(UsageError, match=r"'x' has a value of type i32 \(unit\.cu:5\) and of type f32 \(unit\.cu:6\)"):
        describe(data)


@needs_nvcc
def test_damaged_notes_are_ignored() -> None:
    data = bytearray(compiled(kernel('  KSCOPE_REGION("load");'), IN_PLACE, to="cubin"))
    at = data.index(b"load\0")
    data[at] ^= 1
    assert [note.text for note in binary_notes.find(bytes(data))] == ["void k(int *, int)"]


@given(st.binary(max_size=200), st.integers(0, 200))
def test_arbitrary_bytes_never_crash_the_reader(junk: bytes, cut: int) -> None:
    start = binary_notes.MAGIC.to_bytes(4, "little")
    assert list(binary_notes.find(junk[:cut] + start + junk[cut:])) == []
    container = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(junk)) + junk
    assert next(iter(fatbin.device_code(container, []))) == container


@given(st.binary(max_size=100), st.integers(0, 1000))
def test_packed_code_that_is_damaged_is_refused(body: bytes, size: int) -> None:
    entry = struct.pack("<HHIQIIQQQQQ", 2, 0x101, 64, len(body), len(body), 0, 0, 0, 0x2011, 0, size) + body
    container = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry
    with suppress(FormatError):
        found = list(fatbin.device_code(container, []))
        assert len(found) == 2
        assert len(found[1]) <= size


PARTS = st.lists(st.tuples(st.binary(max_size=300), st.integers(1, 40), st.integers(4, 300)), max_size=6)


@given(PARTS, st.binary(max_size=20))
def test_lz4_blocks_are_unpacked(parts: list[tuple[bytes, int, int]], last: bytes) -> None:
    """Against a packer that is as plain as the format: literals, then a match of `length` bytes `offset` back."""
    plain, packed = bytearray(), bytearray()
    for literals, offset, length in parts:
        plain += literals
        if not plain:
            continue
        offset = min(offset, len(plain))
        packed += _token(len(literals), length - 4) + _more(len(literals)) + literals
        packed += offset.to_bytes(2, "little") + _more(length - 4)
        for _ in range(length):
            plain.append(plain[-offset])
    plain += last
    packed += _token(len(last), 0) + _more(len(last)) + last
    assert fatbin._unlz4(bytes(packed), len(plain)) == plain


def _token(literals: int, length: int) -> bytes:
    return bytes([min(literals, 15) << 4 | min(length, 15)])


def _more(count: int) -> bytes:
    return b"" if count < 15 else b"\xff" * ((count - 15) // 255) + bytes([(count - 15) % 255])


@needs_nvcc
def test_instructions_do_not_reference_notes() -> None:
    """ptxas deletes such an instruction, and forgets with it that a loop is not to be unrolled."""
    body = '  #pragma unroll 1\n  for (int k = 0; k < n; k++) {\n    KSCOPE_REGION("r");\n    out[k] = k;\n  }'
    text = compiled(kernel(body), IN_PLACE).decode()
    assert '.pragma "nounroll"' in text
    assert not [line for line in text.splitlines() if "kscope_note" in line and not line.startswith(".global")]
