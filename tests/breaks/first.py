"""Breaks of equations, data flow, runs, hosts and environments."""

from breaks.base import Mutation

GAE = "tests/ppo/advantages/test_gae.py::"
RETURNS = "tests/ppo/advantages/test_returns.py::"
VTRACE = "tests/ppo/advantages/test_vtrace.py::"
CANONICAL = "tests/ppo/advantages/test_vtrace_canonical.py::"
PRODUCTS = "tests/networks/test_products.py::"
REGRESSION = "tests/ppo/critics/test_regression.py::"
CLIPPED = "tests/ppo/losses/test_clipped.py::"
DRIFTS = "tests/ppo/losses/test_drifts.py::"
PRIORITISED = "tests/ppo/minibatches/test_prioritised.py::"
IN_TRAINING = "tests/ppo/minibatches/test_in_training.py::"
SEQUENCES = "tests/arrays/test_sequences.py::"
NORMALIZE = "tests/ppo/test_normalization.py::"
ACCUMULATE = "tests/ppo/test_gradient.py::"
KL = "tests/extensions/test_kl_control.py::"
VECTOR = "tests/envs/test_vector.py::"
TRAIN = "tests/training/test_training.py::"
PPO = "tests/ppo/test_ppo.py::"
PARALLEL = "tests/devices/test_sharding.py::"
EVALUATE = "tests/training/test_evaluation.py::"
RESUME = "tests/run/test_resume.py::"
BENCH = "tests/training/test_bench.py::"
UPDATE = "tests/system/test_reference.py::test_every_layout_of_the_program_agrees_with_the_reference"
ROWS = UPDATE + "[rows-Program(devices=1, chunk_rows=5, unroll=None)]"
NORMALISED = UPDATE + "[sequences-Program(devices=1, chunk_rows=5, unroll=None)]"
RATIO = PPO + "test_the_ratio_is_one_before_the_first_gradient_step"
COUNTED = TRAIN + "test_episodes_and_steps_are_counted_exactly"
TRACE = NORMALIZE + "test_the_discounted_return_counts_the_last_reward_and_forgets_it_afterwards"
HOST = "tests/envs/hosting/test_host.py::"
NOT_VALID = PPO + "test_rows_that_do_not_count_change_nothing_bit_for_bit[discrete-False-minibatch]"

ESTIMATORS = [
    Mutation(
        "a truncation taken for a death in GAE",
        "bootstrap = jnp.where(steps.terminated, 0.0, next_value)\n"
        "        delta = steps.reward + gamma * bootstrap - steps.value  # eq. 11",
        "bootstrap = jnp.where(steps.ended, 0.0, next_value)\n"
        "        delta = steps.reward + gamma * bootstrap - steps.value  # eq. 11",
        (GAE + "test_truncation_bootstraps_and_termination_does_not",),
        "ppo/advantages.py",
    ),
    Mutation(
        "terminated and truncated swapped in GAE",
        "bootstrap = jnp.where(steps.terminated, 0.0, next_value)\n"
        "        delta = steps.reward + gamma * bootstrap - steps.value  # eq. 11",
        "bootstrap = jnp.where(steps.truncated, 0.0, next_value)\n"
        "        delta = steps.reward + gamma * bootstrap - steps.value  # eq. 11",
        (GAE + "test_agrees_with_a_float64_loop_on_1000_random_streams",),
        "ppo/advantages.py",
    ),
    Mutation(
        "no lambda in GAE",
        "discounted_sum(delta, gamma * self.gae_lambda, steps.ended)",
        "discounted_sum(delta, gamma, steps.ended)",
        (GAE + "test_lambda_0_is_the_one_step_advantage",),
        "ppo/advantages.py",
    ),
    Mutation(
        "lambda missing on the first step",
        "steps.ended)  # eq. 12\n        return Targets(advantage, advantage + steps.value)",
        "steps.ended)  # eq. 12\n        later = jnp.where(steps.ended, 0.0, jnp.append(advantage[1:], 0.0))\n"
        "        return Targets(delta + gamma * later, advantage + steps.value)",
        (GAE + "test_agrees_with_a_float64_loop_on_1000_random_streams",),
        "ppo/advantages.py",
    ),
    Mutation(
        "the trace goes on beyond a truncation",
        "discounted_sum(delta, gamma * self.gae_lambda, steps.ended)",
        "discounted_sum(delta, gamma * self.gae_lambda, steps.terminated)",
        (GAE + "test_a_truncation_cuts_the_trace",),
        "ppo/advantages.py",
    ),
    Mutation(
        "an end aligned with the step after it",
        "discounted_sum(delta, gamma * self.gae_lambda, steps.ended)",
        "discounted_sum(delta, gamma * self.gae_lambda, jnp.roll(steps.ended, 1))",
        (GAE + "test_termination_applies_to_the_step_that_ended",),
        "ppo/advantages.py",
    ),
    Mutation(
        "the critic learns the advantage",
        "steps.ended)  # eq. 12\n        return Targets(advantage, advantage + steps.value)",
        "steps.ended)  # eq. 12\n        return Targets(advantage, advantage)",
        (GAE + "test_two_steps_by_hand",),
        "ppo/advantages.py",
    ),
    Mutation(
        "bootstrap with V of the same step",
        "jnp.concatenate([steps.value[1:], last_value[None]])",
        "steps.value",
        (ROWS,),
    ),
    Mutation(
        "TD(lambda) counts the value beyond fully",
        "share * next_value)",
        "next_value)",
        (RETURNS + "test_td_lambda_is_the_mean_of_n_step_returns",),
    ),
    Mutation(
        "Monte Carlo bootstraps after a death",
        "bootstrap = last & ~steps.terminated",
        "bootstrap = last",
        (RETURNS + "test_monte_carlo_is_the_longest_return",),
    ),
    Mutation(
        "V-trace does not clip the step",
        "jnp.minimum(w, self.rho_clip) * (steps",
        "w * (steps",
        (VTRACE + "test_agrees_with_the_sum_of_its_definition",),
    ),
    Mutation(
        "V-trace does not clip the trace",
        "gamma * self.gae_lambda * jnp.minimum(w, self.c_clip)",
        "gamma * self.gae_lambda * w",
        (VTRACE + "test_agrees_with_the_sum_of_its_definition",),
    ),
    Mutation(
        "canonical V-trace does not weigh the advantage",
        "Targets(rho * (steps.reward + gamma * next_target",
        "Targets((steps.reward + gamma * next_target",
        (CANONICAL + "test_agrees_with_the_sum_of_the_paper",),
    ),
    Mutation(
        "rewards spread into the episode before",
        "discounted_sum(reward, decay, ended)",
        "discounted_sum(reward, decay, ended & False)",
        (RETURNS + "test_spread_rewards",),
    ),
    Mutation(
        "NaN beyond an end spreads",
        "discount_t * jnp.where(ended_t, 0.0, later)",
        "discount_t * (1.0 - ended_t) * later",
        (GAE + "test_nan_after_an_episode_end_does_not_propagate",),
    ),
]
LOSSES = [
    Mutation(
        "entropy sign",
        '- ent_coef * means["entropy"]',
        '+ ent_coef * means["entropy"]',
        (CLIPPED + "test_every_term_by_hand",),
    ),
    Mutation(
        "k1 for k3",
        "return jnp.expm1(log_ratio) - log_ratio",
        "return -log_ratio",
        (CLIPPED + "test_approx_kl_is_never_negative",),
    ),
    Mutation(
        "KL in the other direction",
        "return jnp.expm1(log_ratio) - log_ratio",
        "return jnp.expm1(-log_ratio) + log_ratio",
        (CLIPPED + "test_approx_kl_is_the_kl_from_old_to_new",),
    ),
    Mutation(
        "the ratio clipped on one side",
        "clipped = jnp.clip(ratio, 1.0 - self.clip_eps,",
        "clipped = jnp.clip(ratio, 0.0,",
        (CLIPPED + "test_the_gradient_is_zero_only_outside_the_clip_range_in_the_improving_direction",),
        "ppo/losses.py",
    ),
    Mutation(
        "the better of ratio and clipped ratio",
        "jnp.minimum(ratio * advantage, clipped",
        "jnp.maximum(ratio * advantage, clipped",
        (CLIPPED + "test_the_gradient_is_zero_only_outside_the_clip_range_in_the_improving_direction",),
        "ppo/losses.py",
    ),
    Mutation(
        "dual clip for good actions",
        "jnp.where(advantage < 0.0, jnp.maximum(surrogate",
        "jnp.where(advantage > 0.0, jnp.maximum(surrogate",
        (CLIPPED + "test_dual_clip_bounds_the_ratio_for_negative_advantages",),
    ),
    Mutation(
        "dual clip's sign",
        "jnp.maximum(surrogate, self.dual_clip * advantage)",
        "jnp.maximum(surrogate, -self.dual_clip * advantage)",
        (CLIPPED + "test_dual_clip_bounds_the_ratio_for_negative_advantages",),
    ),
    Mutation(
        "a runaway ratio is not bounded",
        "LOG_RATIO_BOUND = 20.0",
        "LOG_RATIO_BOUND = 1e9",
        (CLIPPED + "test_an_extreme_ratio_stays_finite",),
    ),
    Mutation(
        "Huber without the half",
        "(jnp.abs(error) - 0.5 * inside)",
        "(jnp.abs(error) - inside)",
        (REGRESSION + "test_huber_is_quadratic_near_the_target_and_linear_beyond_delta",),
    ),
    Mutation(
        "the value loss without the half",
        "return 0.5 * error**2",
        "return error**2",
        (CLIPPED + "test_every_term_by_hand",),
    ),
    Mutation(
        "the KL penalty rewards",
        "self.kl_coef * k3(log_ratio) - jnp.exp",
        "-self.kl_coef * k3(log_ratio) - jnp.exp",
        (DRIFTS + "test_the_penalty_pulls_back_to_the_policy_that_acted",),
    ),
    Mutation(
        "alpha for bad actions",
        "jnp.where(good, self.alpha, self.beta)",
        "jnp.where(good, self.beta, self.alpha)",
        (DRIFTS + "test_alpha_is_for_good_actions_and_beta_for_bad_ones",),
    ),
]
DATA = [
    Mutation(
        "means over all rows",
        "count = jnp.maximum(valid.sum(dtype=jnp.float32), 1.0)",
        "count = valid.size",
        (SEQUENCES + "test_masked_mean_and_std_equal_numpy_over_valid_rows",),
    ),
    Mutation(
        "losses mean over all rows",
        "jnp.maximum(valid.sum(dtype=jnp.float32), 1.0)\n\n\ndef masked_std",
        "valid.size\n\n\ndef masked_std",
        (CLIPPED + "test_invalid_rows_weigh_nothing",),
    ),
    Mutation(
        "sequences cut step by step",
        "jnp.swapaxes(x, 0, 1).reshape(",
        "x.reshape(",
        (SEQUENCES + "test_to_sequences_is_slicing",),
        "/sequences.py",
    ),
    Mutation(
        "advantages centred over all rows",
        "centred = advantage - average",
        "centred = advantage - advantage.mean()",
        (ROWS,),
    ),
    Mutation(
        "advantages over their variance",
        "std + 1e-8, jnp.inf",
        "std**2 + 1e-8, jnp.inf",
        (ROWS,),
    ),
    Mutation(
        "an empty place counts",
        "valid[index] & (index < valid.shape[0])[:, None]",
        "valid[index]",
        (IN_TRAINING + "test_padding_does_not_change_the_update",),
    ),
    Mutation(
        "importance weights are not applied",
        "RowWeights(importance, importance, None)",
        "RowWeights(None, None, None)",
        (IN_TRAINING + "test_importance_weights_scale_the_policy_gradient",),
    ),
    Mutation(
        "weights of the advantages are not applied",
        "advantage = advantage * advantage_weight[:, None]",
        "advantage = advantage + 0.0 * advantage_weight[:, None]",
        (IN_TRAINING + "test_importance_weights_make_the_expected_gradient_unbiased[advantage]",),
    ),
    Mutation(
        "the same order in every epoch",
        "keys = jax.random.split(key, self.num_epochs) if key.ndim == 0 else key",
        "keys = jax.random.wrap_key_data(jnp.broadcast_to(jax.random.key_data(key), (self.num_epochs, 2)))",
        (ROWS,),
        "ppax/ppo/ppo.py",
    ),
    Mutation(
        "priorities without alpha",
        "share**self.alpha",
        "share",
        (PRIORITISED + "test_probabilities_are_powers_of_sums_of_absolute_advantages",),
    ),
    Mutation(
        "rows that do not count have a priority",
        "jnp.abs(jnp.where(valid, advantage, 0.0)).sum(axis=1)",
        "jnp.abs(advantage).sum(axis=1)",
        (PRIORITISED + "test_invalid_rows_do_not_change_probabilities",),
    ),
    Mutation(
        "beta is not annealed",
        "start + (end - start) * share",
        "start + (end - start) * 0.0",
        (PRIORITISED + "test_beta_is_annealed_linearly",),
    ),
    Mutation(
        "importance weights upside down",
        "(chance.shape[0] * chance) ** -self.beta",
        "(chance.shape[0] * chance) ** self.beta",
        (PRIORITISED + "test_weights_by_hand",),
    ),
    Mutation(
        "statistics count rows that do not",
        "jnp.where(weight, y, 0.0).sum(axes)",
        "y.sum(axes)",
        (NORMALIZE + "test_invalid_rows_change_no_statistics",),
    ),
    Mutation(
        "statistics forget how far the means are apart",
        "+ rest * shift**2)",
        ")",
        (NORMALIZE + "test_chunking_does_not_matter",),
    ),
    Mutation(
        "statistics forget what rounding lost",
        "low = pair.low + (",
        "low = 0.0 * (",
        (NORMALIZE + "test_a_billion_samples_still_move_by_the_right_amount",),
    ),
    Mutation(
        "rewards over the variance",
        "steps.reward * jax.lax.rsqrt(stats.var.high + epsilon)",
        "steps.reward / (stats.var.high + epsilon)",
        (NORMALIZE + "test_reward_scaling_does_not_centre_and_clips",),
    ),
    Mutation(
        "a count that wraps",
        "count[1] + carry])",
        "count[1]])",
        ("tests/arrays/test_counter.py::test_add_is_exact",),
    ),
]
COLLECTING = [
    Mutation(
        "the reward trace forgets before the last reward",
        "reward_trace=gamma * actor.reward_trace + reward",
        "reward_trace=gamma * jnp.where(ended, 0.0, actor.reward_trace) + reward",
        (TRACE,),
    ),
    Mutation(
        "the reward trace goes on into the next episode",
        "reward_trace=jnp.where(ended, 0.0, counts.reward_trace)",
        "reward_trace=counts.reward_trace",
        (TRACE,),
    ),
    Mutation(
        "the reward trace discounts by a number of its own",
        "reward_trace=gamma * actor.reward_trace",
        "reward_trace=0.99 * actor.reward_trace",
        (TRACE,),
    ),
    Mutation(
        "returns of unfinished episodes",
        "total = jnp.where(over, returns, 0.0).sum(axis=0)",
        "total = returns.sum(axis=0)",
        (COUNTED,),
    ),
    Mutation(
        "returns go on into the next episode",
        "episode_return=jnp.where(logged_end, 0.0, counts.episode_return)",
        "episode_return=counts.episode_return",
        (COUNTED,),
    ),
    Mutation(
        "lengths count autoreset rows",
        "episode_length=actor.episode_length + valid",
        "episode_length=actor.episode_length + 1",
        (COUNTED,),
    ),
    Mutation(
        "memory does not go from step to step",
        "carry=decision.carry\n",
        "carry=actor.carry\n",
        (PPO + "test_carries_persist_over_rollouts_and_are_reset_at_an_episodes_start",),
    ),
    Mutation(
        "V of the last observation from another memory",
        "last = agent.policy(learner, actor.carry",
        "last = agent.policy(learner, agent.initial_carry(actor.first.shape[0])",
        (PPO + "test_v_of_the_last_observation_does_not_advance_memory",),
    ),
    Mutation(
        "V of the last observation advances memory",
        "return Collected(actor, rollout, finished_episodes(",
        "return Collected(actor._replace(carry=last.carry), rollout, finished_episodes(",
        (PPO + "test_v_of_the_last_observation_does_not_advance_memory",),
    ),
    Mutation(
        "the clipped action is stored",
        "action=decision.action,",
        "action=decision.env_action,",
        ("tests/ppo/test_ppo.py::test_the_ratio_is_one_before_the_first_gradient_step[clipped-False-True-constant]",),
    ),
    Mutation(
        "keys forget the device",
        "jnp.uint32(sharding.part_index() * env.num_envs)",
        "jnp.uint32(0)",
        (PARALLEL + "test_training_on_two_devices_equals_one[discrete]",),
    ),
    Mutation(
        "a time limit is a death",
        "            truncated=step.truncated | (elapsed >= self.max_steps),",
        "            terminated=step.terminated | (elapsed >= self.max_steps),",
        ("tests/envs/wrappers/test_time_limit.py::test_time_limit_truncates_and_never_terminates",),
    ),
    Mutation(
        "a time limit one step late",
        "(elapsed >= self.max_steps)",
        "(elapsed > self.max_steps)",
        ("tests/envs/wrappers/test_time_limit.py::test_time_limit_truncates_and_never_terminates",),
    ),
    Mutation(
        "autoreset rows count",
        "valid = ~state.ended",
        "valid = state.ended | True",
        (VECTOR + "test_the_final_observation_is_the_next_one_and_the_reset_step_is_invalid",),
    ),
    Mutation(
        "an episode begins one row early",
        "first = jnp.broadcast_to(over[:, None]",
        "first = jnp.broadcast_to(ended.all(axis=1)[:, None]",
        (VECTOR + "test_the_final_observation_is_the_next_one_and_the_reset_step_is_invalid",),
    ),
    Mutation(
        "all environments reset alike",
        "return jax.vmap(env.reset)(key)",
        "return jax.vmap(lambda _: env.reset(jax.random.clone(key[0])))(jnp.arange(key.shape[0]))",
        (VECTOR + "test_every_reset_is_fresh",),
    ),
    Mutation(
        "absent agents earn",
        "reward = jnp.where(valid, taken.reward.reshape(valid.shape), 0.0)",
        "reward = taken.reward.reshape(valid.shape)",
        (VECTOR + "test_an_agent_that_ended_is_absent_until_the_environment_resets",),
    ),
]
LEARNING = [
    Mutation(
        "statistics move before learning",
        "        trained = extensions.trained(learner)  #",
        "        learner = normalization.with_obs_stats(learner, batch.steps, self.normalization)\n"
        "        trained = extensions.trained(learner)  #",
        ("tests/ppo/test_ppo.py::test_the_ratio_is_one_before_the_first_gradient_step[clipped-False-True-constant]",),
        "/ppo.py",
    ),
    Mutation(
        "statistics of observations move twice",
        "learner = normalization.with_obs_stats(learner, batch.steps, self.normalization)",
        "learner = normalization.with_obs_stats(learner, batch.steps, self.normalization)\n"
        "        learner = normalization.with_obs_stats(learner, batch.steps, self.normalization)",
        (
            "tests/system/test_reference.py::test_update_agrees_with_the_reference[7-6-3-7-True-False-False-True-True-minibatch-]",
        ),
        "/ppo.py",
    ),
    Mutation(
        "statistics of observations never move",
        "learner = normalization.with_obs_stats(learner, batch.steps, self.normalization)",
        "learner = learner",
        (NORMALISED,),
    ),
    Mutation(
        "masks are not applied in learning",
        "        steps.first,\n        steps.action_mask,\n",
        "        steps.first,\n        None,\n",
        ("tests/ppo/test_ppo.py::test_the_ratio_is_one_before_the_first_gradient_step[masked-False-True-linear]",),
        "ppo/forward.py",
    ),
    Mutation(
        "memory is never forgotten",
        "remembered(carry), features, first)",
        "remembered(carry), features, first & False)",
        (PPO + "test_carries_persist_over_rollouts_and_are_reset_at_an_episodes_start",),
    ),
    Mutation(
        "rows that do not count are not emptied",
        "emptied = zero_rows(steps.valid, (steps,",
        "emptied = ((steps,",
        (NOT_VALID,),
    ),
    Mutation(
        "the actor's gradient is clipped after its optimiser",
        "optax.chain(optax.clip_by_global_norm(self.actor_max_grad_norm), actor)",
        "optax.chain(actor, optax.clip_by_global_norm(self.actor_max_grad_norm))",
        ("tests/ppo/optimizers/test_optimizers.py::test_a_group_is_clipped_before_its_optimizer",),
    ),
    Mutation(
        "each chunk's gradient is clipped",
        "return Gradient(share * gradient,",
        "return Gradient(share * gradient / jnp.maximum(1.0, 4.0 * jnp.linalg.norm(gradient)),",
        (ACCUMULATE + "test_accumulated_gradient_of_a_mean_by_hand",),
    ),
    Mutation(
        "chunks weigh alike",
        "share = valid.sum(dtype=jnp.float32) / all_rows",
        "share = 1.0 / chunks",
        (ACCUMULATE + "test_accumulated_gradient_of_a_mean_by_hand",),
    ),
    Mutation(
        "no sum over devices",
        "sums = sharding.total(jnp.concatenate([vector, metrics.means]))",
        "sums = jnp.concatenate([vector, metrics.means])",
        (PARALLEL + "test_training_on_two_devices_equals_one[discrete]",),
    ),
    Mutation(
        "every device takes the first share",
        "part_index() * (x.shape[0] // parts)",
        "0 * part_index()",
        (PARALLEL + "test_gather_keeps_the_order",),
    ),
    Mutation(
        "reward statistics of one device",
        "trace, valid = sharding.gather((rollout.reward_trace, steps.valid), axis=1)",
        "trace, valid = rollout.reward_trace, steps.valid",
        (PARALLEL + "test_training_on_two_devices_equals_one[continuous]",),
    ),
    Mutation(
        "KL stops one step late",
        "return Observed(state, ~state.stopped, skipped)",
        "return Observed(state, ~inner.stopped, skipped)",
        (KL + "test_a_stopped_update_is_one_with_fewer_epochs",),
    ),
    Mutation(
        "where the actor stops, the critic stops too",
        "return Observed(state, None, skipped)",
        "return Observed(state, ~state.stopped, skipped)",
        (KL + "test_the_actor_stops_alone_as_in_a_loop_by_hand",),
    ),
    Mutation(
        "the actor does not stop",
        "actor=Stopped(agent.optimizer.actor, inner.stopped)",
        "actor=agent.optimizer.actor",
        (KL + "test_the_actor_stops_alone_as_in_a_loop_by_hand",),
        "kl_control.py",
    ),
    Mutation(
        "the state of an actor's optimiser moves on after its stop",
        "kept = jax.tree.map(jnp.zeros_like, after[0]), state",
        "kept = jax.tree.map(jnp.zeros_like, after[0]), after[1]",
        (KL + "test_the_actor_stops_alone_as_in_a_loop_by_hand",),
    ),
    Mutation(
        "an actor stops alone whose optimiser is the critic's",
        'if self.stops == "actor" and not isinstance(agent.optimizer, ActorCritic):',
        "if False:",
        (KL + "test_an_actor_that_cannot_stop_alone_is_refused",),
    ),
    Mutation(
        "the KL-adaptive rate runs away",
        "jnp.where(kl > 2.0 * target, slower, jnp.where(near, faster, 1.0))",
        "jnp.where(kl > 2.0 * target, faster, jnp.where(near, slower, 1.0))",
        (KL + "test_learning_rate_rule_of_the_kl",),
    ),
    Mutation(
        "the KL penalty adapts the wrong way",
        "jnp.where(d > 1.5 * self.coef_target, 2.0,",
        "jnp.where(d > 1.5 * self.coef_target, 0.5,",
        (KL + "test_kl_coefficient_rule_of_the_kl",),
    ),
    Mutation(
        "recomputed sequences take another's end",
        "inputs.end_value[pieces - 1 :: pieces]",
        "inputs.end_value[::pieces]",
        ("tests/ppo/test_recompute.py::test_joined_sequences_keep_the_end_value_of_the_last_one",),
    ),
    Mutation(
        "the optimiser's decays swapped",
        "b1=self.b1, b2=self.b2, eps=self.eps)",
        "b1=self.b2, b2=self.b1, eps=self.eps)",
        (ROWS,),
    ),
    Mutation(
        "Muon's vectors at the rate of matrices",
        "adam_learning_rate=learning_rate * self.adam_scale",
        "adam_learning_rate=learning_rate",
        ("tests/ppo/optimizers/test_optimizers.py::test_muon_equals_optax",),
    ),
    Mutation(
        "the critic's optimiser for the actor",
        'optax.partition({"actor": actor, "critic": critic}',
        'optax.partition({"actor": critic, "critic": critic}',
        ("tests/ppo/optimizers/test_optimizers.py::test_actor_and_critic_have_separate_optimizers",),
    ),
    Mutation(
        "the standard deviation is its own logarithm",
        "jnp.exp(self.log_std) * noise",
        "self.log_std * noise",
        ("tests/distributions/test_normal.py::test_sampling_moments",),
        "distributions/normal.py",
    ),
    Mutation(
        "log_std has no gradient",
        "z = (u - self.mean) * jnp.exp(-self.log_std)",
        "z = (u - self.mean) * jnp.exp(-jax.lax.stop_gradient(self.log_std))",
        ("tests/distributions/test_normal.py::test_gradients_by_hand",),
        "distributions/normal.py",
    ),
    Mutation(
        "the entropy's constant",
        "self.log_std + 0.5 * (LOG_2PI + 1.0)",
        "self.log_std + 0.5 * LOG_2PI",
        ("tests/distributions/test_normal.py::test_entropy_is_the_mean_of_minus_log_prob",),
        "distributions/normal.py",
    ),
    Mutation(
        "memory in bfloat16",
        "in_float32((memory.carry, outputs.distribution, outputs.value))",
        "cast((memory.carry, outputs.distribution, outputs.value), dtype)",
        ("tests/system/test_precision.py",),
    ),
    Mutation(
        "products summed in bfloat16",
        "return jax.lax.dot_general(a, b, axes, precision, preferred_element_type=jnp.float32)",
        # explicitly: XLA removes the conversions where the processor multiplies in float32
        "return jax.lax.reduce_precision(jax.lax.dot_general(a, b, axes, preferred_element_type=jnp.float32), 8, 7)",
        (PRODUCTS + "test_factors_are_rounded_and_accumulation_is_float32",),
    ),
    Mutation(
        "blocks of a transposed matrix side by side",
        "_kept(blocks).transpose(1, 0, 2)",
        "_kept(blocks)",
        (PRODUCTS + "test_gradients_are_products_of_rounded_factors",),
    ),
    Mutation(
        "short layers rounded too",
        "return min(kernel.shape) >= MIN_SIDE",
        "return min(kernel.shape) >= 1",
        (PRODUCTS + "test_kernels_below_min_side_are_not_rounded",),
    ),
    Mutation(
        "the gradient of weights as of the first factor",
        'form={"AB": "AtB", "AtB": "AB"}[form], rounded',
        'form={"AB": "AtB", "AtB": "AtB"}[form], rounded',
        (PRODUCTS + "test_second_derivatives",),
    ),
    Mutation(
        "the narrower factor is transposed, and its product is not",
        'return _kept(_multiply(_kept(b.T), a, form="AB", rounded=False)).T',
        'return _kept(_multiply(_kept(b.T), a, form="AB", rounded=False)).reshape(a.shape[1], b.shape[1])',
        (PRODUCTS + "test_float32_gradients_equal_float64",),
    ),
    Mutation(
        "the derivative of a product in float32 leaves out that by the features",
        "terms = [] if isinstance(of_x, SymbolicZero) else [multiply(of_x, kernel)]",
        "terms: Any = []",
        (PRODUCTS + "test_float32_gradients_equal_float64",),
    ),
]
RUNNING = [
    Mutation(
        "schedules one iteration ahead",
        "progress = state.iteration / total_iterations",
        "progress = (state.iteration + 1) / total_iterations",
        (TRAIN + "test_learning_rates_of_a_schedule",),
    ),
    Mutation(
        "the same key in every iteration",
        "key, collect_key, update_keys = keys[0], keys[1], keys[2:]",
        "key, collect_key, update_keys = jax.random.clone(state.key), keys[1], keys[2:]",
        (TRAIN + "test_no_two_iterations_share_a_key",),
    ),
    Mutation(
        "autoreset rows counted as steps",
        "rollout.steps.valid.sum(dtype=jnp.uint32)",
        "jnp.uint32(rollout.steps.valid.size)",
        (COUNTED,),
    ),
    Mutation(
        "means of episodes over iterations",
        'jnp.where(each(kinds, "per_episode", "std"), totals.means[counts_of(kinds)], num_iterations)',
        "num_iterations",
        (COUNTED,),
    ),
    Mutation(
        "the ratio of the last step reported as the first",
        "means=steps.means[0, 0], tops=tops[1]",
        "means=steps.means[-1, -1], tops=tops[0]",
        ("tests/ppo/test_ppo.py::test_the_ratio_is_one_before_the_first_gradient_step[clipped-False-True-constant]",),
    ),
    Mutation(
        "evaluation without the statistics of training",
        "policy = agent.policy(learner, actor.carry",
        "policy = agent.policy(learner._replace(obs_stats=None), actor.carry",
        (EVALUATE + "test_observations_are_normalised_as_in_training",),
        "ppax/training/episodes.py",
    ),
    Mutation(
        "evaluation samples when it should not",
        "distribution.mode() if deterministic else",
        "distribution.mode() if not deterministic else",
        (EVALUATE + "test_deterministic_evaluation_takes_the_mode",),
    ),
    Mutation(
        "evaluation counts the next episode too",
        "counted = out.valid & ~state.finished",
        "counted = out.valid",
        (EVALUATE + "test_an_early_end_is_not_followed_by_a_second_episode",),
    ),
    Mutation(
        "evaluation keeps memory over episodes",
        "carry=policy.carry,\n    )",
        "carry=actor.carry,\n    )",
        (EVALUATE + "test_memory_is_carried_from_step_to_step",),
    ),
    Mutation(
        "half of a seed",
        "seed >> 32) if seed >> 32 else key",
        "0) if seed >> 32 else key",
        ("tests/cli/test_main.py::test_every_bit_of_a_seed_matters",),
    ),
    Mutation(
        "a checkpoint without the optimiser's state",
        "return state_arrays.from_arrays(like, arrays,",
        'arrays |= {n: x * 0 for n, x in arrays.items() if "opt_state" in n}\n    '
        "return state_arrays.from_arrays(like, arrays,",
        (RESUME + "test_a_resumed_run_equals_an_uninterrupted_one[CartPole-v1-False]",),
    ),
    Mutation(
        "a checkpoint without its key",
        "return state_arrays.from_arrays(like, arrays,",
        'arrays["key"] = arrays["key"] * 0\n    return state_arrays.from_arrays(like, arrays,',
        (RESUME + "test_a_resumed_run_equals_an_uninterrupted_one[CartPole-v1-False]",),
    ),
    Mutation(
        "a checkpoint without statistics",
        "return state_arrays.from_arrays(like, arrays,",
        'arrays |= {n: x * 0 for n, x in arrays.items() if "_stats" in n}\n    '
        "return state_arrays.from_arrays(like, arrays,",
        (RESUME + "test_a_resumed_run_equals_an_uninterrupted_one[CartPole-v1-True]",),
    ),
    Mutation(
        "a checkpoint without the iteration",
        "return state_arrays.from_arrays(like, arrays,",
        'arrays["iteration"] = arrays["iteration"] - 1\n    return state_arrays.from_arrays(like, arrays,',
        (RESUME + "test_a_resumed_run_equals_an_uninterrupted_one[CartPole-v1-False]",),
    ),
    Mutation(
        "a damaged checkpoint is believed",
        'if digest != manifest.get("sha256"):',
        "if False:",
        ("tests/run/test_checkpoint.py::test_a_damaged_checkpoint_is_named_and_skipped",),
    ),
    Mutation(
        "members of a sweep share a rate",
        "        return jnp.asarray(x)\n\n    return jax.tree_util.tree_map_with_path",
        "        return jnp.broadcast_to(x[0], x.shape)\n\n    return jax.tree_util.tree_map_with_path",
        ("tests/training/test_sweeps.py::test_members_equal_their_separate_runs[3]",),
    ),
    Mutation(
        "a limit is left out",
        "if low is not None and value < low:",
        "if low is not None and value < low - 1:",
        ("tests/config/test_config.py::test_a_bad_value_is_refused_by_name",),
    ),
    Mutation(
        "an unknown option is ignored",
        "if path not in known and path not in free:",
        "if False:",
        ("tests/config/test_config.py::test_an_unknown_option_is_refused_with_the_nearest",),
    ),
    Mutation(
        "the user's devices overridden",
        'if jax.config.values["jax_num_cpu_devices"] < 0 and not by_flag:',
        "if True:",
        (PARALLEL + "test_a_users_device_count_takes_precedence",),
    ),
    Mutation(
        "the rule of devices ignores sizes",
        "if num_envs % d == 0 and minibatch % d == 0",
        "if True",
        (PARALLEL + "test_default_number_of_devices",),
        "devices/layout.py",
    ),
    Mutation(
        "the guard is blind to statics",
        "            elif one != other:",
        "            elif False:",
        ("tests/training/test_compilation.py::test_errors_name_the_changed_field",),
    ),
    Mutation(
        "the guard is blind to shapes",
        "if before != now:",
        "if False:",
        (
            "tests/training/test_compilation.py::test_errors_name_the_changed_field",
            "tests/training/test_compilation.py::test_differences_of_plain_trees",
        ),
        "training/compiled.py",
    ),
    Mutation(
        "tuning takes the slower layout",
        "if ratio > GAIN:",
        "if ratio < 1 / GAIN:",
        (BENCH + "test_tune_finds_the_fastest_layout",),
    ),
    Mutation(
        "shares of the time not over the whole",
        "duration / whole for",
        "duration / iteration / 2 for",
        (BENCH + "test_the_report_of_a_compiled_run",),
    ),
    Mutation(
        "the run file keeps its old table",
        "if not VALUE.match(line)]",
        "]",
        (BENCH + "test_write_program_changes_only_the_layout_in_the_run_file",),
    ),
]
HOSTED = [
    Mutation(
        "V of a cut episode is that of the next one",
        "jnp.where(steps.ended, steps.final_value, value)",
        "value",
        (HOST + "test_identical_transitions_have_identical_advantages[feedforward]",),
    ),
    Mutation(
        "V of a cut episode without its memory",
        "first = np.zeros(len(cut), bool)",
        "first = np.ones(len(cut), bool)",
        (HOST + "test_identical_transitions_have_identical_advantages[gru]",),
    ),
    Mutation(
        "a reset in the same step is not the first of an episode",
        "            first = ended\n",
        "            first = resetting\n",
        (HOST + "test_identical_transitions_have_identical_advantages[gru]",),
    ),
    Mutation(
        "the reward of a reset counts",
        "jnp.where(rollout.valid, rollout.reward, 0.0)",
        "rollout.reward",
        (HOST + "test_autoreset_rows_have_no_effect_on_the_update",),
    ),
    Mutation(
        "a forced reset forgets the last value",
        "jnp.where(cut, rollout.last_value, steps.final_value[-1])",
        "steps.final_value[-1]",
        (HOST + "test_the_last_step_before_a_forced_reset_is_a_truncation",),
    ),
    Mutation(
        "the same noise at every step",
        "noise = [leaf[t % len(leaf), rows]",
        "noise = [leaf[0, rows]",
        ("tests/training/host/test_policy.py::test_actions_are_distributed_as_the_network_says",),
    ),
    Mutation(
        "evaluation favours short episodes",
        "if self.playing[i] and not missing[i - rows.start]:",
        "if self.left.any() and not missing[i - rows.start]:",
        ("tests/envs/hosting/test_handle.py::test_evaluation_plays_whole_episodes_with_fixed_shares",),
    ),
    Mutation(
        "a resumed run believes that it stands where it stopped",
        "if host.position and (np.asarray(actor.env_state) == host.position).all():",
        "if host.reset(reset_seeds(key, env.num_envs)):",
        ("tests/envs/hosting/test_handle.py::test_resume_restores_learner_keys_and_counters_with_new_episodes",),
    ),
]

BUILTIN = "tests/envs/test_builtin.py::"
WORLDS = "tests/envs/test_predecessors.py::"
SENSORS = "tests/envs/test_sensors.py::"
RESETS = "tests/envs/test_resets.py::"
CHECK_ENV = "tests/checks/test_check_env.py::"
PLAY = "tests/run/films/test_play.py::"

ENVIRONMENTS = [
    Mutation(
        "a pool of resets deals one start to all",
        "(jnp.cumsum(needed) - 1) % size",
        "0 * jnp.cumsum(needed)",
        (RESETS + "test_resets_up_to_the_pool_size_are_all_different",),
    ),
    Mutation(
        "a pool resets everything",
        "size = min(self.size, needed.shape[0])",
        "size = needed.shape[0]",
        (RESETS + "test_more_resets_than_the_pool_size_share_evenly",),
    ),
    Mutation(
        "acrobot's second link feels no centrifugal force",
        "- m * l1 * lc * theta1_dot**2 * sin2 - phi2",
        "- phi2",
        (BUILTIN + "test_acrobot_follows_gymnasium",),
    ),
    Mutation(
        "the car goes through the wall",
        "jnp.where((position == self.low) & (velocity < 0.0), 0.0, velocity)",
        "velocity",
        (BUILTIN + "test_mountain_car_follows_gymnasium",),
    ),
    Mutation(
        "the other predator gets all of the capture",
        "jnp.where(near, 1.0, 0.5)",
        "jnp.where(near, 1.0, 1.0)",
        (WORLDS + "test_pursuit_capture_terminates_all_agents",),
    ),
    Mutation(
        "selling what is not held is allowed",
        "jnp.stack([jnp.ones((), bool), ~state.invested, state.invested])",
        "jnp.stack([jnp.ones((), bool), ~state.invested, ~state.invested])",
        (WORLDS + "test_trading_masks_depend_on_the_position",),
    ),
    Mutation(
        "LIDAR sees behind",
        "jnp.where((half_chord2 > 0.0) & (ahead > 0.0), enters, jnp.inf)",
        "jnp.where(half_chord2 > 0.0, enters, jnp.inf)",
        (SENSORS + "test_distances_equal_ray_marching", WORLDS + "test_lidar_equals_ray_marching"),
    ),
    Mutation(
        "weak types pass the check",
        "if leaf.weak_type:",
        "if False:",
        (CHECK_ENV + "test_a_fault_is_named",),
    ),
    Mutation(
        "training begins with an unsound environment",
        "    require_sound(env)  #",
        "    #",
        (CHECK_ENV + "test_training_refuses_before_it_compiles",),
        "ppax/run/fit.py",
    ),
    Mutation(
        "the step that only resets counts as played",
        "        lengths[-1] += result.counts",
        "        lengths[-1] += 1",
        (PLAY + "test_frames_are_those_of_whole_episodes",),
    ),
]
PARAMS = "tests/envs/wrappers/test_params.py::"
GRADIENTS = "tests/networks/test_memories.py::test_parameter_gradients_equal_finite_differences"
LATER = [
    Mutation(
        "the numbers of an episode are drawn again in every step",
        "step._replace(state=RandomisedState(step.state, state.numbers))",
        "step._replace(state=RandomisedState(step.state, self.reset(key).state.numbers))",
        (PARAMS + "test_sampled_numbers_change_at_every_reset_and_stay_for_the_episode",),
    ),
    Mutation(
        "every reset draws the lowest number",
        "jax.random.uniform(key, (), jnp.float32)",
        "0.0 * jax.random.uniform(key, (), jnp.float32)",
        (PARAMS + "test_sampled_numbers_change_at_every_reset_and_stay_for_the_episode",),
    ),
    Mutation(
        "evaluation with the numbers of training",
        "        env = for_evaluation(self.env, settings.env_params, env_params or {})\n",
        "        env = self.env\n",
        (PARAMS + "test_a_run_records_env_params_and_evaluation_has_its_own",),
    ),
    Mutation(
        "the GRU's gradient goes through its loop too",
        "= jax.lax.stop_gradient((computed, factor(kernel)))",
        "= computed, jax.lax.stop_gradient(factor(kernel))",
        (GRADIENTS + "[gru]",),
        "memories/gru.py",
    ),
    Mutation(
        "the GRU's gradient through time lacks the update gate's direct path",
        "z * h + matmul(of_recurrent, transposed)",
        "matmul(of_recurrent, transposed)",
        (GRADIENTS + "[gru]",),
    ),
    Mutation(
        "the LSTM's gradient through time lacks later steps' gradient of the hidden state",
        "c = from_later.c + h * o * (",
        "c = from_later.c + own * o * (",
        (GRADIENTS + "[lstm]",),
    ),
    Mutation(
        "the LSTM's gradient through time lacks the forget gate's direct path",
        "LSTMState(f * c, matmul(",
        "LSTMState(0.0 * c, matmul(",
        (GRADIENTS + "[lstm]",),
    ),
    Mutation(
        "the LSTM's forget gate has bias 0",
        "jnp.concatenate([zeros, zeros + 1.0, zeros, zeros])",
        "jnp.concatenate([zeros, zeros, zeros, zeros])",
        ("tests/networks/test_memories.py::test_lstm_initial_forget_gate_is_open",),
    ),
    Mutation(
        "the LSTM's recurrent matrix has no gradient",
        "x + bias[None] + recurrent_matmul(jnp.zeros_like(x), steps.previous.h, kernel)",
        "x + bias[None]",
        (GRADIENTS + "[lstm]",),
    ),
    Mutation(
        "the LSTM's gradient goes on to the episode before",
        "lambda x: jnp.where(first, 0.0, x), earlier",
        "lambda x: x, earlier",
        (GRADIENTS + "[lstm]",),
    ),
    Mutation(
        "the LSTM's output gate has no gradient through the hidden state",
        "[of_i, of_f, of_g, h * tanh_c * o * (1.0 - o)]",
        "[of_i, of_f, of_g, 0.0 * o]",
        (GRADIENTS + "[lstm]",),
    ),
]

ATARI = "tests/envs/suites/test_atari.py::"
TEAM = "tests/envs/suites/test_pettingzoo.py::"
CHECK_HOST = "tests/checks/test_check_host.py::"

SUITES = [
    Mutation(
        "the reward with which an agent dies is lost",
        "if playing[i] else 0.0 for i, name",
        "if playing[i] and name in self.env.agents else 0.0 for i, name",
        (TEAM + "test_every_row_by_hand[sync]",),
    ),
    Mutation(
        "steps of absent agents count",
        'arrays.valid[place], over[i] = info["agent_first"], info["valid"], info["over"]',
        'arrays.valid[place], over[i] = info["agent_first"], True, info["over"]',
        (TEAM + "test_every_row_by_hand[sync]",),
    ),
    Mutation(
        "on the host a central critic still sees who is out",
        "row if there else np.zeros_like(row)",
        "row",
        (
            TEAM + "test_agent_ids_and_joint_observation_on_the_host[sync]",
            "tests/training/host/test_crowds.py::test_a_central_critic_of_unlike_agents_observes_all_of_them",
        ),
    ),
    Mutation(
        "on the host an actor reads what only the critic may see",
        "if name != JOINT)",
        "if name)",
        (TEAM + "test_agent_ids_and_joint_observation_on_the_host[sync]",),
    ),
    Mutation(
        "on the host players are judged by each other's networks",
        "jnp.moveaxis(x, 0, 2).reshape(x.shape[1], x",
        "jnp.moveaxis(x, 0, 1).reshape(x.shape[1], x",
        (TEAM + "test_each_player_uses_its_own_network_for_actions_and_values[NoMemory]",),
    ),
    Mutation(
        "on the host players' numbers have one shape when compiled and another in training",
        "collector_of(annealed, env, shapes[3].learner)",
        "collector_of(agent, env, shapes[3].learner)",
        (TEAM + "test_a_run_with_a_central_critic_resumes_on_the_host[independent]",),
    ),
    Mutation(
        "an agent that comes later begins no episode",
        '"agent_first": self._active & ~self._begun',
        '"agent_first": self._active & False',
        (TEAM + "test_every_row_by_hand[sync]",),
    ),
    Mutation(
        "an episode is over when the first agent dies",
        '"over": not self._active.any()',
        '"over": not self._active.all()',
        (TEAM + "test_every_row_by_hand[sync]",),
    ),
    Mutation(
        "statistics count signs of rewards",
        'info = {"episode_stats": (score, over)',
        'info = {"episode_stats": (reward, over)',
        (ATARI + "test_rewards_are_clipped_to_signs_and_statistics_have_the_score",),
    ),
    Mutation(
        "only the last frame is seen",
        "np.maximum(before, frame)",
        "frame",
        (ATARI + "test_frame_skip_of_4_and_maximum_of_the_last_two_frames",),
    ),
    Mutation(
        "a game without lives left is taken for a lost life",
        "0 < self._lives < before",
        "self._lives < before",
        (ATARI + "test_a_lost_life_terminates_for_learning_but_not_the_game",),
    ),
    Mutation(
        "a lost life begins a new game",
        "if self._goes_on and seed is None:",
        "if False:",
        (ATARI + "test_a_lost_life_terminates_for_learning_but_not_the_game",),
    ),
    Mutation(
        "reward scaling goes by what statistics count",
        "reward_trace=jnp.where(ended, 0.0, counts.reward_trace),",
        "reward_trace=jnp.where(over, 0.0, counts.reward_trace),",
        (ATARI + "test_episode_statistics_are_of_whole_games",),
    ),
    Mutation(
        "an evaluation counts lives",
        "    if step.episode_stats is not None:\n        return step.episode_stats\n",
        "",
        (ATARI + "test_episode_statistics_are_of_whole_games",),
        "training/host/episodes.py",
    ),
    Mutation(
        "a pool's lives are taken for games",
        'over = np.asarray(info.get("terminated", terminated), bool) | truncated',
        "over = terminated | truncated",
        ("tests/envs/suites/test_envpool.py::test_lives_end_episodes_for_learning_and_statistics_count_games",),
    ),
    Mutation(
        "the mode is read from metadata that others share",
        'mode = getattr(vector.unwrapped, "autoreset_mode", None)',
        "mode = None",
        (HOST + "test_a_later_vector_of_the_same_class_does_not_change_the_mode",),
    ),
    Mutation(
        "environments are never compared with their spaces",
        'for problem in space_mismatches(self.spec.observation_space, obs, "its observation", self.axis):',
        "for problem in ():",
        (CHECK_HOST + "test_every_environment_is_compared_with_its_spaces_when_it_first_steps",),
    ),
    Mutation(
        "a reset that starts its generator anew passes the check",
        "        unseeded > 1,\n",
        "        seeded > 1,\n",
        (CHECK_HOST + "test_a_fault_is_named_in_the_report[frozen]",),
    ),
    Mutation(
        "train does not look where the environment is stepped",
        '    require_native(env, "ppax.train", LOOPS)\n',
        "",
        (HOST + "test_compiled_functions_name_the_alternative_for_host_environments[train]",),
    ),
]
MULTI = "tests/agents/test_multi_agent.py::"
GROUPS = "tests/agents/test_groups.py::"
SELF_PLAY = "tests/agents/test_self_play.py::"
VIEW = "tests/envs/wrappers/test_views.py::"
ALONE = MULTI + "test_each_independent_player_learns_as_in_a_solo_run"
MANY = [
    Mutation(
        "players read each other's streams",
        "return x.reshape(*x.shape[:axis], num_envs, self.num_agents, *x.shape[axis + 1 :])",
        "return jnp.swapaxes(x.reshape(*x.shape[:axis], self.num_agents, -1, *x.shape[axis + 1 :]), axis, axis + 1)",
        (ALONE, MULTI + "test_permuted_players_permute_the_results"),
        "agents/independent.py",
    ),
    Mutation(
        "all players draw the same permutations",
        "jax.vmap(jax.random.fold_in, (None, 0))(one, players))(key)",
        "jax.vmap(jax.random.fold_in, (None, 0))(one, 0 * players))(key)",
        (ALONE,),
        "agents/independent.py",
    ),
    Mutation(
        "every player has the discount of the first",
        "jnp.broadcast_to(self.agent.discount(num_streams // self.num_agents), (self.num_agents,))",
        "jnp.broadcast_to(jnp.ravel(jnp.asarray(self.agent.gamma))[0], (self.num_agents,))",
        (ALONE,),
        "agents/independent.py",
    ),
    Mutation(
        "independent players of a subclass of PPO learn as plain PPO",
        "jax.vmap(type(self.agent).update, (0, 0, 0, 1))",
        "jax.vmap(PPO.update, (0, 0, 0, 1))",
        (
            "tests/agents/test_agent_protocol.py::test_methods_of_a_subclass_of_ppo_are_called_by_all_agents[Independent]",
        ),
        "agents/independent.py",
    ),
    Mutation(
        "the worst of the players is their mean",
        '"min": jnp.min}',
        '"min": jnp.mean}',
        (MULTI + "test_metrics_of_players_are_named_and_joined",),
        "agents/metrics.py",
    ),
    Mutation(
        "groups learn from each other's rewards",
        "begin, begin + size, axis=axis + 1)",
        "0, size, axis=axis + 1)",
        (
            GROUPS + "test_groups_of_one_agent_equal_independent_players",
            GROUPS + "test_unlike_agents_learn_their_parts",
        ),
        "ppax/agents/groups.py",
    ),
    Mutation(
        "actions of groups reach the wrong agents",
        "jnp.concatenate(x)[np.argsort(order)]",
        "jnp.concatenate(x)[order]",
        (GROUPS + "test_actions_and_rewards_of_groups_keep_their_order",),
        "wrappers/agent_groups.py",
    ),
    Mutation(
        "rewards of groups are not put in their order",
        "reward=step.reward[order]",
        "reward=step.reward",
        (GROUPS + "test_actions_and_rewards_of_groups_keep_their_order",),
        "wrappers/agent_groups.py",
    ),
    Mutation(
        "a group begins its sequences with a memory of another step",
        "jax.tree.map(lambda x: x[::stride], steps.carry[name])",
        "jax.tree.map(lambda x: x[: x.shape[0] // stride], steps.carry[name])",
        (GROUPS + "test_stored_carries_match_each_groups_sequence_length",),
        "ppax/agents/groups.py",
    ),
    Mutation(
        "past selves are learned from",
        "return jnp.concatenate([before, jax.lax.slice_in_dim(x, rows.stop, x.shape[axis], axis=axis)], axis)",
        "return x",
        (SELF_PLAY + "test_rows_of_past_selves_are_left_out_of_the_update",),
        "agents/self_play.py",
    ),
    Mutation(
        "the newest self plays in the place of past ones",
        "past = jax.tree.map(lambda x, name=name: x[learner.opponents[name]], learner.pool[name])",
        "past = jax.tree.map(lambda x, name=name: x[0 * learner.opponents[name]], learner.pool[name])",
        (SELF_PLAY + "test_past_selves_act_by_their_own_policies",),
        "agents/self_play.py",
    ),
    Mutation(
        "who loses gains",
        "surprise = won / jnp.maximum(played, 1.0) -",
        "surprise = 1.0 - won / jnp.maximum(played, 1.0) -",
        (SELF_PLAY + "test_ratings_by_hand",),
        "agents/self_play.py",
    ),
    Mutation(
        "a game that was running when the opponents changed is counted",
        "counts=jnp.zeros_like(learner.counts),",
        "counts=learner.counts,",
        (SELF_PLAY + "test_ratings_by_hand", SELF_PLAY + "test_the_pool_keeps_what_the_learners_were"),
        "agents/self_play.py",
    ),
    Mutation(
        "places of the pool that are still empty play",
        "jnp.where(jnp.arange(size) < count, pool.logits",
        "jnp.where(jnp.arange(size) >= 0, pool.logits",
        (
            SELF_PLAY + "test_opponents_are_sampled_as_configured",
            SELF_PLAY + "test_the_pool_keeps_what_the_learners_were",
        ),
        "agents/self_play.py",
    ),
    Mutation(
        "the hardest opponents play least",
        "return 2.0 * jnp.log(wins)",
        "return -2.0 * jnp.log(wins)",
        (SELF_PLAY + "test_opponents_are_sampled_as_configured",),
        "agents/self_play.py",
    ),
    Mutation(
        "the central critic sees what the dead see",
        "jnp.where(out[:, None], 0.0, _flat(obs, 1))",
        "jnp.where(out[:, None] & False, 0.0, _flat(obs, 1))",
        (VIEW + "test_absent_agents_are_zeros_in_the_joint_observation",),
        "wrappers/views.py",
    ),
    Mutation(
        "actors read what is for the critic alone",
        "return (OWN, AGENT) if self.agent_ids else (OWN,)",
        "return (OWN, AGENT, JOINT) if self.agent_ids else (OWN, JOINT)",
        (VIEW + "test_the_actor_does_not_read_the_joint_observation",),
        "wrappers/views.py",
    ),
    Mutation(
        "who ends is gone before its end is seen",
        "obs = self._observe(step, state.out)",
        "obs = self._observe(step, state.out | step.terminated | step.truncated)",
        (
            VIEW + "test_absent_agents_are_zeros_in_the_joint_observation",
            VIEW + "test_own_observation_agent_id_and_joint_observation",
        ),
        "wrappers/views.py",
    ),
]
LATEST = [
    Mutation(
        "minGRU without chrono initialisation: every state halves at each step",
        'parts[0] | {"bias": parts[0]["bias"] - jnp.log(steps)}',
        'parts[0] | {"bias": parts[0]["bias"] - 0.0 * jnp.log(steps)}',
        ("tests/networks/test_memories.py::test_mingru_initial_time_scales_are_spread",),
    ),
    Mutation(
        "a compiled program keeps the numbers of its first call",
        "if self._seen[0] is not agent or self._seen[1] is not env:",
        "if self._seen[0] is None:",
        ("tests/training/test_compilation.py::test_changed_hyperparameters_do_not_recompile",),
        "training/compiled.py",
    ),
    Mutation(
        "a state of another size is refused in JAX's words alone",
        "self._guard(agent, env, state)\n            raise",
        "raise",
        ("tests/training/test_compilation.py::test_errors_name_the_changed_field",),
        "training/compiled.py",
    ),
]
MUTATIONS = LATER + ESTIMATORS + LOSSES + DATA + COLLECTING + LEARNING + RUNNING + HOSTED + ENVIRONMENTS + SUITES
MUTATIONS += MANY + LATEST
