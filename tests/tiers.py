"""Tiers of the tests by their time: quick ones (`pytest`), slow ones (also in CI), nightly ones.

    pytest                                          # quick: some of every file, five minutes on two quiet cores
    pytest -m "not nightly"                         # CI: quick and slow
    pytest -m nightly                               # the rest
    pytest -m "not nightly" --junitxml=suite.xml    # measure; with the nightly ones: -m "nightly or not nightly"
    python tests/tiers.py suite.xml                 # write nightly_cases.json and slow_tests.json, for conftest.py

A family is a test function with all its cases.

Nightly: a family that takes more than SHARE of the whole time keeps as many evenly spaced cases as fit: possibly none,
but one of several that are not too expensive. Families that were cut before keep their number unless they are measured
again in full. ALWAYS lists those that run whole: properties on which everything else rests.

Slow: of the others, the quickest family of every file (up to QUICK_FAMILY seconds) and then the quickest of all are
quick, within QUICK_SECONDS; the rest is slow. A new test is quick until the next measurement.
"""

import collections
import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

NIGHTLY_CASES = Path(__file__).parent / "nightly_cases.json"
SLOW_TESTS = Path(__file__).parent / "slow_tests.json"
SHARE = 0.002  # of the time of all tests that are not nightly
QUICK_SECONDS, QUICK_FAMILY = 200.0, 5.0  # of test time on one core: of all quick tests, of one family at most
ALWAYS = {
    "test_a_run_that_is_killed_five_times_equals_an_uninterrupted_one",
    "test_compiled_program_equals_train",
    "test_kill_interrupt_and_resume_leave_no_worker_processes",
    "test_the_python_blocks_run_one_after_the_other",
    "test_native",
    "test_every_threshold_is_missed_without_learning",
    "test_values_and_greedy_actions_of_the_probes",
    "test_update_agrees_with_the_reference",
    "test_members_equal_their_separate_runs",
    "test_a_member_equals_a_run_of_its_own",
    "test_a_loaded_policy_is_the_trained_one",
    "test_generated_pages_are_up_to_date",
    "test_every_metric_is_documented_once",
    "test_train_writes_to_the_run_directory_only",
    "test_two_processes_train_as_one",
    "test_each_independent_player_learns_as_in_a_solo_run",
    "test_import_loads_no_heavy_library",
    "test_a_break_applies_and_compiles",
    "test_the_ratio_is_one_before_the_first_gradient_step",
    "test_rows_that_do_not_count_change_nothing_bit_for_bit",
    "test_python_blocks_run",
    "test_parts_by_import_path_live_as_those_of_ppax",
    "test_controls_and_rows_decide_the_exit_code",
    "test_the_command_report",
    "test_every_kind_of_run_keeps_the_promises_of_a_run",
    "test_command_line_run_file_and_python_have_the_same_settings",
    "test_a_writer_that_is_killed_leaves_a_complete_checkpoint",
    "test_without_arguments_it_lists_commands_and_version",
    "test_an_unknown_option_in_a_process_fails_fast_without_traceback",
    "test_settings_of_several_environments_are_ranked_within_each_and_none_is_the_best",
}


def seconds(report: Path) -> dict[str, list[float]]:
    """Time of each case, by family "tests/run/test_fit.py::test_name"."""
    families: dict[str, list[float]] = collections.defaultdict(list)
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        path = case.get("classname", "").replace(".", "/") + ".py"
        families[f"{path}::{case.get('name', '').partition('[')[0]}"].append(float(case.get("time", 0)))
    return families


def choose(families: dict[str, list[float]], before: dict[str, int]) -> dict[str, int]:
    """Number of cases that are not nightly, of each family that does not run whole."""
    limit = SHARE * sum(map(sum, families.values()))
    chosen = dict(before)
    for name, times in families.items():
        if sum(times) > limit and name.partition("::")[2] not in ALWAYS:
            mean = sum(times) / len(times)
            chosen[name] = max(int(limit / mean), int(len(times) > 1 and mean < 2 * limit))
    return dict(sorted(chosen.items()))


def spaced(number: int, total: int) -> set[int]:
    """Positions of `number` evenly spaced cases among `total`; all where there are no more."""
    number = min(number, total)
    return {int((i + 0.5) * total / number) for i in range(number)}


def slow(families: dict[str, list[float]]) -> list[str]:
    """Return the families that are not quick."""
    by_time = sorted(families, key=lambda name: sum(families[name]))
    first = {name.partition("::")[0]: name for name in reversed(by_time)}  # the quickest of each file
    quick = {name for name in first.values() if sum(families[name]) <= QUICK_FAMILY}
    spent = sum(sum(families[name]) for name in quick)
    for name in by_time:
        spent += 0.0 if name in quick else sum(families[name])
        if spent > QUICK_SECONDS:
            break
        quick.add(name)
    return sorted(families.keys() - quick)


if __name__ == "__main__":
    measured = seconds(Path(sys.argv[1]))
    known = json.loads(NIGHTLY_CASES.read_text()) if NIGHTLY_CASES.exists() else {}
    NIGHTLY_CASES.write_text(json.dumps(choose(measured, known), indent=1) + "\n")
    SLOW_TESTS.write_text(json.dumps(slow(measured), indent=1) + "\n")
