"""Breaks of the environment's own metrics (EnvStep.metrics, info_metrics)."""

from breaks.base import Mutation

FILE = "tests/system/test_episode_metrics.py::"
MEANS = FILE + "test_means_over_episodes_equal_the_lengths_that_ppax_counts"

MUTATIONS = [
    Mutation(
        "native metrics: every step counts, not only the last of an episode",
        "metrics = {name: jnp.where(steps.ended, x, 0.0) for name, x in out.metrics.items()}",
        "metrics = {name: x for name, x in out.metrics.items()}",
        (MEANS + "[native]",),
    ),
    Mutation(
        "host metrics: the loss of a life counts as the end of an episode",
        "over = steps.ended if rollout.episode_stats is None else rollout.episode_stats.over",
        "over = steps.ended",
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
        "if name in reserved or",
        "if",
        (FILE + "test_names_of_other_metrics_are_refused[loss]",),
    ),
    Mutation(
        "a missing entry of info is 0",
        "x = np.asarray(info.get(name))",
        "x = np.asarray(info.get(name, 0.0))",
        (FILE + "test_a_missing_entry_names_the_environment_and_the_remedy",),
    ),
    Mutation(
        "the drift of DPO is gated by its rounding",
        "jnp.where(x > 0.0, x - scale * jnp.tanh(x / scale), 0.0)",
        "jnp.where(x - scale * jnp.tanh(x / scale) > 0.0, x - scale * jnp.tanh(x / scale), 0.0)",
        ("tests/losses/test_gradients.py::test_dpo_has_the_gradient_of_w_a_where_ratios_are_close_to_1",),
    ),
]
