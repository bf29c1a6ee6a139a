"""KSCOPE_REGION_IF and its like, and KSCOPE_TRACK: the same records in both modes of the header."""

from __future__ import annotations

import pytest
from nvcc import HEADER, IN_PLACE, MARKS, PLAIN, compiled, kernel, needs_nvcc, recorded, refused

from kscope.errors import UnsupportedError
from kscope.instrument.recording import Recording
from kscope.lowering import plan
from kscope.marks.names import split, work_of
from kscope.marks.strategies import Elected
from kscope_cuda.binary_metadata import describe
from kscope_cuda.nvcc_flags import flags

pytestmark = needs_nvcc

ASKS = r"""
  for (int k = 0; k < 6; k++) {
    KSCOPE_REGION_IF("even" KSCOPE_TRACK("loads"), k % 2 == n);
    out[k] = k;
    {
      KSCOPE_REGION_V_IF("late", k, k > 3 + n);
      out[k] = k + 1;
      n += k == 100;
    }
    KSCOPE_INSTANT_IF("third", k == 3 + n);
    KSCOPE_INSTANT_V_IF("fourth", k, k == 4 + n, kscope::Elected);
    KSCOPE_COUNTER_IF("fifth" KSCOPE_TRACK("queue"), k, k == 5 + n);
  }
"""
ONCE = """
extern "C" __global__ void once(int* out, int n) {
  KSCOPE_KERNEL();
  int on = n;
  {
    KSCOPE_REGION_IF("a", on > 0);
    on = 0; out[0] = on;
  }
}
"""
SOURCE = kernel(ASKS, options="kscope::Elected") + ONCE
EXPECTED = ["even", "even", "third", "late 4", "even", "fourth", "late 5", "fifth"]


def both(name: str, n: int = 0) -> list[tuple[str, str, int]]:
    """Records of one lane of a kernel in place, after a check that lowered marks record the same."""
    (here,) = recorded(compiled(SOURCE, IN_PLACE), n, name=name)
    marked = plan.lower(compiled(SOURCE, MARKS).decode(), Recording(records=256), frontend="test")
    assert recorded(marked.text.encode(), n, metas=(marked.meta,), name=name) == [here]
    return here


def spans(lane: list[tuple[str, str, int]]) -> list[str]:
    return [f"{name} {value}" if kind == "SPAN_VALUE" else name for name, kind, value in lane]


def test_both_modes_record_where_the_predicate_holds() -> None:
    lane = both("k")
    found = [split(name)[0] for name, _, _ in lane]
    assert sorted(found) == sorted(word.partition(" ")[0] for word in EXPECTED)
    assert [name for name in spans(lane) if name.startswith("late")] == ["late 4", "late 5"]
    assert {split(name)[1] for name, _, _ in lane} == {None, "loads", "queue"}


def test_a_predicate_is_evaluated_when_the_region_begins() -> None:
    assert spans(both("once", 3)) == ["a"]


@pytest.mark.parametrize("mode", [IN_PLACE, MARKS])
def test_a_known_false_predicate_emits_no_instructions(mode: str) -> None:
    before = r"""
template <bool DEBUG> __device__ void body(int* out, int n) {
  for (int k = 0; k < n; k++) {
    KSCOPE_REGION_IF("a", DEBUG);
    KSCOPE_REGION_V_IF("b", k, DEBUG);
    out[k] = k;
    KSCOPE_INSTANT_IF("c", DEBUG);
    KSCOPE_COUNTER_IF("d", k, DEBUG);
  }
}
"""
    made = compiled(kernel("  body<false>(out, n);", before=before), mode).decode()
    assert "//kscope packed 0" not in made
    assert "st.global.v4.b32 [ks_a" not in made  # where records go
    assert "//kscope" not in compiled(kernel("  body<false>(out, n);", before=before), PLAIN).decode()


def test_notes_carry_the_track() -> None:
    (module,) = describe(compiled(SOURCE, IN_PLACE))
    assert {split(region.name) for region in module.regions} == {
        ("even", "loads"), ("late", None), ("third", None), ("fourth", None), ("fifth", "queue"), ("a", None),
    }  # fmt: skip


@pytest.mark.parametrize("mode", [IN_PLACE, MARKS])
def test_marks_carry_their_work(mode: str) -> None:
    body = '  KSCOPE_REGION_V("copy" KSCOPE_TRACK("t") KSCOPE_WORK("bytes=value,flops=8"), n); out[0] = n;'
    found = recorded(compiled(kernel(body), IN_PLACE), 3)
    [(name, *_)] = found[0]
    assert (*split(name), work_of(name)) == ("copy", "t", "bytes=value,flops=8")


@pytest.mark.parametrize("arch", ["75", "80", "90", "100"])
@pytest.mark.parametrize("mode", [IN_PLACE, "-DKSCOPE=1 -DKSCOPE_FILL=stop", MARKS, PLAIN])
def test_every_state_assembles(mode: str, arch: str) -> None:
    assert compiled(kernel(ASKS, options="kscope::Elected"), *mode.split(), f"-arch=sm_{arch}", to="cubin")


def test_plain_code_evaluates_no_predicate() -> None:
    body = '  KSCOPE_REGION_IF("a", out[7]++ > 0); KSCOPE_COUNTER_IF("b", out[8]++, out[9]++); out[0] = n;'
    bare = HEADER + 'extern "C" __global__ void k(int* out, int n) {\n\n  ; ; out[0] = n;\n}\n'
    assert compiled(kernel(body), PLAIN) == compiled(bare, PLAIN)


LONELY = r"""
  if (threadIdx.x == 5) {
    KSCOPE_REGION("some", kscope::ElectedAnyLane);
    out[0] = n;
  }
"""


def test_lowered_marks_are_recorded_by_the_first_lane_that_gets_there() -> None:
    made = compiled(kernel(LONELY), MARKS).decode()
    marked = plan.lower(made, Recording(records=256), frontend="test")
    lanes = recorded(marked.text.encode(), 3, metas=(marked.meta,))
    assert [len(lane) for lane in lanes] == [0, 1]  # lane 0 has a slab from the entry on
    assert lanes[1][0][:2] == ("some", "SPAN")


def test_an_nvcc_build_refuses_the_strategy_by_name() -> None:
    assert "ElectedAnyLane needs kscope's own lowering" in refused(kernel(LONELY), IN_PLACE)
    with pytest.raises(UnsupportedError, match=r"Elected\(any_lane=True\) needs kscope's own lowering"):
        flags(strategy=Elected(any_lane=True))
