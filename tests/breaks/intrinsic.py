"""Breaks of intrinsic rewards."""

from breaks.base import Mutation

RND = "tests/extensions/test_rnd.py::"
OWN = "tests/extensions/test_own_critic.py::"
ORACLE = RND + "test_rewards_statistics_and_predictor_are_those_of_float64"
MUTATIONS = [
    Mutation(
        "the intrinsic reward is that of the observation before the step",
        "jnp.concatenate([x[1:], last[None]])",
        "x",
        (ORACLE,),
        "extensions/next_observations.py",
    ),
    Mutation(
        "the target network learns beside the predictor",
        "state._replace(predictor=trained.params, opt_state",
        "state._replace(target=trained.params, opt_state",
        (RND + "test_every_agent_trains_with_it",),
        "extensions/rnd.py",
    ),
    Mutation(
        "observations of the predictor are clipped as those of the policy",
        "normalization.normalize_obs(state.obs_stats, obs, self.obs_clip)",
        "normalization.normalize_obs(state.obs_stats, obs)",
        (ORACLE,),
        "extensions/rnd.py",
    ),
    Mutation(
        "steps that are not valid decay the sum of intrinsic rewards",
        "jnp.where(valid_t, gamma * before + reward_t, before)",
        "gamma * before + reward_t",
        (RND + "test_discounted_sums_by_hand",),
        "extensions/rnd.py",
    ),
    Mutation(
        "the sum of intrinsic rewards always ends with an episode",
        "jnp.where(first_t & episodic, 0.0, before)",
        "jnp.where(first_t, 0.0, before)",
        (RND + "test_discounted_sums_by_hand",),
        "extensions/rnd.py",
    ),
    Mutation(
        "intrinsic rewards are not learned from",
        "return Before(state, reward + own, (), trace, metrics)",
        "return Before(state, reward, (), trace, metrics)",
        (RND + "test_the_reward_of_rnd_is_added_to_the_environments",),
        "extensions/rnd.py",
    ),
    Mutation(
        "the streams' sums of intrinsic rewards begin anew in each rollout",
        "actor = collected.actor._replace(extensions=update.extensions)",
        "actor = collected.actor",
        (RND + "test_every_agent_trains_with_it",),
        "ppax/training/loop.py",
    ),
    Mutation(
        "the stream of intrinsic rewards ends with an episode",
        "        if episodic:\n            next_value",
        "        if True:\n            next_value",
        (OWN + "test_advantages_are_those_of_float64",),
        "extensions/own_critic.py",
    ),
    Mutation(
        "the stream of intrinsic rewards counts the step of a reset",
        "before = jnp.where(valid_t, value_t, later_value), jnp.where(valid_t, advantage, later_advantage)",
        "before = value_t, advantage",
        (OWN + "test_advantages_are_those_of_float64",),
        "extensions/own_critic.py",
    ),
    Mutation(
        "an episodic sum of intrinsic rewards goes on after a reset between rollouts",
        "before = jnp.where(first_t & episodic, 0.0, before)",
        "before = before",
        (RND + "test_a_resumed_run_on_the_host_begins_an_episodic_sum_anew[True]",),
        "extensions/rnd.py",
    ),
    Mutation(
        "a truncation ends the stream of intrinsic rewards like a termination",
        "next_value = jnp.where(terminated_t, 0.0, after_t)",
        "next_value = jnp.where(ended_t, 0.0, after_t)",
        (OWN + "test_the_exact_value_of_a_constant_reward_has_no_advantage_at_a_time_limit",),
        "extensions/own_critic.py",
    ),
    Mutation(
        "the stream of intrinsic rewards is bootstrapped from the next episode after a reset in the same step",
        "following_in_episode(rollout) if self.episodic else following(rollout)",
        "following(rollout)",
        (OWN + "test_after_a_reset_in_the_same_step_the_value_is_that_before_the_end",),
        "extensions/own_critic.py",
    ),
    Mutation(
        "an observation that is not finite is known",
        "known = functools.reduce(operator.and_, finite, steps.valid)",
        "known = steps.valid",
        ("tests/extensions/test_following.py::test_a_termination_with_an_infinite_observation_is_learned_from[rnd]",),
        "extensions/next_observations.py",
    ),
    Mutation(
        "the last observation of an absent agent is bootstrapped from",
        "known = functools.reduce(operator.and_, finite, steps.valid)",
        "known = functools.reduce(operator.and_, finite, steps.valid | True)",
        ("tests/extensions/test_following.py::test_nan_in_invalid_rows_changes_no_bit[control]",),
        "extensions/next_observations.py",
    ),
    Mutation(
        "advantages of intrinsic rewards are not added",
        "targets._replace(advantage=targets.advantage + extras)",
        "targets",
        (OWN + "test_the_advantages_are_added_and_value_targets_stay",),
        "extensions/own_critic.py",
    ),
    Mutation(
        "recomputed targets forget the advantages of intrinsic rewards",
        "self.extensions.targets(Targets(*targets), steps)",
        "Targets(*targets)",
        (OWN + "test_the_advantages_are_added_and_value_targets_stay",),
        "ppax/ppo/recompute.py",
    ),
]
