"""Breaks of recorded sweeps: plan, packing, members, checkpoints of all, result."""

from breaks.base import Mutation

PLAN = "tests/sweeps/test_plan.py::"
RUNS = "tests/sweeps/test_runs.py::"
TRANSPORT = "tests/sweeps/placing/test_transport.py::"
DRIVER = "tests/sweeps/placing/test_driver.py::"

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
        "scores = [member.score if math.isfinite(member.score) else -math.inf for member in members]",
        "scores = [member.score if math.isfinite(member.score) else 1e9 for member in members]",
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
        "        self._progress.take_back(placed.iterations, placed.env_steps)\n",
        "",
        (DRIVER + "test_a_lost_worker_goes_on_from_its_last_checkpoint_and_nothing_counts_twice",),
        "placing/driver.py",
    ),
    Mutation(
        "a program whose worker is lost begins from nothing",
        "begun = transport.collect(self._root, self._runs_of(placed))",
        "begun = transport.collect(self._root, [])",
        (DRIVER + "test_a_sweep_begun_here_goes_on_on_a_cluster",),
        "placing/driver.py",
    ),
    Mutation(
        "workers trust nothing",
        "    stack.enter_context(imports.trusting(packages))\n",
        "",
        (DRIVER + "test_a_worker_trusts_what_the_driver_trusts",),
        "placing/worker.py",
    ),
]
