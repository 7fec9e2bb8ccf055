"""Breaks of environment numbers, curricula, newer objectives, critics and exploration noise."""

from breaks.base import Mutation

PARAMS = "tests/envs/wrappers/test_params.py::"
CURRICULUM = "tests/envs/test_curriculum.py::"
DRAWN = "tests/envs/hosting/test_drawn.py::"
GSDE, NOISE = "tests/distributions/test_gsde.py::", "tests/extensions/test_held_noise.py::"
ENTROPY = "tests/extensions/test_entropy_target.py::"
CLIPPED = "tests/envs/wrappers/test_clip_actions.py::"
DRIFTS = "tests/ppo/losses/test_drifts.py::"
MUTATIONS = [
    Mutation(
        "of two inner numbers with one name the first is taken",
        "own = name if len(outermost) == 1 and parameter is same[0] else parameter.dotted",
        "own = name if parameter is same[0] else parameter.dotted",
        (PARAMS + "test_nested_numbers_are_reached_by_name_and_by_dotted_path",),
        "wrappers/params.py",
    ),
    Mutation(
        "numbers that a variant does not read are parameters",
        'chosen = None if field is None else field.metadata.get("parameters")',
        "chosen = None",
        (PARAMS + "test_numbers_that_a_variant_does_not_read_are_refused",),
        "wrappers/params.py",
    ),
    Mutation(
        "the environment of a curriculum stays as it was",
        "    env, numbers = annealed_env(env, state, total_iterations)\n",
        "    _, numbers = annealed_env(env, state, total_iterations)\n",
        (CURRICULUM + "test_rewards_follow_the_course",),
        "ppax/training/loop.py",
    ),
    Mutation(
        "evaluation at the start of a curriculum",
        "values_at(env, 1.0)",
        "values_at(env, 0.0)",
        (CURRICULUM + "test_evaluation_has_the_end_of_the_course",),
        "envs/making.py",
    ),
    Mutation(
        "whole numbers of a curriculum are cut off",
        "jnp.round(jnp.asarray(new))",
        "jnp.floor(jnp.asarray(new))",
        (CURRICULUM + "test_whole_numbers_are_rounded",),
        "envs/curriculum.py",
    ),
    Mutation(
        "a new host environment is seeded by the operating system",
        "seed = int(self._rng.integers(2**31)) if seed is None else seed",
        "seed = seed",
        (DRAWN + "test_every_episode_has_a_number_of_its_own",),
        "hosting/domain_randomisation.py",
    ),
    Mutation(
        "host environments of earlier episodes stay open",
        "            self.env.close()  # first",
        "            pass  # first",
        (DRAWN + "test_every_episode_has_a_number_of_its_own",),
        "hosting/domain_randomisation.py",
    ),
    Mutation(
        "SPO's penalty without the size of the advantage",
        "penalty = jnp.abs(advantage) * (ratio - 1.0) ** 2",
        "penalty = (ratio - 1.0) ** 2",
        (DRIFTS + "test_spo_by_hand",),
        "ppo/losses.py",
    ),
    Mutation(
        "SPO's optimum at half the distance",
        "(2.0 * self.clip_eps)",
        "(1.0 * self.clip_eps)",
        (DRIFTS + "test_spo_by_hand", "tests/system/test_reference.py"),
        "ppo/losses.py",
    ),
    Mutation(
        "a rollback that jumps at the end of the clip range",
        "back = end + self.slope * (end - ratio)",
        "back = end - self.slope * ratio",
        (DRIFTS + "test_rollback_by_hand",),
        "ppo/losses.py",
    ),
    Mutation(
        "the noise is drawn at every step",
        "due = age % self.steps == 0",
        "due = age == age",
        (NOISE + "test_actions_change_every_three_steps",),
        "extensions/held_noise.py",
    ),
    Mutation(
        "all streams have one noise",
        "drawn = jax.vmap(lambda one: jax.random.normal(one, matrix.shape[1:], jnp.float32))(keys)",
        "drawn = jnp.broadcast_to(jax.random.normal(keys[0], matrix.shape[1:], jnp.float32), matrix.shape)",
        (NOISE + "test_actions_change_every_three_steps",),
        "extensions/held_noise.py",
    ),
    Mutation(
        "the density has the standard deviations of one feature",
        "return 0.5 * jnp.log(z**2 @ jnp.exp(2.0 * log_std) + SMALLEST)",
        "return 0.5 * jnp.log(jnp.abs(z) @ jnp.exp(2.0 * log_std) + SMALLEST)",
        (GSDE + "test_the_density_is_that_of_all_matrices_in_float64",),
        "distributions/normal.py",
    ),
    Mutation(
        "the size of the noise trains the features",
        "z = jax.lax.stop_gradient(features)",
        "z = features",
        (GSDE + "test_features_of_zero_are_finite_and_the_noise_does_not_train_them",),
        "distributions/normal.py",
    ),
    Mutation(
        "rollouts store the noise",
        "carry = remembered(actor.carry)\n",
        "carry = actor.carry\n",
        (NOISE + "test_actions_change_every_three_steps", NOISE + "test_memory_and_noise_are_apart"),
        "ppax/training/collection.py",
    ),
    Mutation(
        "quantiles from the top",
        "jnp.where(error < 0.0, 1.0 - tau, tau)",
        "jnp.where(error < 0.0, tau, 1.0 - tau)",
        ("tests/ppo/critics/test_quantile.py::test_loss_and_gradient_by_hand",),
        "ppo/critics.py",
    ),
    Mutation(
        "the entropy coefficient falls where there is too little entropy",
        '(self.target - learned.metrics["entropy"])',
        '(learned.metrics["entropy"] - self.target)',
        (ENTROPY + "test_the_coefficient_by_hand", ENTROPY + "test_the_entropy_reaches_the_target_and_not_without"),
        "extensions/entropy_target.py",
    ),
    Mutation(
        "the loss has the entropy coefficient of the start",
        "                ent_coef=agent.ent_coef,",
        "                ent_coef=self.ent_coef,",
        (ENTROPY + "test_the_loss_has_the_learned_coefficient",),
        "ppax/ppo/ppo.py",
    ),
    Mutation(
        "minibatches are shuffled all the same",
        "order = permutation(key, sequences) if self.shuffle else",
        "order = permutation(key, sequences) if True else",
        ("tests/ppo/minibatches/test_shuffle.py::test_without_shuffling_sequences_stay_in_order",),
        "ppo/minibatches.py",
    ),
    Mutation(
        "minibatches of a number of rows that is no whole number of sequences",
        "if self.rows % length or total % self.rows:",
        "if total % self.rows:",
        (
            "tests/ppo/minibatches/test_shuffle.py::test_rows_that_do_not_divide_a_rollout_are_refused_with_the_nearest_that_do",
        ),
        "ppo/minibatches.py",
    ),
    Mutation(
        "rows of a minibatch are taken for sequences",
        "return self.rows // length",
        "return self.rows",
        (
            "tests/ppo/minibatches/test_shuffle.py::test_a_size_in_rows_draws_as_the_number_of_minibatches_with_so_many_rows",
        ),
        "ppo/minibatches.py",
    ),
    Mutation(
        "the doctor counts no gradient steps of minibatches of a number of rows",
        "minibatches = rollout / record.number",
        "minibatches = rollout * record.number",
        ("tests/reports/test_doctor.py::test_gradient_steps_of_minibatches_of_a_number_of_rows",),
        "reports/doctor.py",
    ),
    Mutation(
        "clipped actions reach the environment as they were",
        "return jnp.clip(action, *bounds)",
        "return action",
        ("tests/envs/wrappers/test_clip_actions.py::test_the_environment_gets_clipped_actions",),
        "wrappers/clip_actions.py",
    ),
    Mutation(
        "actions are clipped to numbers outside their Box",
        "outside = (space.low > bounds[1]) | (space.high < bounds[0])",
        "outside = (space.low > space.high)",
        ("tests/envs/wrappers/test_clip_actions.py::test_a_box_outside_the_bounds_is_refused",),
        "wrappers/clip_actions.py",
    ),
    Mutation(
        "clipped actions reach an environment on the host as they were",
        "self.stepper.send(number, self._clipped(action))",
        "self.stepper.send(number, action)",
        (CLIPPED + "test_an_environment_on_the_host_gets_clipped_actions",),
        "hosting/stepper.py",
    ),
    Mutation(
        "clipped actions of a vector are those of its space",
        "        clip_actions=settings.clip_actions,\n    )\n    factories",
        "    )\n    factories",
        (CLIPPED + "test_a_vector_of_gymnasium_gets_clipped_actions",),
        "hosting/host_env.py",
    ),
    Mutation(
        "policies on the host choose among unclipped actions",
        "            self.action_space = narrowed_actions(spec.action_space, clip)\n",
        "",
        (CLIPPED + "test_an_environment_on_the_host_gets_clipped_actions",),
        "hosting/stepper.py",
    ),
    Mutation(
        "one number of clip_actions is the upper bound of both",
        "return [-float(given[0]), float(given[0])]",
        "return [0.0, float(given[0])]",
        (CLIPPED + "test_a_run_file_chooses_it",),
        "core/options.py",
    ),
    Mutation(
        "deterministic rollouts sample",
        "        if deterministic:\n            decision = mode_of(",
        "        if False:\n            decision = mode_of(",
        ("tests/training/test_collection_modes.py::test_a_deterministic_rollout_has_the_modes",),
        "ppax/training/collection.py",
    ),
]
