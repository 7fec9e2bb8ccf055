"""Breaks of what users meet when they write parts of their own."""

from breaks.base import Mutation

CHECKS = "tests/checks/test_broken.py::"

MUTATIONS = [
    Mutation(
        "a logger fails without a traceback",
        '"".join(traceback.format_tb(error.__traceback__)).rstrip()',
        '""',
        (
            "tests/run/test_callbacks.py::"
            "test_a_logger_that_fails_is_removed_once_with_class_and_traceback_of_its_exception",
        ),
        "run/rows.py",
    ),
    Mutation(
        "terms that are no rows reach the sum of the loss",
        "        if shape != expected:\n            remedy",
        "        if False:\n            remedy",
        ("tests/losses/test_auxiliary.py::test_a_term_that_is_not_one_number_for_each_row_is_refused_by_name",),
        "losses/base.py",
    ),
    Mutation(
        "terms of the policy loss are not looked at",
        "per_row(self.loss, objective(policy.distribution, batch), batch)",
        "objective(policy.distribution, batch)",
        ("tests/losses/test_auxiliary.py::test_a_term_that_is_not_one_number_for_each_row_is_refused_by_name",),
        "ppo.py",
    ),
    Mutation(
        "a part that chooses among the sequences fails the self-test",
        "promised = isinstance(agent.minibatch, Shuffle)",
        "promised = True",
        (CHECKS + "test_minibatches_of_a_subset_are_a_note_and_no_failure",),
        "checks/learning.py",
    ),
    Mutation(
        "a shuffle may leave sequences out",
        "promised = isinstance(agent.minibatch, Shuffle)",
        "promised = False",
        (CHECKS + "test_minibatches_that_do_not_cover_the_rollout",),
        "checks/learning.py",
    ),
]
