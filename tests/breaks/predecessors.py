"""Faults of the predecessors, made in ppax: tests named in tests/predecessors/rows.toml see each of them."""

from breaks.base import Mutation

CRITICS = "tests/ppo/critics/test_regression.py::"
CONDITIONS = "tests/run/conditions/test_conditions.py::"
WORLDS = "tests/envs/test_predecessors.py::"
CLIPPED = "tests/ppo/losses/test_clipped.py::"
SCHEDULES = "tests/ppo/schedules/test_schedules.py::"

MUTATIONS = [
    Mutation(
        "the bonus lowers the entropy",
        '- ent_coef * means["entropy"]',
        '+ ent_coef * means["entropy"]',
        (CLIPPED + "test_ent_coef_rewards_entropy",),
        "ppax/ppo/losses.py",
    ),
    Mutation(
        "the value clip has no effect",
        "near = old_value + jnp.clip(value - old_value, -value_clip, value_clip)",
        "near = value",
        (CRITICS + "test_value_clip_zeroes_the_gradient_only_where_the_clipped_loss_is_larger",),
    ),
    Mutation(
        "the Huber loss is a cap",
        "return inside * (jnp.abs(error) - 0.5 * inside)",
        "return 0.5 * inside**2",
        (CRITICS + "test_huber_is_quadratic_near_the_target_and_linear_beyond_delta",),
    ),
    Mutation(
        "actor and critic learn for one epoch more",
        "lambda epoch: epoch >= epochs)",
        "lambda epoch: epoch > epochs)",
        ("tests/ppo/optimizers/test_optimizers.py::test_actor_epochs_and_critic_epochs_in_an_update",),
    ),
    Mutation(
        "piecewise schedules do not see the steps of the environment",
        'value(progress if schedule.by == "progress" else env_steps, *knots(schedule))',
        "value(progress, *knots(schedule))",
        (SCHEDULES + "test_steps_and_interpolation_over_env_steps",),
    ),
    Mutation(
        "the reward of a repeated action is that of the last repetition",
        "reward=before.reward + jnp.where(ended, 0.0, jnp.asarray(now.reward, jnp.float32))",
        "reward=jnp.where(ended, before.reward, now.reward)",
        ("tests/envs/wrappers/test_action_repeat.py::test_rewards_are_summed_up_to_the_episode_end",),
    ),
    Mutation(
        "stored actions are read back from squashed ones in single precision",
        "action=decision.action,",
        "action=jnp.clip(decision.action, -7.25, 7.25),",
        ("tests/ppo/test_ppo.py::test_the_ratio_is_one_where_actions_are_saturated[squashed]",),
        "ppax/training/collection.py",
    ),
    Mutation(
        "the first policy is the best",
        "if better or (self.policy is None and not math.isnan(value)):",
        "if self.policy is None and not math.isnan(value):",
        ("tests/run/test_evaluations.py::test_the_best_policy_is_the_one_that_was_evaluated",),
    ),
    Mutation(
        "a bound has to be exceeded",
        "self._state(value, value >= self.bound)",
        "self._state(value, value > self.bound)",
        (CONDITIONS + "test_bounds_are_inclusive",),
    ),
    Mutation(
        "a plateau is compared with the row before",
        "return self._state(value, rows >= self.patience, before.reference, rows)",
        "return self._state(value, rows >= self.patience, value, rows)",
        (CONDITIONS + "test_plateaus_compare_with_the_first_value_of_the_plateau",),
    ),
    Mutation(
        "one of several conditions is enough",
        "return all(parts)",
        "return any(parts)",
        (CONDITIONS + "test_and_needs_all_and_or_needs_one",),
        "ppax/run/conditions.py",
    ),
    Mutation(
        "one torso is two",
        "return actor if self.shared else actor |",
        "return actor |",
        ("tests/networks/test_mlp.py::test_shared_torso_has_one_set_of_parameters",),
    ),
    Mutation(
        "bounds of the standard deviation are ignored",
        "log_std = clip_inward(log_std, low, high)",
        "log_std = clip_inward(log_std, None, None)",
        ("tests/networks/test_heads.py::test_bounds_of_the_standard_deviation",),
    ),
    Mutation(
        "the pole is not rewarded for being upright",
        "-jnp.abs(obs.at[2].add(-1.0)).sum()",
        "-jnp.abs(obs).sum()",
        (WORLDS + "test_endless_cartpole_rewards_upright_and_never_ends",),
    ),
    Mutation(
        "a car that rolls back is at the goal",
        "at_goal = (new.position >= self.goal) & (new.velocity >= 0.0)",
        "at_goal = new.position >= self.goal",
        (WORLDS + "test_endless_mountain_car_rewards_the_goal",),
    ),
    Mutation(
        "evaluated episodes are not cut",
        "return ~state.finished.all() & (state.elapsed < max_steps)",
        "return ~state.finished.all() & (state.elapsed < max_steps + 1)",
        ("tests/training/test_evaluation.py::test_episodes_cut_at_max_steps_are_unfinished_and_count",),
    ),
]
