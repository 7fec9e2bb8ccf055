"""Breaks of smooth actions: losses of CAPS and L2C2, metrics of the action rate, filtered actions."""

from breaks.base import Mutation

SMOOTH = "tests/extensions/test_smooth_actions.py::"
OWN = "tests/config/test_own_environments.py::"
FILTER = "tests/envs/wrappers/test_action_filter.py::"
MUTATIONS = [
    Mutation(
        "the temporal loss of CAPS has no gradient through the next action",
        "change = mean_action(rows.forward(after.obs).distribution) - mean",
        "change = jax.lax.stop_gradient(mean_action(rows.forward(after.obs).distribution)) - mean",
        (SMOOTH + "test_the_temporal_loss_and_its_gradient_are_those_of_float64",),
        "extensions/smooth_actions.py",
    ),
    Mutation(
        "the temporal loss of CAPS is squared",
        "return jnp.sqrt(jnp.square(change).sum(axis=-1) + LEAST)",
        "return jnp.square(change).sum(axis=-1) + LEAST",
        (SMOOTH + "test_the_temporal_loss_and_its_gradient_are_those_of_float64",),
        "extensions/smooth_actions.py",
    ),
    Mutation(
        "smooth actions across the reset of an environment that resets in the same step",
        "    return jnp.where(after.known, x, 0.0)",
        "    return jnp.where(True, x, 0.0)",
        (SMOOTH + "test_l2c2_is_0_where_the_next_observation_is_not_known",),
        "extensions/smooth_actions.py",
    ),
    Mutation(
        "the noise of CAPS is standardised as if it were part of the raw observation",
        "given = rows._replace(learner=rows.learner._replace(obs_stats=None))",
        "given = rows",
        (SMOOTH + "test_the_spatial_loss_of_a_linear_policy",),
        "extensions/smooth_actions.py",
    ),
    Mutation(
        "the places of L2C2 are on one side of the observation",
        "share = rows.draw(STEPS) / (STEPS // 2) - 1.0",
        "share = rows.draw(STEPS) / (STEPS // 2)",
        (SMOOTH + "test_l2c2_of_a_linear_policy_and_a_linear_critic",),
        "extensions/smooth_actions.py",
    ),
    Mutation(
        "the value loss of L2C2 is not squared",
        'losses["l2c2_value_loss"] = self.value_coef * _where_known(after, jnp.square(change))',
        'losses["l2c2_value_loss"] = self.value_coef * _where_known(after, jnp.abs(change))',
        (SMOOTH + "test_l2c2_of_a_linear_policy_and_a_linear_critic",),
        "extensions/smooth_actions.py",
    ),
    Mutation(
        "categories are interpolated",
        "        if not jnp.issubdtype(x.dtype, jnp.floating):\n            return x\n",
        "",
        (SMOOTH + "test_a_place_on_the_way_by_hand",),
        "extensions/smooth_actions.py",
    ),
    Mutation(
        "distances of actions are in the unit of the Box",
        "return np.where(np.isfinite(half) & (half > 0.0), half, 1.0).astype(np.float32)",
        "return np.ones(size, np.float32)",
        (SMOOTH + "test_mean_actions_are_in_half_widths_of_the_box",),
        "extensions/smooth_actions.py",
    ),
    Mutation(
        "normal means are clipped before their distance",
        "action = mode if isinstance(distribution, Normal) else distribution.env_action(mode)",
        "action = distribution.env_action(mode)",
        (SMOOTH + "test_mean_actions_are_in_half_widths_of_the_box",),
        "extensions/smooth_actions.py",
    ),
    Mutation(
        "actions are compared across the end of an episode",
        "return valid[1:] & valid[:-1] & ~ended[:-1] & ~first[1:]",
        "return valid[1:]",
        (
            SMOOTH + "test_with_a_memory_the_next_mean_action_remembers",
            SMOOTH + "test_action_rates_by_a_loop",
        ),
        "extensions/smooth_actions.py",
    ),
    Mutation(
        "a jerk of one pair",
        "twice = continues[2:] & continues[1:-1]",
        "twice = continues[2:]",
        (SMOOTH + "test_action_rates_by_a_loop",),
        "extensions/smooth_actions.py",
    ),
    Mutation(
        "the rate of actions beyond the Box",
        "both = distribution.env_action(sequence.action), distribution.env_action(distribution.mode())",
        "both = sequence.action, distribution.mode()",
        (SMOOTH + "test_action_rates_by_a_loop",),
        "extensions/smooth_actions.py",
    ),
    Mutation(
        "the losses of CAPS and L2C2 for choices",
        'if not hasattr(action, "dtype") or not jnp.issubdtype(action.dtype, jnp.floating):',
        'if not hasattr(action, "dtype"):',
        (SMOOTH + "test_choices_are_refused",),
        "extensions/smooth_actions.py",
    ),
    Mutation(
        "compiled: the filter's share is that of the old action",
        "state.filtered + self.action_filter * (",
        "state.filtered + (1.0 - self.action_filter) * (",
        (FILTER + "test_the_environment_gets_filtered_actions_and_the_policy_sees_them",),
        "wrappers/action_filter.py",
    ),
    Mutation(
        "compiled: the environment gets the action itself",
        "step = self.env.step(state.inner, filtered.astype(jnp.asarray(action).dtype), key)",
        "step = self.env.step(state.inner, action, key)",
        (FILTER + "test_the_environment_gets_filtered_actions_and_the_policy_sees_them",),
        "wrappers/action_filter.py",
    ),
    Mutation(
        "the filter starts at 0, outside of the Box",
        "np.clip(np.zeros(action_space.shape), action_space.low, action_space.high)",
        "np.zeros(action_space.shape)",
        (FILTER + "test_the_environment_gets_filtered_actions_and_the_policy_sees_them",),
        "hosting/action_filter.py",
    ),
    Mutation(
        "on the host an episode begins with the filter of the last one",
        "        self._filtered = self._rest\n",
        "",
        (FILTER + "test_an_environment_on_the_host_gets_filtered_actions",),
        "hosting/action_filter.py",
    ),
    Mutation(
        "on the host an environment writes into the filter's state",
        "self.env.step(self._filtered.copy())",
        "self.env.step(self._filtered)",
        (FILTER + "test_an_environment_on_the_host_gets_filtered_actions",),
        "hosting/action_filter.py",
    ),
    Mutation(
        "the filter of a run file has the share 1",
        "    return params.adjust(env, {key: value for key, value in env_params.items() if key not in options})\n",
        "    return env\n",
        (FILTER + "test_it_is_a_number_that_can_be_drawn_scheduled_and_changed",),
        "envs/making.py",
    ),
    Mutation(
        "a filter around an environment of one's own is not recorded",
        "around, env = {FILTER: plain_value(env.action_filter)}, env.env",
        "around, env = {}, env.env",
        (OWN + "test_a_compiled_environment_is_recorded_and_built_again",),
        "config/description.py",
    ),
    Mutation(
        "a share of 0 on the host",
        'limits={"above": 0.0, "high": 1.0})  # of the new action',
        'limits={"high": 1.0})  # of the new action',
        (FILTER + "test_a_run_file_and_a_command_line_choose_it",),
        "hosting/spec.py",
    ),
]
