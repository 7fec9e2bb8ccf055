"""Breaks of the doctor and of the metrics that it reads."""

from breaks.base import Mutation

FILE = "tests/reports/test_doctor.py::"
LIMITS = FILE + "test_a_rule_sees_what_is_beyond_its_limit_and_nothing_within"
METRICS = "tests/ppo/test_diagnostics.py::"

CLI = "tests/cli/test_doctor.py::"

MUTATIONS = [
    Mutation(
        "doctor: a policy without its action space is a traceback",
        'read_policy(path).get("action_space") if described',
        'read_policy(path)["action_space"] if described',
        (FILE + "test_a_policy_without_its_action_space_is_named",),
        "reports/doctor.py",
    ),
    Mutation(
        "doctor: observations that grow over a run are no finding",
        "grown = values > OBS_GROWTH * max(values[known[0]], 1.0)",
        "grown = values > 1e30",
        (LIMITS + "[observations_grow]",),
    ),
    Mutation(
        "doctor: constant scale counts as growth",
        "grown = values > OBS_GROWTH * max(values[known[0]], 1.0)",
        "grown = values > OBS_GROWTH",
        (LIMITS + "[observations_grow]",),
    ),
    Mutation(
        "doctor: nothing is suspicious where nothing was learned",
        'found = "Nothing suspicious." if self.learned else "No rule has found a cause."',
        'found = "Nothing suspicious."',
        (FILE + "test_a_return_that_did_not_rise_is_never_called_unsuspicious",),
    ),
    Mutation(
        "doctor: a fault before the first row is not repeated",
        "        fault = _fault_of(path)\n",
        '        fault = ""\n',
        (CLI + "test_a_fault_before_the_first_row_is_repeated_with_the_command_to_go_on",),
    ),
    Mutation(
        "doctor: the fault of a run is known by its kind alone",
        'for name in ("error", "why") if isinstance',
        'for name in ("why", "error") if isinstance',
        (CLI + "test_a_fault_before_the_first_row_is_repeated_with_the_command_to_go_on",),
    ),
    Mutation(
        "check-env: growing observations pass",
        "if top > GROWTH * max(early, 1.0):",
        "if False:",
        (
            "tests/checks/test_broken.py::test_observations_that_grow_without_end",
            "tests/checks/test_check_host.py::test_observations_that_grow_by_orders_of_magnitude_fail[1.1-False]",
        ),
        "checks/magnitudes.py",
    ),
    Mutation(
        "check-env: a reward that is NaN differs from itself",
        '"reward": max_difference(steps.reward, out.reward, paid)',
        '"reward": max_difference(steps.reward, out.reward, everywhere)',
        ("tests/checks/test_broken.py::test_a_number_that_is_none_is_a_matter_of_the_check_for_it_alone",),
        "checks/rollout.py",
    ),
    Mutation(
        "check-env: steps that are repeated agree as closely as one step of the network",
        "if not x <= STEPPED]",
        'if not x <= CLOSE["float32"]]',
        ("tests/checks/test_broken.py::test_rows_in_another_order",),
        "checks/rollout.py",
    ),
    Mutation(
        "check-env: checks that were not tried are counted as not applying",
        "tried = [check for check in self.checks if not check.text.startswith(NOT_TRIED)]",
        "tried = list(self.checks)",
        ("tests/checks/test_check_env.py::test_checks_that_were_not_tried_are_one_line_and_are_counted_as_such",),
        "checks/report.py",
    ),
    Mutation(
        "a return over a few episodes is called risen",
        "    if few < EPISODES:",
        "    if False:",
        ("tests/reports/test_doctor.py::test_a_return_over_a_few_episodes_is_not_called_risen",),
        "reports/doctor.py",
    ),
    Mutation(
        "the doctor does not read the evaluation at the end of a run",
        'result = finite_or_none(read_evaluation(path).get("mean_return"))',
        "result = None",
        ("tests/cli/test_doctor.py::test_the_evaluation_at_the_end_of_a_run_is_read",),
        "reports/doctor.py",
    ),
    Mutation(
        "a run whose evaluation is bad has learned",
        "lasting = np.isnan(contradiction(record)) and np.isnan(fallen_from(record))",
        "lasting = np.isnan(fallen_from(record))",
        ("tests/reports/test_doctor.py::test_an_evaluation_that_disagrees_with_the_return_is_named",),
        "reports/doctor.py",
    ),
    Mutation(
        "doctor: a solved task's targets are too hard for its critic",
        'bad = (explained < EXPLAINED) & (std > 0.0) & (error > PRECISE * np.abs(record.late("target_mean")))',
        "bad = explained < EXPLAINED",
        (LIMITS + "[explained_variance_low]",),
    ),
    Mutation(
        "doctor: truncated episodes are taken for terminated ones",
        "if cuts > 0 or not whole or at_limit.sum() < LIMIT_ROWS:",
        "if not whole or at_limit.sum() < LIMIT_ROWS:",
        (LIMITS + "[truncation_as_end]",),
    ),
    Mutation(
        "doctor: episodes that are cut shorter are taken for ended ones",
        "if not (costs and shorter and ends > cuts):",
        "if not (costs and shorter):",
        (LIMITS + "[ending_pays]",),
    ),
    Mutation(
        "doctor: episodes that get shorter as their return rises above zero",
        "costs, shorter = max(returns) < 0.0,",
        "costs, shorter = min(returns) < 0.0,",
        (LIMITS + "[ending_pays]",),
    ),
    Mutation(
        "doctor: a policy that became certain because it learned",
        "if of_box or not low.any() or not early or learned(record):",
        "if of_box or not low.any() or not early:",
        (LIMITS + "[entropy_gone]",),
    ),
    Mutation(
        "doctor: a short time limit beside a long horizon is not seen",
        "    if not BEYOND_LIMIT * limit * (1.0 - gamma) < 1.0:",
        "    if not limit * (1.0 - gamma) < 0.1:",
        (LIMITS + "[horizon_long]",),
    ),
    Mutation(
        "doctor: episodes that end by themselves are taken for cut ones",
        "alike = not ends > 0 and cuts > 0",
        "alike = cuts > 0",
        (LIMITS + "[horizon_long]",),
    ),
    Mutation(
        "doctor: episodes of several lengths are taken for a time limit",
        "and len(known) and known.min() == known.max()",
        "and len(known)",
        (LIMITS + "[horizon_long]",),
    ),
    Mutation(
        "doctor: groups are examined by the metrics of all",
        "name = own if any(own in row for row in self.rows) else metric",
        "name = metric",
        (FILE + "test_groups_are_examined_by_themselves",),
    ),
    Mutation(
        "a step with both flags counts as a truncation too",
        "cut = steps.truncated & ~steps.terminated\n    ends = ",
        "cut = steps.truncated\n    ends = ",
        (METRICS + "test_ends_of_episodes_and_the_largest_observation_by_hand",),
    ),
    Mutation(
        "every Box suits the normal distribution",
        "    missed &= (halves < narrow) | (halves > wide) | (np.abs(centres) > FAR * halves)",
        "    missed &= halves < 0.0",
        ("tests/agents/test_units.py",),
    ),
    Mutation(
        "defaults by kind take actions in any units for those of the normal distribution",
        "    if kind.off_scale:",
        "    if False:",
        ("tests/agents/test_units.py::test_defaults_by_kind_reach_them",),
    ),
]
