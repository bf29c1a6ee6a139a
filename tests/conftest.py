"""Settings of all tests: hypothesis profiles, sampling of variations, and skipping without a GPU.

HYPOTHESIS_PROFILE is fast (the default), thorough, repeat (.ci/run: as many examples as fast, always the same),
or brief (a few of them, for tests that run again with other versions of a dependency).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

import disassembled
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

for _name, _examples in (("fast", 12), ("thorough", 400)):
    settings.register_profile(
        _name, max_examples=_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
    )
settings.register_profile("repeat", settings.get_profile("fast"), derandomize=True, database=None)
settings.register_profile("brief", settings.get_profile("repeat"), max_examples=8)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def has_gpu() -> bool:
    """True if the machine has an NVIDIA device. Makes no driver call, so tests may fork afterwards."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


if not has_gpu():  # device tests multiply large matrices
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts faster in the many processes of the tests

disassembled.keep()


SAMPLED = {
    "browser": 0.12,
    "browser/test_perfetto.py": 0.18,
    "contract/test_agreement.py::test_a_session_records_what_the_protocol_records": 0.34,
    "contract/test_contract.py::test_a_program_becomes_ptx_and_sass_for": 0.1,
    "contract/test_contract.py::test_emitted_ptx_records_what_the_simulator_records": 0.15,
    "torture/test_bounds.py": 0.5,
    "torture/test_bounds.py::test_ten_gigabyte_buffers_are_refused": 0.2,
    "unit/analysis/test_instructions.py": 0.6,
    "unit/analysis/test_perturbed.py::test_a_triton_kernel_is_compared_as_triton_builds_it": 0,
    "unit/analysis/test_perturbed.py::test_builds_and_capture_are_kept_where_they_are_requested": 0,
    "unit/analysis/test_perturbed.py::test_no_kernel_time_is_compared_across_launch_shapes": 0,
    "unit/analysis/test_perturbed.py::test_numbers_for_a_program_are_all_of_stdout": 0,
    "unit/analysis/test_perturbed.py::test_without_ncu_only_the_code_is_compared": 0,
    "unit/analysis/test_perturbed.py::test_without_ncu_permission_the_rest_is_reported": 0,
    "unit/analysis/test_summary_by_key.py::test_numbers_by_any_key_are_those_of_pandas": 0.2,
    "unit/cuda/test_device.py::test_every_helper_assembles": 0.25,
    "unit/cuda/test_empty_regions.py": 0.5,
    "unit/cuda/test_empty_scopes.py::test_a_region_in_a_scope_compiles_without_a_warning": 0.5,
    "unit/cuda/test_header.py::test_a_kernels_note_contains_its_recording_options": 0.4,
    "unit/cuda/test_header.py::test_disabled_macros_leave_the_code_unchanged": 0.34,
    "unit/cuda/test_header.py::test_lambdas_for_host_and_device_and_functions_for_both_may_have_regions": 0.5,
    "unit/cuda/test_header.py::test_the_header_assembles_for_every_architecture": 0.19,
    "unit/cuda/test_header.py::test_the_header_assembles_with_other_options": 0.2,
    "unit/cuda/test_header.py::test_the_header_compiles_without_warnings_in_every_cpp_standard": 0.2,
    "unit/cuda/test_libraries.py": 0.5,
    "unit/cuda/test_libraries.py::test_plain_libraries_are_refused_with_the_remedy": 0.5,
    "unit/cuda/test_names.py": 0.5,
    "unit/cuda/test_names.py::test_names_are_found_in_code_that_is_packed_with_zstandard": 0.5,
    "unit/cuda/test_names.py::test_names_are_found_in_every_kind_of_object": 0.3,
    "unit/cuda/test_names.py::test_names_are_found_with_every_build_mode": 0.2,
    "unit/cuda/test_nvrtc.py": 0.2,
    "unit/cuda/test_pairing_check.py::test_marks_that_pair_are_no_problem": 0.4,
    "unit/cuda/test_pairing_check.py::test_unpaired_marks_are_named_with_kernel_and_line": 0.4,
    "unit/cuda/test_refused.py": 0.5,
    "unit/cuda/test_refused.py::test_a_function_of_one_file_is_inlined_in_relocatable_code_too": 0.3,
    "unit/cuda/test_when_and_track.py": 0.5,
    "unit/cuda/test_when_and_track.py::test_every_state_assembles": 0.13,
    "unit/cupy": 0.15,
    "unit/cute": 0.5,
    "unit/export/test_hostile.py::test_one_long_name_makes_neither_rows_nor_memory_larger": 0.4,
    "unit/export/test_writing.py::test_the_work_of_an_export_is_linear_in_the_names": 0.4,
    "unit/numba": 0.5,
    "unit/runtime/test_pc_sampling.py::test_a_hundred_million_samples_fit_into_200_megabytes": 0,
    "unit/sass": 0.5,
    "unit/sass/test_architectures.py": 1,
    "unit/sass/test_architectures.py::test_a_kernel_is_recorded_where_it_is_on_sm_90": 0.04,
    "unit/sass/test_contract.py::test_a_kernel_is_recorded_there_or_refused_with_a_reason": 0.3,
    "unit/session/test_signals.py::test_ctrl_c_at_any_instruction_leaves_the_next_session_working": 0.5,
    "unit/session/test_signals.py::test_ctrl_c_at_any_instruction_of_a_pause_ends_it": 0,
    "unit/test_barrier_fences.py::test_no_clock_is_read_in_a_barriers_shadow": 0.3,
    "unit/test_bench.py::test_a_benchmark_kernel_compiles_in_every_variant": 0,
    "unit/test_bench.py::test_the_bench_of_the_host_writes_one_table_and_one_file": 0,
    "unit/test_bench.py::test_the_work_of_every_loop_lies_between_its_marks": 0,
    "unit/test_bench_kernels.py": 0,
    "unit/test_black_box.py::test_where_every_warp_was_is_printed_and_kept": 0.4,
    "unit/test_causal.py::test_jumps_are_split_and_the_truth_is_inside_on_both_sides": 0.5,
    "unit/test_cli_launched.py": 0.4,
    "unit/test_cli_run.py": 0.6,
    "unit/test_cli_run.py::test_a_forked_child_keeps_its_exit_code_and_output": 0.2,
    "unit/test_cli_run.py::test_a_script_that_records_itself_is_refused": 0.3,
    "unit/test_cli_run.py::test_run_accepts_non_utf8_arguments": 0.3,
    "unit/test_cli_run.py::test_the_scripts_exit_code_is_kept": 0.5,
    "unit/test_cli_run.py::test_threads_are_waited_for_and_recorded": 0.15,
    "unit/test_examples.py::test_an_example_runs": 0.12,
    "unit/test_examples.py::test_compiled_examples_contain_their_regions": 0.17,
    "unit/test_examples.py::test_interpreted_triton_examples_compute_correct_results": 0,
    "unit/test_examples.py::test_same_kernel_everywhere_runs_installed_languages_and_names_the_rest": 0,
    "unit/test_examples.py::test_triton_examples_run_in_the_interpreter_or_name_one_that_does": 0,
    "unit/test_examples_compute.py::test_a_tile_of_a_product_is_right": 0.4,
    "unit/test_examples_compute.py::test_the_softmax_equals_numpys": 0.4,
    "unit/test_loop_registers.py::test_a_lane_without_a_slab_stores_nothing": 0.25,
    "unit/test_loop_registers.py::test_a_loop_record_beside_64_multiplications_costs_a_dozen_cycles": 0.5,
    "unit/test_loop_registers.py::test_an_empty_region_is_two_clock_reads_without_a_store_between": 0.5,
    "unit/test_loop_registers.py::test_loop_registers_do_not_change_records": 0.17,
    "unit/test_loop_registers.py::test_the_text_assembles": 0.34,
    "unit/test_ptx_anchors.py::test_rows_are_those_of_the_protocol_page": 0.34,
    "unit/test_ptx_any_lane.py::test_a_broken_claim_is_detected": 0.5,
    "unit/test_ptx_assembles.py::test_every_option_assembles": 0.34,
    "unit/test_ptx_mutations.py::test_a_broken_instruction_is_detected": 0.25,
    "unit/test_ptx_mutations.py::test_a_broken_plan_is_detected": 0.34,
    "unit/test_ptx_mutations.py::test_a_broken_stop_bound_is_detected": 0,
    "unit/test_ptx_sinking.py": 0.5,
    "unit/test_pytest_plugin.py::test_a_hung_test_ends_with_where_its_warps_were": 0.5,
    "unit/test_tutorial.py::test_every_command_of_the_tutorial_runs_unchanged": 0,
    "unit/test_tutorial.py::test_the_kernel_compiles_with_every_region": 0.5,
    "unit/test_tutorial.py::test_the_page_shows_what_the_commands_print": 0,
    "unit/triton/test_auto.py": 0.6,
    "unit/triton/test_auto.py::test_an_operation_has_the_narrowest_of_the_kinds_that_are_requested": 0,
    "unit/triton/test_auto.py::test_each_group_of_specialized_warps_has_its_own_places": 0.5,
    "unit/triton/test_auto.py::test_every_operation_of_the_ir_is_read": 0.34,
    "unit/triton/test_auto.py::test_ir_that_is_printed_and_read_back_gives_the_same_code": 0.34,
    "unit/triton/test_auto.py::test_machine_code_between_marks_is_the_named_work": 0.15,
    "unit/triton/test_auto.py::test_marks_add_and_remove_no_instruction_of_the_kernel": 0.3,
    "unit/triton/test_auto.py::test_operations_of_the_usual_kinds_are_regions_with_their_lines": 0.34,
    "unit/triton/test_auto.py::test_selected_lines_of_a_pipelined_loop_cover_its_prologue_and_body": 0.34,
    "unit/triton/test_auto.py::test_unselected_kernels_compile_to_the_plain_binary": 0.5,
    "unit/triton/test_caches.py::test_a_launch_compiles_for_its_cache_key_despite_a_state_change": 0.34,
    "unit/triton/test_caches.py::test_asynchronous_compilations_keep_the_state_at_submission": 0.4,
    "unit/triton/test_caches.py::test_launches_run_the_kernel_of_the_current_state": 0.15,
    "unit/triton/test_caches.py::test_the_disk_cache_returns_the_current_states_kernel": 0.15,
    "unit/triton/test_device.py::test_clock_helpers_work_in_a_pipelined_loop": 0.34,
    "unit/triton/test_device.py::test_interpreted_kernels_have_the_device_helpers": 0,
    "unit/triton/test_dry_run.py::test_a_dry_run_compares_the_code_that_is_loaded_with_placement_schedule": 0,
    "unit/triton/test_dry_run.py::test_a_dry_run_lists_kernels_places_and_costs_every_time": 0,
    "unit/triton/test_dry_run.py::test_a_dry_run_of_a_failing_script_keeps_its_error_and_lists_all_kinds": 0,
    "unit/triton/test_dry_run.py::test_lines_and_kernels_are_selected_and_what_matches_none_is_named": 0,
    "unit/triton/test_faults.py": 0.5,
    "unit/triton/test_gluon.py::test_gluon_kernels_carry_marks": 0.34,
    "unit/triton/test_inductor.py::test_a_thread_that_starts_while_enabled_has_the_settings": 0,
    "unit/triton/test_inductor.py::test_inductor_compiles_in_process_and_launches_through_triton_while_enabled": 0,
    "unit/triton/test_inductor.py::test_kernels_copied_by_inductor_resolve_kscope_names": 0,
    "unit/triton/test_inductor.py::test_torch_analyzes_a_kernel_without_its_marks": 0,
    "unit/triton/test_interpreted.py": 0.5,
    "unit/triton/test_marks.py": 0.6,
    "unit/triton/test_marks.py::test_helpers_are_inlined_with_their_marks": 0.34,
    "unit/triton/test_marks.py::test_marks_are_in_the_order_of_the_source": 0.34,
    "unit/triton/test_marks.py::test_software_pipelined_loops_keep_their_marks": 0.34,
    "unit/triton/test_options.py": 0.6,
    "unit/triton/test_options.py::test_every_recording_assembles": 0.13,
    "unit/triton/test_options.py::test_kscope_in_the_environment_prepares": 0.5,
    "unit/triton/test_placement.py": 0.34,
    "unit/triton/test_plain.py::test_a_plain_kernel_is_byte_identical": 0.5,
    "unit/triton/test_rest.py": 0.5,
    "unit/triton/test_tuning.py": 0.5,
}
"""The part of tests with many variations, of slow tests of whole programs, and of a folder's or a file's tests, that
`make test` runs. The others are marked `variation`, and run in `make test-variations` or the tests of their language,
in `.ci/run` and in `make test-all`."""


def sampled(test: str) -> str | None:
    """The name in SAMPLED that holds for a test: its own, its file's or its folder's."""
    file = test.partition("::")[0]
    return next((name for name in (test, file, *map(str, PurePosixPath(file).parents)) if name in SAMPLED), None)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files without variations are not imported for variations."""
    if collection_path.suffix != ".py" or not config.option.markexpr.startswith("variation and "):
        return None
    file = collection_path.relative_to(ROOT / "tests").as_posix()
    has = sampled(file) or any(name.startswith(f"{file}::") for name in SAMPLED)
    return None if has or "variation" in collection_path.read_text() else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark variations; skip tests marked gpu on a machine without one, and name the command that runs them.

    KSCOPE_EVERY=N in the environment: of the variations of tests that `make test` runs a part of, all but each Nth are
    slow tests.
    """
    seen: dict[str, int] = {}
    every, variations = int(os.environ.get("KSCOPE_EVERY", "1")), 0
    for item in items:
        test = item.nodeid.partition("[")[0].removeprefix("tests/")
        name = sampled(test)
        if name is not None:
            part, number = SAMPLED[name], seen.get(name, 0) + 1
            seen[name] = number
            if int(number * part) == int((number - 1) * part):
                item.add_marker(pytest.mark.variation)
                one_of_many = part > 0 and "[" in item.nodeid  # others would not run at all
                variations += one_of_many
                if one_of_many and variations % every:
                    item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("gpu") and not has_gpu():
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU: make gpu"))


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Spare the garbage collector the collected tests and their modules: a walk over them takes a quarter of a second.

    They are not frozen where CuPy, Numba or CuTe is installed, whose kernels kscope finds among the live objects.
    """
    gc.disable()
    yield
    gc.enable()
    gc.set_threshold(10_000, 20, 20)
    if not any(map(find_spec, ("cupy", "numba", "cutlass"))):
        gc.freeze()


@pytest.fixture
def root() -> Path:
    """The checkout."""
    return ROOT
