"""Records of kernels with kscope.cuh: regions end where C++ ends scopes, in both modes, run in the interpreter."""

from __future__ import annotations

from functools import cache

import pytest
from nvcc import HEADER, IN_PLACE, MARKS, compiled, kernel, launched, needs_nvcc, recorded

from kscope.capture import wire
from kscope.capture.model import ModuleMeta
from kscope.instrument.recording import Recording
from kscope.lowering import plan
from kscope_cuda.binary_metadata import describe

pytestmark = needs_nvcc

KERNELS = {
    "exits": r"""
  KSCOPE_REGION("all");
  for (int k = 0; k < 8; k++) {
    KSCOPE_REGION_V("turn", k);
    if (k == n) break;
    if (k % 2) continue;
    if (k == 100 + n) return;
    KSCOPE_REGION("even");
    out[k] = k;
    if (k + 10 == n) return;
  }
  KSCOPE_INSTANT("after");
""",
    "inlined": r"""
  auto inner = [=](int i) {
    KSCOPE_REGION("lambda");
    out[i] = square(i);
  };
  Tile<2>::each(inner);
  Tile<1>::each([&](int i) { KSCOPE_INSTANT_V("generic", i); });
""",
    "nested": "  down<3>(out);",
    "two": '  KSCOPE_REGION("a");\n  KSCOPE_REGION("b");\n  out[0] = n;',
    "values": r"""
  enum Phase { LOAD = 3 };
  enum class Role : unsigned { CONSUMER = 7 };
  KSCOPE_INSTANT_V("int", -5);
  KSCOPE_INSTANT_V("unsigned", 4000000000u);
  KSCOPE_INSTANT_V("float", -1.5f);
  KSCOPE_INSTANT_V("short", static_cast<short>(n - 2));
  KSCOPE_INSTANT_V("byte", static_cast<unsigned char>(200));
  KSCOPE_INSTANT_V("enum", LOAD);
  KSCOPE_INSTANT_V("scoped", Role::CONSUMER);
""",
    "overridden": '  helper(out);\n  KSCOPE_REGION("mine", kscope::Elected);\n  out[1] = n;',
    "across": r"""
  KSCOPE_ENTER_V("load", n);
  for (int k = 0; k < 3; k++) {
    KSCOPE_EXIT("load");
    out[k] = k;
    KSCOPE_ENTER_V("load", k);
  }
  KSCOPE_EXIT("load");
""",
    "threads": '  KSCOPE_REGION("r");\n  if (threadIdx.x < 3) {\n    KSCOPE_INSTANT("i");\n  }',
    "without": "  out[0] = n;",
    "silent": '  KSCOPE_REGION("r");\n  out[0] = n;',
}
BEFORE = {
    "inlined": r"""
template <int N> struct Tile {
  template <class F> __device__ static void each(F f) {
    KSCOPE_REGION("each");
    for (int i = 0; i < N; i++) f(i);
  }
};
__device__ __forceinline__ int square(int x) {
  KSCOPE_REGION_V("square", x);
  return x * x;
}
""",
    "nested": r"""
template <int D> __device__ void down(int* out) {
  KSCOPE_REGION("level");
  out[D] = D;
  down<D - 1>(out);
}
template <> __device__ void down<0>(int* out) { KSCOPE_REGION("bottom"); out[0] = 0; }
""",
    "overridden": '__device__ void helper(int* out) {\n  KSCOPE_REGION("theirs");\n  out[0] = 1;\n}',
}
OPTIONS = {
    "overridden": "kscope::Lane0Warp0, kscope::Elected",
    "threads": "kscope::AllThreads",
    "silent": "kscope::TargetWarp<7>",
}


@cache
def text(mode: str) -> bytes:
    """The PTX of all kernels: nvcc takes about as long for one."""
    made = [kernel(body, before=BEFORE.get(name, ""), options=OPTIONS.get(name, "")).removeprefix(HEADER)
            .replace("void k(", f"void {name}(") for name, body in KERNELS.items()]  # fmt: skip
    return compiled(HEADER + "".join(made), mode)


@cache
def lowered() -> tuple[bytes, ModuleMeta]:
    """The kernels with lowered marks, and their metadata."""
    marked = plan.lower(text(MARKS).decode(), Recording(records=256), frontend="test")
    assert marked.problems == ()
    return marked.text.encode(), marked.meta


def both(name: str, n: int = 0, threads: int = 32) -> list[list[tuple[str, str, int]]]:
    """Records of a kernel in place, after a check that lowered marks record the same."""
    here = recorded(text(IN_PLACE), n, threads=threads, name=name)
    marked, meta = lowered()
    assert recorded(marked, n, threads=threads, metas=(meta,), name=name) == here
    return here


def spans(lane: list[tuple[str, str, int]]) -> list[str]:
    return [f"{name} {value}" if kind == "SPAN_VALUE" else name for name, kind, value in lane]


def turns(count: int) -> list[str]:
    """The records of this many iterations of `exits`."""
    return [word for k in range(count) for word in ("even", f"turn {k}")[k % 2 :]]


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (2, [*turns(2), "turn 2", "after", "all"]),  # break
        (99, [*turns(8), "after", "all"]),  # continue alone
        (12, [*turns(3), "all"]),  # return
    ],
)
def test_regions_end_at_break_continue_and_return(n: int, expected: list[str]) -> None:
    (lane,) = both("exits", n)
    assert spans(lane) == expected


def test_templates_lambdas_and_inlined_functions_share_the_kernels_slab() -> None:
    (lane,) = both("inlined")
    assert spans(lane)[:5] == ["square 0", "lambda", "square 1", "lambda", "each"]
    assert [name for name, _, _ in lane[5:]] == ["generic", "each"]


def test_nested_regions_of_one_name_are_separate() -> None:
    (lane,) = both("nested")
    assert spans(lane) == ["bottom", "level", "level", "level"]


def test_two_line_regions_in_one_scope_end_together() -> None:
    (lane,) = both("two")
    assert spans(lane) == ["b", "a"]


def test_values_are_unchanged() -> None:
    (lane,) = both("values")
    minus, short = (-5) & 0xFFFFFFFF, (-2) & 0xFFFFFFFF
    assert [value for _, _, value in lane] == [minus, 4_000_000_000, 0xBFC00000, short, 200, 3, 7]


def test_the_kernels_strategy_applies_to_its_functions_unless_overridden() -> None:
    lanes = both("overridden", threads=96)
    assert [spans(lane) for lane in lanes] == [["theirs", "mine"], ["mine"], ["mine"]]


def test_explicit_marks_pair_across_scopes() -> None:
    assert both("across", 9)[0] == [("load", "SPAN_VALUE", value) for value in (9, 0, 1, 2)]


def test_every_thread_counts_for_itself() -> None:
    assert [len(lane) for lane in both("threads")] == [2, 2, 2, *[1] * 29]


def test_a_kernel_without_regions_has_an_empty_slab() -> None:
    assert recorded(text(IN_PLACE), name="without") == [[]]


@pytest.mark.parametrize("mode", [IN_PLACE, MARKS])
def test_a_pinned_value_is_computed_before_the_region_ends(mode: str) -> None:
    body = '  float x = n;\n  {\n    KSCOPE_REGION("r");\n    x = x * x + 1;\n    KSCOPE_PIN(x);\n  }\n  out[0] = x;'
    made = compiled(kernel(body), mode).decode()
    if mode == MARKS:
        made = plan.lower(made, Recording(), frontend="test").text
    assert made.index("fma.rn.f32") < made.index("@ks_never st.global.b32") < made.index("st.global.v4.b32")


def test_a_kernel_whose_warps_record_nothing_still_names_itself_in_the_launch_table() -> None:
    """After a fault, nothing else may name it: the host does not see its launches."""
    host = launched(text(IN_PLACE), name="silent")
    (entry,) = (entry for entry in host.table() if entry["layout"])
    assert host.slabs() == [] and entry["check"] == wire.launch_check(entry[None], host.epoch)[0]
    kernels = [kernel for meta in describe(text(IN_PLACE)) for kernel in meta.kernels]
    assert [kernel.id for kernel in kernels if kernel.name == "silent"] == [entry["kernel"]]
