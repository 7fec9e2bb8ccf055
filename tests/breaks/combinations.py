"""Breaks of combinations: own methods on the host, numbers of players, members of sweeps, warm starts."""

from breaks.base import Mutation

RUNS = "tests/sweeps/test_runs.py::"
MUTATIONS = [
    Mutation(
        "an own `act` is not used in environments on the host",
        "    if own or agent.sharing",
        "    if agent.sharing",
        ("tests/agents/test_agent_protocol.py::test_on_the_host_an_own_way_to_act_or_to_sample_is_used",),
        "training/host/policy.py",
    ),
    Mutation(
        "noise is drawn for a subclass of a distribution",
        "    if type(distribution) not in KNOWN:\n",
        "    if not isinstance(distribution, KNOWN):\n",
        ("tests/agents/test_agent_protocol.py::test_on_the_host_an_own_way_to_act_or_to_sample_is_used",),
        "training/host/policy.py",
    ),
    Mutation(
        "an agent for other players is evaluated",
        "        require_players(agent, self.env)\n",
        "",
        ("tests/agents/test_agent_protocol.py::test_an_agent_for_another_number_of_agents_is_not_evaluated",),
        "training/backends.py",
    ),
    Mutation(
        "a group's independent players are not counted",
        "        if isinstance(one, Independent) and one.num_agents != size:\n",
        "        if False:\n",
        ("tests/agents/test_agent_protocol.py::test_independent_players_of_a_group_are_as_many_as_its_agents",),
        "training/arguments.py",
    ),
    Mutation(
        "the first reset does not know the schedule",
        "start_actor(agent, at_start(env, ranges), actor_key)",
        "start_actor(agent, env, actor_key)",
        ("tests/training/test_sweeps.py::test_the_first_environments_have_the_values_that_a_schedule_begins_with",),
        "training/loop.py",
    ),
    Mutation(
        "an agent that died is dropped while its teammate waits",
        "if missing[i - rows.start] and self._waits[team].any():",
        "if missing[i - rows.start] and self._waits[i]:",
        (
            "tests/training/host/test_episodes.py::test_an_agent_that_died_plays_again_after_the_reset_that_a_cut_teammate_waits_for",
        ),
        "training/host/episodes.py",
    ),
    Mutation(
        "all members anneal over the iterations of the first one",
        "total_iterations = states.iteration + num_iterations",
        "total_iterations = states.iteration[0] + num_iterations",
        ("tests/training/test_sweeps.py::test_each_member_anneals_over_its_own_iterations",),
        "training/sweeps.py",
    ),
    Mutation(
        "the penalty vanishes while the actor is frozen",
        "acts[-1].any() & (d > NOT_MOVED)",
        "acts[-1].any()",
        ("tests/extensions/test_critic_warmup.py::test_coefficients_do_not_adapt_to_an_actor_that_is_frozen",),
        "extensions/kl_control.py",
    ),
    Mutation(
        "the entropy coefficient runs away while the actor is frozen",
        " & ~jnp.asarray(frozen)",
        "",
        ("tests/extensions/test_critic_warmup.py::test_coefficients_do_not_adapt_to_an_actor_that_is_frozen",),
        "extensions/entropy_target.py",
    ),
    Mutation(
        "only the first member's numbers are checked",
        "    for task in tasks:\n        try:\n            require_consistent",
        "    for task in tasks[:1]:\n        try:\n            require_consistent",
        (RUNS + "test_settings_of_every_member_are_checked_before_anything_compiles[of an extension]",),
        "sweeps/packing.py",
    ),
    Mutation(
        "a temporary folder stops the next checkpoint",
        "    remove_temporary(directory)  # of a process that was killed\n",
        "",
        ("tests/run/test_checkpoint.py::test_a_temporary_folder_of_a_killed_process_does_not_stop_the_next_write",),
        "run/checkpoint.py",
    ),
    Mutation(
        "given statistics are replaced by those of a warm start",
        "        if given and not moments:\n",
        "        if False:\n",
        ("tests/run/warm_start/test_start.py::test_statistics_that_contradict_the_new_runs_normalisation_are_refused",),
        "run/warm_start.py",
    ),
    Mutation(
        "a user's stop condition of a sweep reads shapes",
        "read = evaluated or filmed or own or self",
        "read = evaluated or filmed or self",
        ("tests/sweeps/test_runs.py::test_a_users_stop_condition_may_read_the_training_state",),
        "sweeps/member.py",
    ),
    Mutation(
        "a list of flags of an agent is a tree",
        "jax.tree.map(np.asarray, x, is_leaf=_is_list)",
        "x",
        ("tests/policy/test_inputs.py::test_masks_of_agents_may_be_lists",),
        "policy/inputs.py",
    ),
    Mutation(
        "values in the middle of a schedule are not looked at",
        "        for at in np.ravel(",
        "        for at in () and np.ravel(",
        ("tests/envs/test_curriculum.py::test_values_in_the_middle_of_a_schedule_count_for_limits_and_spaces",),
        "envs/curriculum.py",
    ),
    Mutation(
        "the pool resets with keys of environments that step",
        "jax.vmap(partial(jax.random.fold_in, data=POOL))(key[:size])",
        "key[:size]",
        ("tests/envs/test_resets.py::test_the_pool_does_not_draw_with_the_keys_of_environments_that_step",),
        "envs/vector.py",
    ),
    Mutation(
        "Muon orthogonalises log standard deviations",
        ' and getattr(path[-1], "key", "") != "log_std"',
        "",
        ("tests/ppo/optimizers/test_optimizers.py::test_muon_leaves_log_standard_deviations_of_gsde_to_adam",),
        "ppo/optimizers.py",
    ),
]
