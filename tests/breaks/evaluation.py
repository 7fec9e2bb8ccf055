"""Breaks of evaluations: during training, and of the episodes that they play."""

from breaks.base import Mutation

TRAINING = "tests/run/test_evaluations.py::"
MEANS = TRAINING + "test_means_are_those_of_the_episodes_and_training_is_as_without"
ENDS = "tests/training/test_evaluation.py::test_how_episodes_ended_and_their_last_rewards_are_reported"

PLAYED = "tests/training/test_evaluation.py::"
BEST = "tests/run/test_best_by_function.py::"

MUTATIONS = [
    Mutation(
        "evaluations during training do not learn that episodes never end",
        "    if ended is None and played < ENDLESS_STEPS:\n",
        "    if ended is None:\n",
        (
            "tests/run/test_endless.py::test_default_lengths_of_evaluated_episodes",
            "tests/run/test_endless.py::test_evaluations_in_training_follow_it_as_those_after_it_do",
        ),
        "training/evaluation.py",
    ),
    Mutation(
        "the median is the mean",
        "float(np.median(self.returns[self.counted]))",
        "float(np.mean(self.returns[self.counted]))",
        (PLAYED + "test_the_median_is_that_of_all_episodes_played",),
    ),
    Mutation(
        "the column of the median has the mean",
        '"eval_return_median": "median_return"',
        '"eval_return_median": "mean_return"',
        (PLAYED + "test_the_median_is_that_of_all_episodes_played",),
    ),
    Mutation(
        "an agent that did not appear was truncated",
        "return self.counted & ~self.terminated",
        "return ~self.terminated",
        (PLAYED + "test_the_median_is_that_of_all_episodes_played",),
    ),
    Mutation(
        "the pure function gives the episodes that terminated as truncated",
        "return ~self.terminated & (self.finished | (self.lengths > 0))",
        "return self.terminated & (self.finished | (self.lengths > 0))",
        (PLAYED + "test_a_batch_of_learners_is_played_in_one_program_as_gymnasium_plays_them",),
    ),
    Mutation(
        "the pure function does not end episodes where evaluate does",
        "max_steps = episode_limit(env, ended=not backend_of(env).endless)\n    elif",
        "max_steps = UNKNOWN_STEPS\n    elif",
        (PLAYED + "test_episodes_of_an_endless_environment_are_cut_by_default_and_at_a_traced_length",),
    ),
    Mutation(
        "the pure function takes environments on the host",
        'require_native(env, "ppax.play_episodes", "write ppax.evaluate(agent, env, learner, key, episodes)")',
        "env",
        (PLAYED + "test_what_cannot_be_a_pure_function_is_refused",),
    ),
    Mutation(
        "evaluate fails inside of jit without a remedy",
        "if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((agent, env, learner, key, max_steps))):",
        "if False:",
        (PLAYED + "test_what_cannot_be_a_pure_function_is_refused",),
    ),
    Mutation(
        "there are as many results as streams",
        "jax.tree.map(lambda x: x[:episodes], played)",
        "played",
        (PLAYED + "test_any_number_of_episodes[1]",),
    ),
    Mutation(
        "a run forgets the episodes of its evaluations",
        "evaluations=self.evaluations.results,",
        "evaluations={},",
        (TRAINING + "test_a_run_keeps_the_episodes_of_its_evaluations",),
    ),
    Mutation(
        "columns that a function reads are not known",
        "        self[name] = math.nan\n",
        "",
        (BEST + "test_what_cannot_choose_is_refused_before_training[misspelt]",),
    ),
    Mutation(
        "a function that fails is not called before training",
        "            if self.best is not None:\n                self.best.score(dict.fromkeys(names, math.nan))\n",
        "",
        (BEST + "test_what_cannot_choose_is_refused_before_training[failing]",),
    ),
    Mutation(
        "the package of a function is not asked for",
        'place in ("env", "best.metric") or place.endswith(ENDS)',
        'place == "env" or place.endswith(ENDS)',
        (BEST + "test_the_run_file_names_the_function_and_a_resumed_run_goes_on_comparing",),
    ),
    Mutation(
        "the number of a function is not saved with its policy",
        '"value": finite_or_none(best.value), ',
        "",
        (BEST + "test_the_run_file_names_the_function_and_a_resumed_run_goes_on_comparing",),
    ),
    Mutation(
        "checkpoints have scores by the name of a function",
        ' or metric == "none" or imports.is_path(metric):',
        ' or metric == "none":',
        (BEST + "test_the_run_file_names_the_function_and_a_resumed_run_goes_on_comparing",),
    ),
    Mutation(
        "the untrained policy is not evaluated",
        "untrained = self.evaluations.blank and int(state.iteration) == 0 and not history",
        "untrained = False",
        (MEANS + "[native]",),
    ),
    Mutation(
        "every evaluation has the same key",
        "key = jax.random.fold_in(self._key, iteration)",
        "key = jax.random.clone(self._key)",
        (MEANS + "[native]",),
    ),
    Mutation(
        "chunks do not end at evaluations",
        "next_row(done, self.intervals, self.evaluations.next_after(done)) - done",
        "next_row(done, self.intervals, self.total_iterations) - done",
        (TRAINING + "test_rows_end_at_multiples_of_the_interval_and_at_evaluations",),
    ),
    Mutation(
        "the row of the untrained policy is kept and written again",
        "kept = iteration or -1",
        "kept = iteration",
        (TRAINING + "test_a_resumed_run_has_the_same_rows[0]",),
    ),
    Mutation(
        "the row of the untrained policy counts twice for stop conditions",
        "iteration) if iteration else ():",
        "iteration):",
        (TRAINING + "test_a_resume_replays_the_evaluations",),
    ),
    Mutation(
        "the environments of evaluations stay open",
        "        if not self._borrowed:\n            self._env.close()",
        "        pass",
        (TRAINING + "test_environments_on_the_host_are_created_once_and_closed",),
    ),
    Mutation(
        "terminated: also by a later episode",
        "terminated=state.terminated | (counted & out.terminated),",
        "terminated=state.terminated | out.terminated,",
        ("tests/training/test_evaluation.py::test_the_end_of_a_later_episode_is_not_that_of_the_first",),
    ),
    Mutation(
        "final reward: of a later episode",
        "final_reward=jnp.where(counted, out.reward, state.final_reward),",
        "final_reward=out.reward,",
        (ENDS + "[native]",),
    ),
    Mutation(
        "on the host the final reward is the return",
        "float(self._reward[i])",
        "float(self._returns[i])",
        (ENDS + "[host]",),
    ),
    Mutation(
        "a resumed table has the columns of its next row",
        "None if self._lines.empty else header_of(path)",
        "None",
        ("tests/loggers/test_files.py::test_a_resumed_table_keeps_its_columns",),
    ),
]
