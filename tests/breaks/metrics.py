"""Breaks of the environment's own metrics (EnvStep.metrics, info_metrics)."""

from breaks.base import Mutation

FILE = "tests/system/test_episode_metrics.py::"
MEANS = FILE + "test_means_over_episodes_equal_the_lengths_that_ppax_counts"

LOGGED = "tests/agents/test_logged.py::"
SPREAD = LOGGED + "test_spread_and_extremes_are_those_of_all_episodes"

UPDATE = "tests/ppo/test_diagnostics.py::test_explained_variance_by_hand"
TIMES = "tests/run/test_logging.py::test_times_of_a_row_add_up[native]"
LOOP = "tests/ppo/test_ppo.py::test_the_program_does_not_grow_with_minibatches_and_epochs"

MUTATIONS = [
    Mutation(
        "explained variance counts the mean error",
        "columns = jnp.stack([target, target - value, value, batch.steps.reward])\n"
        "    average = masked_means(list(columns), valid)\n",
        "columns = jnp.stack([target, target - value, value, batch.steps.reward])\n"
        "    average = masked_means(list(columns), valid).at[1].set(0.0)\n",
        (UPDATE,),
    ),
    Mutation(
        "explained variance of rows that are not valid",
        "variances = masked_means(list((columns - average[:, None, None]) ** 2), valid)",
        "variances = ((columns - average[:, None, None]) ** 2).mean((1, 2))",
        (UPDATE,),
    ),
    Mutation(
        "speed over the time of the whole run",
        '"steps_per_second": env_steps / seconds,',
        '"steps_per_second": env_steps / (before + seconds),',
        (TIMES,),
    ),
    Mutation(
        "epochs are unrolled",
        "state, history = jax.lax.scan(epoch, state, keys)",
        "state, history = jax.lax.scan(epoch, state, keys, unroll=len(keys))",
        (LOOP,),
    ),
    Mutation(
        "the spread of a stream's returns is around 0",
        "jnp.where(over, returns - (total / jnp.maximum(count, 1))[None], 0.0)",
        "jnp.where(over, returns, 0.0)",
        (SPREAD + "[0.0]",),
    ),
    Mutation(
        "the spread between streams is left out",
        "squares = (self.squares + self.count * apart**2).sum(axis)",
        "squares = self.squares.sum(axis)",
        (SPREAD + "[0.0]",),
    ),
    Mutation(
        "the spread between iterations is left out",
        "jnp.where(spread, share * apart**2, 0.0)",
        "jnp.zeros_like(totals.means)",
        (SPREAD + "[0.0]",),
    ),
    Mutation(
        "streams without an episode have the smallest return",
        "jnp.where(none, jnp.inf, episodes.return_min)",
        "episodes.return_min",
        ("tests/agents/test_self_play.py::test_episodes_of_a_group_are_those_that_it_plays_as_it_is_now",),
    ),
    Mutation(
        "every number of the agent is logged, whether a schedule changes it or not",
        "for (path, x), y in pairs if x is not y}",
        "for (path, x), y in pairs}",
        (LOGGED + "test_numbers_that_schedules_change_are_found_by_their_paths",),
    ),
    Mutation(
        "policy_std of tanh policies is the variance",
        '{"policy_std": jnp.exp(self.log_std).mean(axis=-1)}',
        '{"policy_std": jnp.exp(2.0 * self.log_std).mean(axis=-1)}',
        ("tests/distributions/test_diagnostics.py::test_policy_std_is_the_mean_spread_of_the_dimensions[squashed]",),
        "distributions/normal.py",
    ),
    Mutation(
        "the time of a rollout is counted from the start of the run",
        "first, until, self.collect_seconds = int(state.iteration), time.monotonic() + self.chunk_seconds, 0.0",
        "first, until = int(state.iteration), time.monotonic() + self.chunk_seconds",
        ("tests/run/test_logging.py::test_times_of_a_row_add_up[host]",),
    ),
    Mutation(
        "metrics: every step counts, not only the last of an episode",
        "metrics={name: jnp.where(over, x, 0.0).sum(axis=0)",
        "metrics={name: x.sum(axis=0)",
        (MEANS + "[native]",),
    ),
    Mutation(
        "host metrics: the loss of a life counts as the end of an episode",
        "over: Any = counted.ended if rollout.episode_stats is None else rollout.episode_stats.over",
        "over: Any = counted.ended",
        (MEANS + "[lives]",),
    ),
    Mutation(
        "metrics of groups in the order of the environment's agents",
        "metrics={name: x[order] if x.ndim else x for name, x in step.metrics.items()},",
        "metrics=step.metrics,",
        (MEANS + "[groups]",),
    ),
    Mutation(
        "vector environments in SAME_STEP: metrics of the reset after the episode",
        'given = info.get("final_info", info)',
        "given = info",
        (MEANS + "[SAME_STEP]",),
    ),
    Mutation(
        "metrics of the first agent for all agents of a PettingZoo environment",
        'metrics_of(info["agent_infos"][agent], names)',
        'metrics_of(info["agent_infos"][0], names)',
        (MEANS + "[team]",),
    ),
    Mutation(
        "evaluation: metrics of a later episode",
        "jnp.where(counted, x, state.metrics[name])",
        "x",
        (MEANS + "[native]",),
    ),
    Mutation(
        "a metric of the environment replaces one of training",
        "        if name in {*others, *columns} or column",
        "        if column",
        (FILE + "test_names_of_other_metrics_are_refused[loss]",),
    ),
    Mutation(
        "a missing entry of info is 0",
        "x = np.asarray(info.get(name))",
        "x = np.asarray(info.get(name, 0.0))",
        (FILE + "test_a_missing_entry_names_the_environment_and_the_remedy",),
    ),
    Mutation(
        "the drift of DPO has a gradient at a ratio of 1",
        "jnp.where(x > 0.0, x - scale * jnp.tanh(x / scale), 0.0)",
        "jnp.where(x > 0.0, x - 0.5 * scale * jnp.tanh(x / scale), 0.0)",
        ("tests/ppo/losses/test_gradients.py::test_dpo_has_the_gradient_of_w_a_where_ratios_are_close_to_1",),
    ),
]
