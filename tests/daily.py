"""Choice of the test cases that run daily: families of expensive cases run in part, the rest is nightly.

    pytest -m "nightly or not nightly" --junitxml=suite.xml   # measure; also of the daily tests alone
    python tests/daily.py suite.xml                           # write daily_cases.json, which conftest.py reads

A family is a test function with all its cases. One that takes more than SHARE of the whole time keeps as many evenly
spaced cases as fit: possibly none, but one of several that are not too expensive. Families that were cut before keep
their number unless they are measured again in full. ALWAYS lists those that run whole: properties on which everything
else rests.
"""

import collections
import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

PATH = Path(__file__).parent / "daily_cases.json"
SHARE = 0.002  # of the time of all daily tests
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
    "test_quick_checks_the_core_and_measures",
}


def seconds(report: Path) -> dict[str, list[float]]:
    """Time of each case, by family "tests/run/test_fit.py::test_name"."""
    families: dict[str, list[float]] = collections.defaultdict(list)
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        path = case.get("classname", "").replace(".", "/") + ".py"
        families[f"{path}::{case.get('name', '').partition('[')[0]}"].append(float(case.get("time", 0)))
    return families


def choose(families: dict[str, list[float]], before: dict[str, int]) -> dict[str, int]:
    """Number of daily cases of each family that does not run whole."""
    limit = SHARE * sum(map(sum, families.values()))
    chosen = dict(before)
    for name, times in families.items():
        if sum(times) > limit and name.partition("::")[2] not in ALWAYS:
            mean = sum(times) / len(times)
            chosen[name] = max(int(limit / mean), int(len(times) > 1 and mean < 2 * limit))
    return dict(sorted(chosen.items()))


def daily(number: int, total: int) -> set[int]:
    """Positions of `number` evenly spaced cases among `total`; all where there are no more."""
    number = min(number, total)
    return {int((i + 0.5) * total / number) for i in range(number)}


if __name__ == "__main__":
    known = json.loads(PATH.read_text()) if PATH.exists() else {}
    PATH.write_text(json.dumps(choose(seconds(Path(sys.argv[1])), known), indent=1) + "\n")
