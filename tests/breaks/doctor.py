"""Breaks of the doctor and of the metrics that it reads."""

from breaks.base import Mutation

FILE = "tests/reports/test_doctor.py::"
LIMITS = FILE + "test_a_rule_sees_what_is_beyond_its_limit_and_nothing_within"
METRICS = "tests/ppo/test_diagnostics.py::"

MUTATIONS = [
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
        "return rose(record) and not few and np.isnan(contradiction(record))",
        "return rose(record) and not few",
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
        "doctor: groups are examined by the metrics of all",
        "name = own if self.group and self.has(own) else metric",
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
