"""Breaks of evaluations: during training, and of the episodes that they play."""

from breaks.base import Mutation

TRAINING = "tests/run/test_evaluations.py::"
MEANS = TRAINING + "test_means_are_those_of_the_episodes_and_training_is_as_without"
ENDS = "tests/training/test_evaluation.py::test_how_episodes_ended_and_their_last_rewards_are_reported"

MUTATIONS = [
    Mutation(
        "the untrained policy is not evaluated",
        "untrained = self.evaluations.blank and int(state.iteration) == 0 and not history",
        "untrained = False",
        (MEANS + "[native]",),
    ),
    Mutation(
        "every evaluation has the same key",
        "self._evaluator(state.learner, jax.random.fold_in(self._key, iteration), self._limit.steps)",
        "self._evaluator(state.learner, jax.random.clone(self._key), self._limit.steps)",
        (MEANS + "[native]",),
    ),
    Mutation(
        "chunks do not end at evaluations",
        "next_row(done, self.intervals, self.evaluations.next_after(done)) - done",
        "next_row(done, self.intervals, self.total_iterations) - done",
        (TRAINING + "test_rows_end_at_multiples_of_the_interval_and_at_evaluations",),
    ),
    Mutation(
        "the row of the untrained policy is kept and written again",
        "kept = iteration or -1",
        "kept = iteration",
        (TRAINING + "test_a_resumed_run_has_the_same_rows[0]",),
    ),
    Mutation(
        "the row of the untrained policy counts twice for stop conditions",
        "iteration) if iteration else ():",
        "iteration):",
        (TRAINING + "test_a_resume_replays_the_evaluations",),
    ),
    Mutation(
        "the environments of evaluations stay open",
        "        if not self._borrowed:\n            self._env.close()",
        "        pass",
        (TRAINING + "test_environments_on_the_host_are_created_once_and_closed",),
    ),
    Mutation(
        "terminated: also by a later episode",
        "terminated=state.terminated | (counted & out.terminated),",
        "terminated=state.terminated | out.terminated,",
        ("tests/training/test_evaluation.py::test_the_end_of_a_later_episode_is_not_that_of_the_first",),
    ),
    Mutation(
        "final reward: of a later episode",
        "final_reward=jnp.where(counted, out.reward, state.final_reward),",
        "final_reward=out.reward,",
        (ENDS + "[native]",),
    ),
    Mutation(
        "on the host the final reward is the return",
        "float(reward[here])",
        "float(self._returns[i])",
        (ENDS + "[host]",),
    ),
    Mutation(
        "a resumed table has the columns of its next row",
        "None if self._lines.empty else header_of(path)",
        "None",
        ("tests/loggers/test_files.py::test_a_resumed_table_keeps_its_columns",),
    ),
]
