"""Breaks of recorded sweeps: plan, packing, members, checkpoints of all, result."""

from breaks.base import Mutation

PLAN = "tests/sweeps/test_plan.py::"
RUNS = "tests/sweeps/test_runs.py::"
TRANSPORT = "tests/sweeps/placing/test_transport.py::"
DRIVER = "tests/sweeps/placing/test_driver.py::"
SEARCHING = "tests/sweeps/test_searching.py::"
PARTS = "tests/sweeps/search/test_parts.py::"
STUDY = "tests/sweeps/studies/test_study.py::"
ROUNDS = "tests/sweeps/studies/test_rounds.py::"

MUTATIONS: list[Mutation] = [
    Mutation(
        "draws of two options are the same numbers",
        "np.random.default_rng([seed, zlib.crc32(path.encode()), draw])",
        "np.random.default_rng([seed, draw])",
        (PLAN + "test_a_draw_depends_neither_on_other_options_nor_on_the_number_of_draws",),
        "sweeps/plan.py",
    ),
    Mutation(
        "a log-uniform draw is uniform",
        "math.exp((1.0 - share) * math.log(self.low) + share * math.log(self.high))",
        "(1.0 - share) * self.low + share * self.high",
        (PLAN + "test_draws_follow_their_distributions",),
        "sweeps/distributions.py",
    ),
    Mutation(
        "every member has the numbers of the first",
        "    own = repeated(tasks, count)\n",
        "    own = repeated(tasks[:1], count)\n",
        (RUNS + "test_a_member_equals_a_run_of_its_own", RUNS + "test_settings_differ"),
        "sweeps/training.py",
    ),
    Mutation(
        "checkpoints before are removed while others are written",
        "checkpoint.save(self.directory.checkpoints, state, None, origin=origin)",
        "checkpoint.save(self.directory.checkpoints, state, self.run.log.keep, origin=origin)",
        (RUNS + "test_a_kill_between_checkpoints_leaves_those_before",),
        "sweeps/member.py",
    ),
    Mutation(
        "a resume continues from checkpoints that not all members have",
        "common = sorted(set.intersection(*(set(member.saved()) for member in active))) if active else []",
        "common = sorted(set.union(*(set(member.saved()) for member in active))) if active else []",
        (RUNS + "test_a_killed_sweep_resumes_bit_for_bit",),
        "sweeps/training.py",
    ),
    Mutation(
        "a member that is not finite goes on",
        "if iteration < done and not member.end:",
        "if False and not member.end:",
        (RUNS + "test_members_that_are_not_finite_are_dropped_alone",),
        "sweeps/training.py",
    ),
    Mutation(
        "a member without a score is left out of the IQM",
        "scores = [score if math.isfinite(score) else -math.inf for score in own]",
        "scores = [score if math.isfinite(score) else 1e9 for score in own]",
        (RUNS + "test_the_result_ranks_settings_by_the_iqm_over_seeds",),
        "sweeps/results.py",
    ),
    Mutation(
        "members of other lengths share a program",
        "lengths = run.num_steps, run.total_steps, run.iterations_per_env_reset",
        "lengths = run.num_steps, run.iterations_per_env_reset",
        (RUNS + "test_members_that_differ_in_numbers_alone_share_a_program",),
        "sweeps/packing.py",
    ),
    Mutation(
        "an end is written before the checkpoint that it belongs to",
        'ORDER = ("best", CHECKPOINTS, STOPPED, EVALUATION)',
        'ORDER = (STOPPED, EVALUATION, "best", CHECKPOINTS)',
        (TRANSPORT + "test_a_kill_while_a_snapshot_is_written_leaves_what_can_be_resumed",),
        "placing/transport.py",
    ),
    Mutation(
        "a snapshot is taken while checkpoints come and go",
        "        if _checkpoints(self._root) != checkpoints:\n",
        "        if False:\n",
        (TRANSPORT + "test_no_snapshot_is_taken_while_checkpoints_come_and_go",),
        "placing/transport.py",
    ),
    Mutation(
        "what a lost worker did after its last checkpoint counts twice",
        "        self._progress.take_back(placed.env_steps)\n",
        "",
        (DRIVER + "test_a_lost_worker_goes_on_from_its_last_checkpoint_and_nothing_counts_twice",),
        "placing/driver.py",
    ),
    Mutation(
        "a program whose worker is lost begins from nothing",
        "begun = transport.collect(self._root, self._runs_of(placed))",
        "begun = transport.collect(self._root, [])",
        (DRIVER + "test_a_lost_worker_goes_on_from_its_last_checkpoint_and_nothing_counts_twice",),
        "placing/driver.py",
    ),
    Mutation(
        "workers trust nothing",
        "    stack.enter_context(imports.trusting(names, within=within))\n",
        "",
        (DRIVER + "test_a_worker_trusts_what_the_driver_trusts",),
        "placing/worker.py",
    ),
    Mutation(
        "a copy takes over environments and key, too",
        "return dataclasses.replace(states, learner=jax.tree.map(lambda x: x[sources], states.learner))",
        "return jax.tree.map(lambda x: x[sources], states)",
        (SEARCHING + "test_a_copy_has_the_learner_of_its_source_and_its_own_environments_and_key",),
        "program/members.py",
    ),
    Mutation(
        "decisions at the iteration of a checkpoint are not carried out after a resume",
        "trained = self._searched(program, stacked(repeated(states, program.members)), states, done, progress)",
        "trained = stacked(repeated(states, program.members))",
        (SEARCHING + "test_a_signal_saves_all_and_resumes",),
        "sweeps/training.py",
    ),
    Mutation(
        "scores include rows before the previous decisions",
        'if row["iteration"] > since)',
        'if row["iteration"] > 0)',
        (SEARCHING + "test_scores_are_means_of_recent_rows",),
        "sweeps/searching.py",
    ),
    Mutation(
        "halving keeps as many at each rung as at the first",
        "standings.members // self.eta**rung",
        "standings.members // self.eta",
        (PARTS + "test_halving_keeps_a_third_of_all_members_at_each_rung",),
        "search/halving.py",
    ),
    Mutation(
        "asha forgets the programs before",
        "order = ranked({**standings.earlier, **standings.scores})",
        "order = ranked(standings.scores)",
        (PARTS + "test_asha_compares_with_those_that_reached_the_rung_before",),
        "search/asha.py",
    ),
    Mutation(
        "a member without a score is a source",
        "best = [number for number in order[:count] if not math.isnan(standings.scores[number])]",
        "best = order[:count]",
        (PARTS + "test_a_member_without_a_score_is_never_a_source",),
        "search/pbt.py",
    ),
    Mutation(
        "perturbed numbers leave their bounds",
        "return float(min(max(new, low), high))",
        "return float(new)",
        (PARTS + "test_perturbed_numbers_stay_within_their_bounds",),
        "search/pbt.py",
    ),
    Mutation(
        "a lineage stays with its last member",
        "else last.source",
        "else member",
        (SEARCHING + "test_a_lineage_goes_back_through_the_sources",),
        "search/lineage.py",
    ),
    Mutation(
        "every trial of a study has the seed of the first",
        "self._inner = self._make(trial.number)",
        "self._inner = self._make(0)",
        (STUDY + "test_proposals_depend_on_seed_trial_and_results_alone",),
        "sweeps/studies/samplers.py",
    ),
    Mutation(
        "a study seeks the lowest score",
        'direction="maximize"',
        'direction="minimize"',
        (STUDY + "test_a_sampler_finds_the_maximum[tpe]",),
        "sweeps/studies/storage.py",
    ),
    Mutation(
        "two workers begin more trials than the budget has",
        "if sum(number < trial.number for number in self._counted()) >= self.settings.trials:",
        "if False:",
        (STUDY + "test_a_trial_that_is_one_too_many_is_refused",),
        "sweeps/studies/study.py",
    ),
    Mutation(
        "the trials of a lost worker are not repeated",
        "        if trial.params:\n",
        "        if False:\n",
        (STUDY + "test_the_trials_of_a_lost_worker_are_repeated_once",),
        "sweeps/studies/study.py",
    ),
    Mutation(
        "a worker that trains gives no heartbeats",
        "for number in sorted(self._running):",
        "for number in ():",
        (STUDY + "test_the_trials_of_a_lost_worker_are_repeated_once",),
        "sweeps/studies/study.py",
    ),
    Mutation(
        "a pruned trial is told as complete",
        "done = not why and math.isfinite(score)",
        "done = math.isfinite(score)",
        (STUDY + "test_trials_without_a_score_are_pruned",),
        "sweeps/studies/study.py",
    ),
    Mutation(
        "the options of a study are in the order of the table",
        "for path in sorted(swept)}",
        "for path in swept}",
        (ROUNDS + "test_a_stopped_study_resumes_bit_for_bit[True-4]",),
        "sweeps/studies/space.py",
    ),
    Mutation(
        "the value of a trial is that of its best member",
        "study.tell(number, iqm(scores),",
        "study.tell(number, max(scores),",
        (ROUNDS + "test_the_value_of_a_trial_is_the_iqm_of_its_members",),
        "sweeps/studies/rounds.py",
    ),
    Mutation(
        "a trial that was proposed before a kill is forgotten",
        "asked = study.unrecorded(begun)",
        "asked = study.unrecorded(begun)[:0]",
        (ROUNDS + "test_a_killed_study_resumes_bit_for_bit",),
        "sweeps/studies/rounds.py",
    ),
    Mutation(
        "steps of an earlier process are forgotten",
        "self._env_steps += env_steps[member]",
        "pass",
        ("tests/sweeps/test_runs.py::test_a_killed_sweep_resumes_bit_for_bit",),
        "ppax/sweeps/progress.py",
    ),
]
