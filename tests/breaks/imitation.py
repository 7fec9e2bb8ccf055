"""Breaks of distillation and behaviour cloning."""

from breaks.base import Mutation

DISTILLATION = "tests/extensions/imitation/test_distillation.py::"
MEMORY = "tests/extensions/imitation/test_teachers_with_memory.py::"
DAGGER = "tests/extensions/imitation/test_dagger.py::"
CLONING = "tests/extensions/imitation/test_cloning.py::"
DEMONSTRATIONS = "tests/extensions/imitation/test_demonstrations.py::"
PRIOR = "tests/extensions/imitation/test_motions.py::"
MUTATIONS = [
    Mutation(
        "the style reward has its largest value where motions are recognised as the policy's",
        "jnp.square(outputs - 1.0)), 0.0)",
        "jnp.square(outputs + 1.0)), 0.0)",
        (PRIOR + "test_the_reward_is_that_of_the_discriminator_for_each_step_and_its_successor",),
        "extensions/imitation/motions.py",
    ),
    Mutation(
        "the discriminator's gradient is penalised without the square",
        "errors + self.gradient_penalty * jnp.square(gradient).sum()",
        "errors + self.gradient_penalty * jnp.abs(gradient).sum()",
        (PRIOR + "test_the_loss_is_least_squares_with_a_penalty_on_the_gradient_at_demonstrations",),
        "extensions/imitation/motions.py",
    ),
    Mutation(
        "the discriminator calls the policy's motions demonstrated",
        "jnp.square(self._output(params, pair) + 1.0)",
        "jnp.square(self._output(params, pair) - 1.0)",
        (PRIOR + "test_the_discriminator_tells_demonstrations_from_the_policy",),
        "extensions/imitation/motions.py",
    ),
    Mutation(
        "every row of the policy meets the same demonstrated pair",
        "demonstrated[jnp.minimum(index, len(demonstrated) - 1)]",
        "demonstrated[jnp.zeros_like(index)]",
        (PRIOR + "test_the_loss_is_least_squares_with_a_penalty_on_the_gradient_at_demonstrations",),
        "extensions/imitation/motions.py",
    ),
    Mutation(
        "demonstrated transitions lead from one episode to the next",
        "        rows = np.flatnonzero(~ended[:-1])\n",
        "        rows = rows[:-1]\n",
        (PRIOR + "test_transitions_stay_inside_their_episode[False]",),
        "imitation/demonstrations.py",
    ),
    Mutation(
        "the discriminator reads the first numbers in place of those chosen",
        "[..., np.asarray(one.places)]",
        "[..., : len(one.places)]",
        (PRIOR + "test_entries_of_a_dict_are_read_in_demonstrations_and_in_observations_alike",),
        "extensions/imitation/motions.py",
    ),
    Mutation(
        "the divergence of distillation is turned around",
        "where_rows(rows.batch.steps.valid, wanted, jax.lax.stop_gradient(own)).kl(own)",
        "own.kl(where_rows(rows.batch.steps.valid, wanted, jax.lax.stop_gradient(own)))",
        (DISTILLATION + "test_value_and_gradient_are_those_of_the_divergence",),
        "extensions/imitation/distillation.py",
    ),
    Mutation(
        "rows that are not valid reach the gradient of distillation",
        "where_rows(rows.batch.steps.valid, wanted, jax.lax.stop_gradient(own)).kl(own)",
        "wanted.kl(own)",
        (DISTILLATION + "test_rows_that_are_not_valid_leave_the_gradient_finite",),
        "extensions/imitation/distillation.py",
    ),
    Mutation(
        "a teacher forgets with every rollout",
        "follow(streams, obs, steps.first,",
        "follow(self.init_streams(steps.first.shape[1]), obs, steps.first,",
        (MEMORY + "test_targets_are_those_of_a_teacher_that_is_stepped_row_by_row[gru]",),
        "extensions/imitation/distillation.py",
    ),
    Mutation(
        "a teacher remembers earlier episodes",
        "follow(streams, obs, steps.first,",
        "follow(streams, obs, steps.first & False,",
        (MEMORY + "test_targets_are_those_of_a_teacher_that_is_stepped_row_by_row[gru]",),
        "extensions/imitation/distillation.py",
    ),
    Mutation(
        "the memory of a teacher that acts stays as it was",
        "return Acted((acted.memory, acts),",
        "return Acted((acting[0], acts),",
        (DAGGER + "test_a_teacher_acts_by_its_own_memory[compiled]",),
        "extensions/imitation/distillation.py",
    ),
    Mutation(
        "a teacher acts where the student should",
        "jax.random.bernoulli(one, beta)",
        "~jax.random.bernoulli(one, beta)",
        (DAGGER + "test_the_share_of_the_teachers_actions_is_beta[compiled-0.3]",),
        "extensions/imitation/distillation.py",
    ),
    Mutation(
        "a teacher acts in evaluations on the host",
        "        alone = _acting_alone(agent)\n",
        "        alone = agent\n",
        (DAGGER + "test_an_evaluation_is_of_the_student_alone[host]",),
        "training/backends.py",
    ),
    Mutation(
        "a teacher acts beside PPO's own loss",
        "if self.beta is not None and not isinstance(agent.loss, NoPolicyLoss):",
        "if False:",
        (DAGGER + "test_beside_another_policy_loss_it_is_refused",),
        "extensions/imitation/distillation.py",
    ),
    Mutation(
        "another teacher goes on with a run",
        "if found != recorded:",
        "if False:",
        (DISTILLATION + "test_a_run_file_names_its_teacher_and_a_resume_reads_it_again",),
        "extensions/imitation/distillation.py",
    ),
    Mutation(
        "other demonstrations go on with a run",
        "if self._loaded.checksum != self.checksum:",
        "if False:",
        (CLONING + "test_a_run_file_names_its_demonstrations_and_a_resume_reads_them_again",),
        "extensions/imitation/demonstrations.py",
    ),
    Mutation(
        "cloning makes demonstrated actions less likely",
        '"cloning_loss": -self.coef * log_prob',
        '"cloning_loss": self.coef * log_prob',
        (CLONING + "test_value_and_gradient_are_those_of_the_likelihood",),
        "extensions/imitation/cloning.py",
    ),
    Mutation(
        "all rows draw the same demonstrated step",
        "keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows)",
        "keys = jax.vmap(jax.random.fold_in, (None, 0))(key, 0 * rows)",
        (CLONING + "test_draws_are_uniform_and_belong_to_rows",),
        "ppo/extension.py",
    ),
    Mutation(
        "observations of Minari are shifted after the first episode",
        "return np.arange(steps) + before",
        "return np.arange(steps)",
        (DEMONSTRATIONS + "test_last_observations_of_episodes_have_no_action",),
        "extensions/imitation/demonstrations.py",
    ),
    Mutation(
        "demonstrations are read with pickle",
        "np.load(path, allow_pickle=False)",
        "np.load(path, allow_pickle=True)",
        (DEMONSTRATIONS + "test_a_file_is_data",),
        "extensions/imitation/demonstrations.py",
    ),
    Mutation(
        "demonstrations unpack to any size",
        "    if total > max(SMALL, RATIO * packed):",
        "    if False:",
        ("tests/extensions/imitation/test_demonstrations.py::test_a_file_may_not_unpack_to_far_more_than_it_has",),
        "extensions/imitation/demonstrations.py",
    ),
    Mutation(
        "demonstrations beyond the free memory are read",
        "    if free is not None and total > free // COPIES:",
        "    if False:",
        ("tests/extensions/imitation/test_demonstrations.py::test_arrays_that_do_not_fit_into_memory_are_not_read",),
        "extensions/imitation/demonstrations.py",
    ),
    Mutation(
        "arrays that no one asked for are read",
        "arrays[name] if _is_field(name, fields) else np.zeros(0)",
        "arrays[name]",
        ("tests/extensions/imitation/test_demonstrations.py::test_other_arrays_of_a_file_are_not_read",),
        "extensions/imitation/demonstrations.py",
    ),
]
