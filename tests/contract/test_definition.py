"""The simulator's records of each program, counted by hand: the definition is checked, too."""

from __future__ import annotations

import pytest
from contract import frontend_sim
from contract.judge import judge
from contract.programs import BY_NAME, PROGRAMS
from contract.reader import Lane, read
from contract.verdict import definition


def recorded(name: str) -> list[Lane]:
    lanes = read(frontend_sim.run(BY_NAME[name]))
    assert judge(lanes, lanes) == []
    return [lane for lane in lanes if lane.count]


def regions(lane: Lane) -> list[str]:
    return [record.region for record in lane.records]


def values(lane: Lane) -> list[int | float | None]:
    return [record.value for record in lane.records]


@pytest.mark.parametrize(
    ("name", "lanes"),
    [
        ("straight_line", 3 * 4),
        ("grid_3d", 24 * 2),
        ("partial_warps", 3 * 80),
        ("partial_elected", 3 * 3),
        ("strategies", 3 * 128),
        ("lane0_warp0", 3),
        ("target_warp", 3 * 2),
        ("all_threads", 3 * 128),
        ("sampled", 4),
        ("replayed", 3 * 3 * 4),
        ("two_kernels", 3 * 3 * 4),
        ("unmarked", 2 * 3 * 4),
        ("divergent", 3 * 4),
        ("divergent_lanes", 3 * 128),
        ("points", 3 * 4),
        ("auto_records", 3 * 4),
        ("loop_never", 3 * 4),
        ("sampled_sms", 2 * 24 // 4 * 4),
        ("sampled_nowhere", 0),
        ("empty_pool", 0),
        ("prepared", 0),
        ("off", 0),
    ],
)
def test_the_lanes_that_record_are_those_of_strategy_sampling_and_launches(name: str, lanes: int) -> None:
    assert len(recorded(name)) == lanes


def test_exported_records_are_ordered_by_end() -> None:
    assert regions(recorded("nested")[0]) == ["inner", "middle", "inner", "outer"]
    assert regions(recorded("helper")[0]) == ["item", "caller", "item"]


def test_a_loop_records_each_iteration_with_its_value() -> None:
    lane = recorded("loop")[0]
    assert regions(lane) == ["step"] * 5 + ["loop"]
    assert values(lane) == [0, 1, 2, 3, 4, None]


def test_blocks_that_return_early_have_fewer_records() -> None:
    assert [lane.count for lane in recorded("early_exit") if lane.warp == 0] == [2, 2, 1, 1, 1]


def test_lanes_that_return_early_have_fewer_records() -> None:
    counts = [lane.count for lane in recorded("partial_warps") if lane.block == (0, 0, 0)]
    assert counts == [2] * 70 + [1] * 10


def test_explicit_marks_pair_around_and_inside_a_loop() -> None:
    lane = recorded("explicit")[0]
    assert regions(lane) == ["pair"] * 3 + ["turn"]
    assert values(lane) == [0, 1, 2, None]


def test_a_regions_own_strategy_selects_its_recording_lanes() -> None:
    lanes = [lane for lane in recorded("strategies") if lane.block == (0, 0, 0)]
    assert regions(lanes[0]) == ["block", "warp", "named", "lanes", "session"]
    assert regions(lanes[32]) == ["warp", "lanes", "session"]
    assert regions(lanes[64]) == ["warp", "named", "lanes", "session"]
    assert regions(lanes[1]) == ["lanes"]


def test_a_ring_keeps_the_newest_and_counts_all() -> None:
    lane = recorded("ring")[0]
    assert (lane.count, regions(lane), values(lane)) == (12, ["step"] * 3 + ["loop"], [8, 9, 10, None])


def test_a_stopped_slab_keeps_the_oldest_and_counts_all() -> None:
    lane = recorded("stop")[0]
    assert (lane.count, values(lane)) == (12, [0, 1, 2, 3])


def test_values_keep_their_type_and_sign() -> None:
    lane = recorded("values")[0]
    assert values(lane) == [-7, 4_000_000_000, 1.5, None, 0, -1, 3, -1, 0.25]
    assert [record.kind.name for record in lane.records[3:6]] == ["INSTANT", "INSTANT_VALUE", "SPAN_VALUE"]
    assert [record.kind.name for record in lane.records[6:]] == ["COUNTER"] * 3


def test_integers_of_64_bits_are_exact_and_take_a_row_more_only_where_they_need_it() -> None:
    lane, big = recorded("wide")[0], 5 << 33
    assert values(lane) == [big - 1, -1, (1 << 63) + 1, big, 3, -(1 << 40), big, big]
    assert lane.count == len(lane.records) + 6


def test_roles_leave_different_records_in_one_block() -> None:
    consumer, *_, producer = recorded("roles")[:5]
    assert regions(producer) == ["load"] * 4
    assert regions(consumer) == ["wait", "mma"] * 4


def test_sampled_blocks_are_those_of_the_range() -> None:
    assert {lane.records[0].value for lane in recorded("sampled")} == {2, 7, 12, 17}
    assert {lane.warp for lane in recorded("sampled")} == {1}


def test_blocks_on_other_sms_than_the_selected_ones_record_nothing() -> None:
    assert {lane.smid for lane in recorded("sampled_sms")} == {0, 2}
    assert {lane.smid for lane in recorded("grid_3d")} == {0, 1, 2, 3}


def test_a_loop_that_is_not_entered_leaves_no_steps() -> None:
    assert {tuple(regions(lane)) for lane in recorded("loop_never")} == {("loop",)}


def test_nested_regions_of_one_name_end_innermost_first() -> None:
    inner, outer = recorded("itself")[0].records
    assert (inner.region, outer.region) == ("item", "item")
    assert outer.start < inner.start <= inner.end <= outer.end


def test_names_are_kept_as_they_were_written() -> None:
    two, quoted, signs, foreign, long = regions(recorded("names")[0])
    assert (two, quoted, foreign) == ("two words", 'it\'s "quoted" \\ twice', "größe 尺寸 🔬")
    assert signs == "100% {braces} $1 @p; // /* %r1"
    assert 64 < len(long) < 128


def test_a_branch_is_recorded_by_the_lanes_that_take_it() -> None:
    assert {tuple(regions(lane)) for lane in recorded("divergent")} == {("all", "rest")}
    lanes = {lane.lane: regions(lane) for lane in recorded("divergent_lanes")}
    assert lanes[15] == ["all", "rest"]
    assert lanes[16] == ["all", "half", "rest"]


def test_a_branch_is_recorded_by_the_first_lane_that_takes_it() -> None:
    lanes = [lane for lane in recorded("first_lane") if (lane.block, lane.warp) == ((0, 0, 0), 0)]
    assert [(lane.lane, regions(lane)) for lane in lanes] == [(0, ["all", "rest"]), (16, ["half"])]
    assert {lane.lane for lane in recorded("any_lane")} == {0}


def test_points_have_separate_strategies() -> None:
    first, second, third, _ = [lane for lane in recorded("points") if lane.block == (0, 0, 0)]
    assert regions(first) == ["each", "once"] * 3
    assert regions(second) == ["each", "left"] * 3
    assert regions(third) == ["each"] * 3
    assert values(second) == [0, 3, 1, 2, 2, 1]


def test_a_predicate_chooses_what_is_recorded() -> None:
    lane = recorded("chosen")[0]
    assert regions(lane) == ["even", "left", "left", "even", "left", "late", "even", "late", "left", "always"]
    assert values(lane) == [0, 5, 4, 2, 3, 3, 4, 4, 1, None]


def test_threads_read_their_position() -> None:
    lanes = recorded("words")
    assert {lane.block for lane in lanes} == {(x, y, z) for x in (0, 1) for y in (0, 1) for z in (0, 1)}
    for lane in lanes:
        x, y, z = lane.block
        assert regions(lane) == ["lane", "warp", "block", "sm"]
        assert values(lane) == [lane.lane, lane.warp, x + 2 * (y + 2 * z), lane.smid]


def test_a_name_on_another_track_is_another_region() -> None:
    assert regions(recorded("tracks")[0]) == [
        "done\x1fa", "worker\x1fkscope.role", "flight\x1fkscope.begin", "load\x1fb c", "load", "flight\x1fkscope.end",
        "load\x1fa",
    ]  # fmt: skip


def test_pinned_regions_record_like_other_regions() -> None:
    assert {tuple(regions(lane)) for lane in recorded("pinned")} == {("product",)}


def test_a_pool_that_is_too_small_loses_lanes_and_counts_them() -> None:
    lanes, lost = definition(BY_NAME["scarce_pool"])
    assert 0 < len(lanes) < 3 * 128
    assert len(lanes) + lost == 3 * 128
    assert definition(BY_NAME["empty_pool"]) == ([], 3 * 4)


def test_launches_outside_a_session_leave_no_records() -> None:
    assert [definition(BY_NAME[name]) for name in ("prepared", "off")] == [([], 0)] * 2
    assert [len(frontend_sim.run(BY_NAME[name]).modules) for name in ("prepared", "off")] == [2, 0]


def test_a_repeated_grid_id_is_a_replay_of_one_launch() -> None:
    assert {(lane.launch, lane.replay) for lane in recorded("replayed")} == {(0, 0), (0, 1), (0, 2)}


def test_program_names_are_unique() -> None:
    assert len(BY_NAME) == len(PROGRAMS)


def test_every_kernel_is_used_by_a_program() -> None:
    used = {kernel for program in PROGRAMS for kernel in program.kernels}
    assert used == set(frontend_sim.KERNELS)
