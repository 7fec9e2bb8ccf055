"""Breaks of what the policy and the critic learn from: steps without a choice, empty minibatches, weights, chunks."""

from breaks.base import Mutation

MASKS = "tests/arrays/test_masks.py::"
IDLE = MASKS + "test_an_idle_step_takes_the_first_action_and_has_weight_0_for_the_policy"
EMPTY = "tests/ppo/test_empty_minibatch.py::"
BESIDE = EMPTY + "test_an_empty_minibatch_skips_its_gradient_step_and_its_metrics"
ALIKE = "tests/system/test_reference.py::test_standardize_maps_constant_advantages_to_0_and_keeps_single_ones"
CHUNKS = "tests/ppo/test_gradient.py::"
DRAWN = "tests/ppo/minibatches/test_in_training.py::"
UNBIASED = DRAWN + "test_importance_weights_make_the_expected_gradient_unbiased"
TERMS = "tests/extensions/test_terms.py::"
KL = "tests/extensions/test_kl_control.py::"

TRACING = "tests/devices/test_tracing.py::"
MUTATIONS: list[Mutation] = [
    Mutation(
        "steps without a choice leave the value loss",
        "return RowMasks(steps.valid, masks.acting(steps))",
        "acting = masks.acting(steps)\n    return RowMasks(steps.valid if acting is None else acting, acting)",
        (IDLE, MASKS + "test_the_value_of_forced_waiting_is_learned"),
    ),
    Mutation(
        "steps without a choice stay in the policy's loss",
        "steps.valid & allows_something(steps.action_mask)",
        "steps.valid",
        (IDLE,),
    ),
    Mutation(
        "advantages are standardised over steps without a choice",
        "advantage = standardize(advantage, acting, weight)",
        "advantage = standardize(advantage, valid, weight)",
        (IDLE,),
    ),
    Mutation(
        "a minibatch without a valid row is a step",
        "proceed = minibatch.learns if observed.proceed is None else minibatch.learns & observed.proceed",
        "proceed = minibatch.learns | True if observed.proceed is None else observed.proceed",
        (EMPTY + "test_a_rollout_without_a_valid_row_changes_no_bit_of_the_learner", BESIDE),
    ),
    Mutation(
        "the largest reward of a rollout without a valid row is not finite",
        "jnp.where(known, reward.max(where=valid, initial=-jnp.inf), 0.0)",
        "reward.max(where=valid, initial=-jnp.inf)",
        ("tests/ppo/test_empty_minibatch.py::test_a_rollout_without_a_valid_row_changes_no_bit_of_the_learner",),
        "ppo/diagnostics.py",
    ),
    Mutation(
        "two-hot critic: with 64-bit types the value head begins in them",
        "place = jnp.arange(self.num_bins, dtype=jnp.float32) / (self.num_bins - 1)",
        "place = jnp.arange(self.num_bins) / (self.num_bins - 1)",
        ("tests/system/test_x64.py::test_a_checkpoint_written_with_64_bit_types_resumes_without",),
        "ppo/critics.py",
    ),
    Mutation(
        "metrics are means over empty minibatches too",
        "/ jnp.maximum(learns.sum(dtype=jnp.float32), 1.0)",
        "/ learns.size",
        (BESIDE,),
        "ppo/diagnostics.py",
    ),
    Mutation(
        "an empty minibatch lowers the KL penalty",
        'd = masked_mean(history["approx_kl"][-1], acts[-1])',
        'd = history["approx_kl"][-1].mean()',
        (KL + "test_minibatches_without_allowed_actions_do_not_change_the_kl_coefficient",),
    ),
    Mutation(
        "advantages that are all alike become their rounding",
        "std > ALIKE * jnp.abs(average)",
        "std > 0.0 * jnp.abs(average)",
        (ALIKE,),
    ),
    Mutation(
        "padding of the last chunk counts",
        "jnp.pad(valid, ((0, padding), (0, 0)))",
        "copies(valid)",
        (CHUNKS + "test_every_chunk_size_gives_the_gradient_without_chunks",),
    ),
    Mutation(
        "a chunk of less than a sequence is the whole minibatch",
        "max(1, chunk_rows // seq_len))",
        "(chunk_rows // seq_len or sequences))",
        (CHUNKS + "test_chunks_are_at_most_chunk_rows_and_hardly_smaller",),
    ),
    Mutation(
        "further terms are logged only",
        "loss = loss + means[name]",
        "loss = loss + 0.0 * means[name]",
        (TERMS + "test_terms_are_means_over_valid_rows_by_their_importance",),
    ),
    Mutation(
        "further terms leave out steps without a choice",
        "weighted(x, weights.value) for x in (*further",
        "weighted(x, weights.policy) for x in (*further",
        (TERMS + "test_terms_are_means_over_valid_rows_by_their_importance",),
    ),
    Mutation(
        "further terms see features before the memory",
        "value_outputs, value, features, outputs.noise_basis)",
        "value_outputs, value, jax.vmap(network.encode, (None, 0))(params, obs), ())",
        (TERMS + "test_features_are_the_input_of_decide",),
    ),
    Mutation(
        "the value loss has no importance weights",
        "RowWeights(importance, importance, None)",
        "RowWeights(importance, None, None)",
        (UNBIASED + "[options0]",),
    ),
    Mutation(
        "rows that are not valid bias weighted draws",
        "weight * drawn**self.beta",
        "weight",
        (UNBIASED + "[options0]",),
    ),
    Mutation(
        "advantages are standardised without their weights",
        "advantage = standardize(advantage, acting, weight)",
        "advantage = standardize(advantage, acting)",
        (DRAWN + "test_advantages_are_standardised_with_importance_weights",),
    ),
    Mutation(
        "KL controls are accepted where no KL is seen",
        "if self.needs_latest_policy:",
        "if False:",
        (KL + "test_a_control_is_refused_with_a_single_gradient_step",),
    ),
    Mutation(
        "V-trace is accepted where every ratio is 1",
        "        if type(advantage) in instead:",
        "        if False:",
        ("tests/ppo/test_recompute.py::test_v_trace_is_refused_where_ratios_are_not_recomputed",),
    ),
    Mutation(
        "inclusion weights are accepted with replacement",
        'if self.replacement and self.weights == "inclusion":',
        'if False and self.weights == "inclusion":',
        ("tests/ppo/minibatches/test_prioritised.py::test_sizes",),
    ),
    Mutation(
        "a function is traced once in a process",
        "    return copy\n\n\ndef compiled",
        "    return function\n\n\ndef compiled",
        (
            TRACING + "test_a_new_evaluation_sees_it",
            TRACING + "test_a_new_fit_sees_a_changed_attribute_global_or_method",
        ),
        file="devices/tracing.py",
    ),
    Mutation(
        "the iterations of training are traced once in a process",
        "jitted_iteration = jax.jit(renewed(iteration))",
        "jitted_iteration = jax.jit(iteration)",
        (TRACING + "test_a_new_fit_sees_a_changed_attribute_global_or_method",),
    ),
    Mutation(
        "programs of `ppax.compile` are not kept on disk",
        "    with kept_programs():\n        return backend_of(env).compile(agent, state, stop)",
        "    return backend_of(env).compile(agent, state, stop)",
        ("tests/storage/test_cache.py::test_programs_compiled_ahead_of_time_are_cached",),
        file="training/backends.py",
    ),
    Mutation(
        "a metric without a value is NaN in the program",
        "    means = jnp.where(divisor == 0.0, MISSING, means)",
        "    means = jnp.where(divisor == 0.0, jnp.nan, means)",
        ("tests/run/test_debugging.py::test_train_in_the_users_own_jit_is_no_fault",),
    ),
    Mutation(
        "the action space of gymnax is that of its default parameters",
        "        inner = registry.with_spaces(suite, inner, of_inner)",
        "        pass",
        ("tests/envs/suites/test_gymnax.py::test_action_spaces_follow_the_parameters",),
    ),
    Mutation(
        "an environment object of a suite is taken for one of ppax",
        "    require_adapted(env.env if isinstance(env, VectorEnv) else env)",
        "    pass",
        ("tests/agents/test_suite_objects.py",),
    ),
]
