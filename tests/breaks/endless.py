"""Breaks of environments that never end: what forced resets log, how evaluations are cut, what stands for a return."""

from breaks.base import Mutation

ENDLESS = "tests/run/test_endless.py::"
RESETS = "tests/run/test_forced_resets.py::"
LOGGED = ENDLESS + "test_episodes_that_forced_resets_cut_are_logged[native]"
STATISTICS = ENDLESS + "test_statistics_of_a_cut_episode_are_those_of_all_returns"
LENGTHS = ENDLESS + "test_default_lengths_of_evaluated_episodes"
SHOWN = ENDLESS + "test_a_compiled_step_shows_whether_it_can_end_an_episode"
COUNT = ENDLESS + "test_evaluations_truncate_and_count_with_any_number_of_episodes"
SHARED = ENDLESS + "test_what_a_cut_stream_leaves_is_played_after_a_reset_of_all"
RANKED = ENDLESS + "test_members_are_ranked_by_rewards_only_where_none_has_a_return"

MUTATIONS = [
    Mutation(
        "an episode that a forced reset cuts is not counted",
        "episodes = with_running(episodes, actor, due & (actor.episode_length > 0))",
        "pass",
        (LOGGED,),
    ),
    Mutation(
        "a forced reset counts an episode that has ended already",
        "due & (actor.episode_length > 0)",
        "due & (actor.episode_length >= 0)",
        (RESETS + "test_a_forced_reset_truncates_only_running_episodes[reset]",),
    ),
    Mutation(
        "the deviation of a cut episode has the weight of an episode that is no part of the mean",
        "others / (others + 1.0) * apart**2",
        "apart**2",
        (STATISTICS,),
    ),
    Mutation(
        "the smallest return leaves out cut episodes",
        "jnp.minimum(episodes.return_min, value)",
        "episodes.return_min",
        (STATISTICS,),
    ),
    Mutation(
        "metrics of a cut episode are not those of its last step",
        "running_metrics={name: x[-1] for name, x in metrics.items()}",
        "running_metrics={name: x[0] for name, x in metrics.items()}",
        (LOGGED,),
    ),
    Mutation(
        "the standard deviation of rewards is that of values",
        '"reward_std": jnp.sqrt(variances[3])',
        '"reward_std": jnp.sqrt(variances[2])',
        (ENDLESS + "test_rewards_of_a_step_have_columns_of_their_own[native]",),
    ),
    Mutation(
        "the smallest reward may be that of a reset",
        "reward.min(where=valid, initial=jnp.inf)",
        "reward.min(initial=jnp.inf)",
        (ENDLESS + "test_rewards_of_steps_that_only_reset_are_left_out",),
    ),
    Mutation(
        "a flag that is always True never ends an episode",
        "return flags is not None and not any(np.any(flag) for flag in flags)",
        "return flags is not None",
        (SHOWN + "[Finite-False]",),
    ),
    Mutation(
        "what reads the state is a constant",
        "if not {x for x in program.jaxpr.outvars if isinstance(x, core.Var)} <= constants:",
        "if False:",
        (SHOWN + "[Counter-False]",),
    ),
    Mutation(
        "forced resets show that episodes end",
        'row.get("episode_length") == period',
        "False",
        (ENDLESS + "test_a_log_row_shows_whether_an_episode_has_ended[forced resets]",),
    ),
    Mutation(
        "an end in training is forgotten",
        "            self._ended = True\n",
        "            self._ended = None\n",
        (ENDLESS + "test_a_resumed_run_knows_that_episodes_end",),
    ),
    Mutation(
        "a short training shows that episodes never end",
        "if ended is None and played < ENDLESS_STEPS:",
        "if ended is None and played < 0:",
        (ENDLESS + "test_a_short_training_does_not_show_that_episodes_never_end",),
    ),
    Mutation(
        "episodes of evaluations in endless environments are longer than those that forced resets cut",
        "else period or min(",
        "else min(",
        (LENGTHS,),
    ),
    Mutation(
        "cut episodes are left out of the means",
        "return self.finished | (self.lengths > 0)",
        "return self.finished",
        (COUNT + "[native]",),
    ),
    Mutation(
        "an agent that did not appear has an episode of length 0",
        "return self.finished | (self.lengths > 0)",
        "return self.finished | (self.lengths >= 0)",
        ("tests/cli/test_output.py::test_agents_without_a_finished_episode_are_left_out",),
    ),
    Mutation(
        "a cut stream plays on without a reset",
        "                self._waits[i] = True\n",
        "",
        (SHARED,),
    ),
    Mutation(
        "a stream keeps what it has left to play",
        "total // num_envs + (np.arange(num_envs)[:, None] < total % num_envs)",
        "left",
        (SHARED,),
    ),
    Mutation(
        "metrics of a cut episode on the host are those of the one before",
        "row = [math.nan] * len(self._names) if stuck[here] else self._last[i].tolist()",
        "row = self._last[i].tolist()",
        (SHARED,),
    ),
    Mutation(
        "every set of evaluated environments has the same random numbers",
        "jax.random.split(key, num_sets)",
        "jnp.stack([key] * num_sets)",
        (ENDLESS + "test_sets_of_evaluated_environments_have_random_numbers_of_their_own",),
    ),
    Mutation(
        "evaluations take any number of environments",
        "num_envs=min(needed, env.max_num_envs or needed)",
        "num_envs=needed",
        (ENDLESS + "test_evaluations_hold_no_more_environments_than_the_limit",),
    ),
    Mutation(
        "a run takes any number of environments",
        "if limit is not None and size > limit:",
        "if False:",
        (ENDLESS + "test_limits_of_an_environment_are_respected",),
    ),
    Mutation(
        "the limits of a wrapped environment are not seen",
        "return None if inner is None else own_limit(inner, name)",
        "return None",
        (ENDLESS + "test_limits_of_an_environment_are_respected",),
    ),
    Mutation(
        "a run waits for a return that never comes",
        "in PER_EPISODE and backend_of(env).endless:",
        "in PER_EPISODE and False:",
        (ENDLESS + "test_a_condition_that_can_never_have_a_value_is_refused_at_once",),
    ),
    Mutation(
        "forced resets give no returns to conditions",
        "                if not self._resets:\n",
        "                if True:\n",
        (ENDLESS + "test_a_condition_that_can_never_have_a_value_is_refused_at_once",),
    ),
    Mutation(
        "rewards and returns are compared in one ranking",
        "if all(map(math.isnan, scores.values())):",
        "if any(map(math.isnan, scores.values())):",
        (RANKED,),
    ),
    Mutation(
        "members without returns have no score",
        "return {number: reward_score(path, since, iteration) for number, path in run_dirs.items()}",
        "return scores",
        (RANKED, ENDLESS + "test_a_search_and_its_result_rank_an_endless_environment"),
    ),
    Mutation(
        "the page shows nothing of a run without returns",
        "_layered(trained or lines_of(settings, REWARD, POINTS, band))",
        "_layered(trained)",
        (ENDLESS + "test_reports_show_rewards_where_no_episode_ended",),
    ),
    Mutation(
        "the doctor looks for a return that is not there",
        'return "episode_return" if ended else "reward_mean"',
        'return "episode_return"',
        (ENDLESS + "test_the_doctor_says_what_stands_for_the_return",),
    ),
    Mutation(
        "the command does not say what the numbers mean",
        'if run.history and not any(row.get("episodes", 0.0) > 0.0 for row in run.history):',
        "if False:",
        (ENDLESS + "test_commands_say_what_the_numbers_mean",),
    ),
    Mutation(
        "a resumed run does not know that episodes end",
        "evaluations.learn(rows_until(path / ROWS, int(state.iteration)))",
        "pass",
        (ENDLESS + "test_a_resumed_run_knows_that_episodes_end",),
    ),
]
