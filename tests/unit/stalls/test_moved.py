"""Findings about regions in machine code alone: pure, moved in, moved out, empty; and kscope's own instructions."""

from __future__ import annotations

import math

from kscope.capture.samples import CodeRegion, SampledFunction
from kscope.machine_code.moved_instructions import PlacedRegion, findings, placed_regions

FILE = "/k.py"
LINES = {"load": (10, 12), "math": (13, 15)}
"""Each `with` and its body."""
Code = tuple[str, int, str]
"""An instruction, its line (0 for none), and the region that is open; empty for none."""
PURE: tuple[Code, ...] = (
    ("IMAD R1, R2, R3, R4", 11, ""),
    ("CS2R R2, SR_CLOCKLO", 10, ""),
    ("LDG.E R4, [R2.64]", 11, "load"),
    ("LDG.E R5, [R2.64]", 12, "load"),
    ("CS2R R2, SR_CLOCKLO", 10, "load"),
    ("CS2R R6, SR_CLOCKLO", 13, ""),
    ("FFMA R4, R4, R5, R6", 14, "math"),
    ("FADD R4, R4, R5", 15, "math"),
    ("CS2R R6, SR_CLOCKLO", 13, "math"),
    ("STG.E [R2.64], R4", 20, ""),
)


def function(
    *code: Code, lines: dict[str, tuple[int, int]] = LINES, unresolved: tuple[str, ...] = ()
) -> SampledFunction:
    places = tuple({((FILE, line),): None for _, line, _ in code if line})
    names = tuple(lines)
    return SampledFunction(
        "k",
        at=tuple(16 * n for n in range(len(code))),
        text=tuple(text for text, _, _ in code),
        place=tuple(places.index(((FILE, line),)) if line else -1 for _, line, _ in code),
        places=places,
        opened=tuple(names.index(region) + 1 if region else 0 for _, _, region in code),
        stacks=((), *((n,) for n in range(len(names)))),
        regions=tuple(CodeRegion(name, FILE, *span) for name, span in lines.items()),
        unresolved=unresolved,
    )


def regions(*code: Code, **more: object) -> dict[str, PlacedRegion]:
    return {one.region: one for one in placed_regions(function(*code, **more))}  # type: ignore[arg-type]  # passed on


def moved(at: int, region: str, code: tuple[Code, ...] = PURE) -> tuple[Code, ...]:
    """The code with an instruction in another region."""
    return (*code[:at], (*code[at][:2], region), *code[at + 1 :])


def test_regions_with_their_own_instructions_are_pure_and_addresses_do_not_count() -> None:
    found = regions(*PURE)
    assert {one.verdict for one in found.values()} == {"pure"}
    assert (found["load"].inside, found["load"].moved_in, found["load"].moved_out) == (2, 0, 0)
    assert list(findings(found.values())) == []


def test_arithmetic_that_drifted_into_another_region_is_named_in_both() -> None:
    found = regions(*moved(6, "load"))
    assert (found["load"].verdict, found["math"].verdict) == ("moved", "moved")
    assert found["load"].foreign == found["math"].missing == ("0x0060 FFMA R4, R4, R5, R6 (k.py:14)",)
    assert (found["load"].moved_in, found["math"].moved_out) == (1 / 3, 1 / 2)
    inside, outside = findings(found.values())
    assert inside.startswith("region load: 33% of its 3 working instructions are of other lines: 0x0060 FFMA")
    assert outside.startswith("region math: 50% of its lines' working instructions are outside of it: 0x0060 FFMA")


def test_a_region_whose_work_left_is_empty() -> None:
    found = regions(*moved(2, "", moved(3, "")))
    assert (found["load"].verdict, found["load"].moved_out) == ("empty", 1)
    assert list(findings([found["load"]])) == ["region load: no instruction is between its clock readings"]


def test_without_lines_or_readings_nothing_is_known() -> None:
    found = regions(*moved(6, "load"), lines={"load": (0, 0), "math": (13, 15)}, unresolved=("math",))
    assert (found["load"].verdict, found["math"].verdict) == ("unknown", "unknown")
    assert math.isnan(found["math"].moved_in)


def test_what_the_plain_code_s_line_does_not_have_is_kscope_s() -> None:
    claim: Code = ("ATOMG.E.ADD PT, R1, [R2.64], R3", 11, "math")
    more = (*PURE[:7], claim, *PURE[7:])
    assert placed_regions(function(*more))[0].moved_out > 0
    plain = function(*(one for one in PURE if "CLOCK" not in one[0]))
    assert {one.verdict for one in placed_regions(function(*more), plain)} == {"pure"}
    assert placed_regions(function(*moved(6, "load", more)), plain)[0].verdict == "moved"
