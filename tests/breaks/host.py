"""Breaks of environments on the host, of what is not finite, and of evaluation there."""

from breaks.base import Mutation

HOST = "tests/envs/hosting/test_host.py::"
RUNNING = "tests/envs/hosting/test_handle.py::"
PETTINGZOO = "tests/envs/suites/test_pettingzoo.py::"
FAULTS = "tests/run/test_faults.py::"
OVERLAP = "tests/training/host/test_overlap.py::"
LOCATED = FAULTS + "test_a_fault_is_located_and_the_state_before_it_is_kept"

MUTATIONS: list[Mutation] = [
    Mutation(
        "NaN on the host is another kind of error than in a compiled environment",
        "if isinstance(chunk.error, NotFiniteValue):",
        "if False:",
        (RUNNING + "test_non_finite_rewards_and_observations_are_refused[reward]",),
        "run/loop.py",
    ),
    Mutation(
        "the message of a fault is not recorded",
        'reason |= {"error": error[:ERROR_LENGTH]} if error else {}',
        "pass",
        (RUNNING + "test_non_finite_rewards_and_observations_are_refused[reward]",),
        "run/monitor.py",
    ),
    Mutation(
        "the command that checks an environment lacks parameters",
        "for path, value in params for word in",
        "for path, value in () for word in",
        (FAULTS + "test_the_command_that_checks_the_environment_has_what_it_needs",),
        "run/faults.py",
    ),
    Mutation(
        "the command that checks an environment trusts nothing",
        "*given])}{trust}`",
        "*given])}`",
        (FAULTS + "test_the_command_that_checks_the_environment_has_what_it_needs",),
        "run/faults.py",
    ),
    Mutation(
        "masks looked at where no action is taken",
        "~mask[:-1].any(axis=-1) & valid[:, streams]",
        "~mask[:-1].any(axis=-1)",
        (HOST + "test_no_forbidden_action_is_taken_and_final_masks_may_be_empty[group]",),
    ),
    Mutation(
        "a mask that comes with later infos only is not noticed",
        '                    if "action_mask" in info or "episode_stats" in info:\n',
        "                    if False:\n",
        (HOST + "test_masks_or_statistics_in_some_infos_only_are_refused[group-action_mask]",),
        "hosting/batch.py",
    ),
    Mutation(
        "masks of several components are ignored",
        'if "action_mask" in info and isinstance(space, spaces.Dict | spaces.Tuple):',
        "if False:",
        ("tests/envs/hosting/test_host.py::test_masks_of_actions_with_several_components_are_refused_of_a_vector",),
        "hosting/host_env.py",
    ),
    Mutation(
        "the episode_stats of a reset taken for that of the step before it",
        "final[i] if ended[i] and final is not None else given[i]",
        "given[i]",
        (HOST + "test_vector_environments_use_episode_stats_of_info",),
    ),
    Mutation(
        "shapes compared at resets only",
        "plain = type(obs) is np.ndarray and obs.shape == shape and obs.dtype in dtypes",
        "plain = True",
        (HOST + "test_a_wrong_shape_is_refused_at_any_step[one entry]",),
    ),
    Mutation(
        "sys.exit of an environment ends the process",
        "RAISED = (Exception, SystemExit)",
        "RAISED = (Exception,)",
        (RUNNING + "test_sys_exit_in_an_environment_is_an_environment_error[sync]",),
        "hosting/faults.py",
    ),
    Mutation(
        "an OSError of an environment's constructor is taken for a fault of the disk",
        "    except RAISED as raised:\n",
        "    except SystemExit as raised:\n",
        (
            "tests/envs/hosting/test_first_calls.py::test_a_failure_before_the_first_step_is_an_error_of_the_environment",
        ),
        "hosting/spec.py",
    ),
    Mutation(
        "a step without info ends the creation of environments with a traceback",
        "    if not isinstance(out, tuple) or not out or not isinstance(out[-1], dict):",
        "    if False:",
        ("tests/envs/hosting/test_first_calls.py::test_a_step_without_info_is_explained",),
        "hosting/spec.py",
    ),
    Mutation(
        "masks of -inf are masks",
        "if not same and np.any(wrong := given != flat):",
        "if not same and np.any(wrong := np.isnan(given)):",
        ("tests/envs/hosting/test_mask_values.py::test_other_numbers_are_no_masks[additive]",),
        "hosting/arrays.py",
    ),
    Mutation(
        "True is one environment, and 4.0 are four",
        'check_value(Option("num_envs", int, limits={"low": 1}), whole)',
        "int(whole)",
        ("tests/envs/hosting/test_arguments.py::test_numbers_of_environments_are_checked",),
        "envs/settings.py",
    ),
    Mutation(
        "steps of errors are counted from the creation of the environments",
        'write the results into its arrays."""\n        self.steps = 0\n',
        'write the results into its arrays."""\n',
        ("tests/envs/hosting/test_mask_values.py::test_steps_of_errors_are_counted_from_the_reset",),
        "hosting/batch.py",
    ),
    Mutation(
        "structures of programs keep their environments",
        "self._host, self._spec = weakref.ref(env.host), env.host.spec",
        "self._host, self._spec = lambda kept=env.host: kept, env.host.spec",
        (RUNNING + "test_a_finished_run_keeps_no_environment_and_no_program",),
    ),
    Mutation(
        "each environment has programs of its own",
        "self._signature = env.host.signature, *self._others.values()",
        "self._signature = str(id(env.host)), *self._others.values()",
        (RUNNING + "test_a_finished_run_keeps_no_environment_and_no_program",),
    ),
    Mutation(
        "first observations are not looked at",
        "        _check_initial(env, initial)\n",
        "",
        (RUNNING + "test_a_first_observation_that_is_not_finite_is_located_before_the_policy_acts[group]",),
    ),
    Mutation(
        "a host fault loses the iterations of its chunk",
        "error.reached = Trained(state, self._averaged(totals, completed)) if completed else None",
        "error.reached = None",
        (RUNNING + "test_iterations_before_a_fault_are_logged_and_saved",),
    ),
    Mutation(
        "host chunks last as long as they like",
        "or time.monotonic() > until",
        "or False",
        (RUNNING + "test_host_chunks_end_when_a_checkpoint_is_due",),
    ),
    Mutation(
        "an iteration that is not finite is taken",
        "accepted = sharding.total(jnp.stack(bad).any().astype(jnp.int32)) == 0",
        "accepted = sharding.total(jnp.stack(bad).any().astype(jnp.int32)) >= 0",
        (LOCATED + "[reward-nan-None-options4]",),
    ),
    Mutation(
        "observations are not looked at",
        '            wrong[f"observation{jax.tree_util.keystr(path)}"] = ~finite & own\n',
        '            wrong[f"observation{jax.tree_util.keystr(path)}"] = ~finite & False\n',
        (LOCATED + "[observation--inf-3-options1]",),
    ),
    Mutation(
        "weights are not looked at",
        ", *bad_leaves(update.learner)",
        "",
        ("tests/run/test_directory.py::test_a_learner_that_is_not_finite_is_not_saved",),
    ),
    Mutation(
        "an evaluation waits for ever for an agent",
        "missing = self._absent[rows] >= self.max_steps",
        "missing = self._absent[rows] >= 100 * self.max_steps",
        (PETTINGZOO + "test_evaluation_ends_if_an_agent_never_appears",),
    ),
    Mutation(
        "episodes on the host are of all agents in turn",
        "            agents=out.agents,\n",
        "",
        (PETTINGZOO + "test_evaluation_reports_each_agent",),
    ),
    Mutation(
        "log-probabilities of a rollout beside an update are those of the updated policy",
        "collected_from(inputs.agent, acted, state.actor, rollout)",
        "collected_from(inputs.agent, state.learner, state.actor, rollout)",
        (OVERLAP + "test_rollouts_come_from_the_policy_before_the_last_update[feedforward]",),
    ),
    Mutation(
        "a rollout that waits for its update is lost between calls",
        "self._next = state, ready",
        "self._next = state, None",
        (OVERLAP + "test_calls_of_one_iteration_each_give_the_bits_of_one_call",),
    ),
    Mutation(
        "a rollout beside an update uses the keys of the rollout before",
        "dataclasses.replace(state, actor=actor, key=played.key)",
        "dataclasses.replace(state, actor=actor)",
        (OVERLAP + "test_rollouts_come_from_the_policy_before_the_last_update[feedforward]",),
    ),
    Mutation(
        "an update ends before the next rollout begins",
        "state, totals = self.program(self._placed[1], total, env, state, *arguments)",
        "state, totals = self.program(self._placed[1], total, env, state, *arguments); self.reached(state)",
        (OVERLAP + "test_environments_are_stepped_while_the_update_runs[1]",),
    ),
    Mutation(
        "schedules do not count the iteration whose update still runs",
        "(np.int32(1), np.uint32(ahead.rollout.valid.sum()))",
        "(np.int32(0), np.uint32(ahead.rollout.valid.sum()))",
        (OVERLAP + "test_policies_act_at_the_progress_of_their_own_iteration[1]",),
    ),
    Mutation(
        "schedules do not count the steps whose update still runs",
        "(np.int32(1), np.uint32(ahead.rollout.valid.sum()))",
        "(np.int32(1), np.uint32(0))",
        (OVERLAP + "test_policies_act_at_the_progress_of_their_own_iteration[1]",),
    ),
    Mutation(
        "a rollout beside an update that was discarded is learned from",
        "self._next = state, ready if completed == done else None",
        "self._next = state, ready",
        (OVERLAP + "test_a_rollout_beside_a_discarded_update_is_dropped",),
    ),
    Mutation(
        "the policy of host environments is compiled for the devices of the given state",
        "collector_of(annealed, env, shapes[3].learner)",
        "collector_of(annealed, env, state.learner)",
        (
            "tests/training/host/test_devices.py::test_training_compiled_from_a_state_on_two_devices_equals_that_from_shapes",
        ),
    ),
    Mutation(
        "actions are recorded after the environments have had them",
        "                self._record_action(t, rows, acted.action)  # a copy: environments may write into this array\n"
        "                host.send(number, acted.env_action)\n",
        "                host.send(number, acted.env_action)\n"
        "                self._record_action(t, rows, acted.action)\n",
        ("tests/training/host/test_policy.py::test_environments_that_write_into_their_actions_change_no_rollout",),
    ),
    Mutation(
        "rematerialised memories round in the forward pass only",
        "with rounding(rounded):",
        "with rounding(False):",
        ("tests/networks/test_memories.py::test_rematerialised_memories_round_products_in_both_passes",),
    ),
    Mutation(
        "any transposition is taken for a view",
        "        return moved == sorted(moved)\n",
        "        return True\n",
        ("tests/training/host/test_policy.py::test_transpositions_of_axes_of_size_1_are_views",),
        "training/host/numpy_program.py",
    ),
    Mutation(
        "transpositions of axes of size 1 are computed",
        "        return moved == sorted(moved)\n",
        "        return False\n",
        ("tests/training/host/test_policy.py::test_transpositions_of_axes_of_size_1_are_views",),
        "training/host/numpy_program.py",
    ),
    Mutation(
        "parameters are broadcast in each call",
        "            if each_time and name in ELEMENTWISE:\n",
        "            if False:\n",
        ("tests/training/host/test_policy.py::test_parameters_are_broadcast_once_in_bind",),
        "training/host/numpy_program.py",
    ),
    Mutation(
        "an environment that fails beside an update takes the update with it",
        "completed = self.reached(state) - first",
        "completed = self.reached(state) - first - 1",
        (OVERLAP + "test_failure_of_an_environment_keeps_the_updates_before_it",),
    ),
    Mutation(
        "overlap is accepted where environments restart between iterations",
        "if agent.pool is not None or (iterations_per_env_reset or 0) > 0:",
        "if agent.pool is not None:",
        (OVERLAP + "test_overlap_that_cannot_work_is_refused",),
    ),
    Mutation(
        "overlap is accepted with controls of the KL",
        "            if extension.needs_latest_policy:",
        "            if False:",
        (OVERLAP + "test_controls_of_the_kl_are_refused",),
        "training/arguments.py",
    ),
    Mutation(
        "overlap is called a fault by the doctor",
        'if record.of_run("overlap") > 0:  # only in',
        "if False:  # only in",
        ("tests/reports/test_doctor.py::test_with_overlap_the_first_iteration_alone_shows_a_ratio_that_is_wrong",),
        "reports/doctor.py",
    ),
    Mutation(
        "overlap is called a fault by the report",
        'if not (sign.same_policy and one.config.get("overlap"))]',
        "]",
        ("tests/reports/test_page.py::test_a_ratio_that_is_not_1_is_no_defect_with_overlap",),
        "reports/health.py",
    ),
]
