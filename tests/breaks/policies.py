"""Breaks of trained policies apart from their runs: acting, memory, agents, loading."""

from breaks.base import Mutation

ACTING = "tests/policy/test_acting.py::"
INPUTS = "tests/policy/test_inputs.py::"
AGENTS = "tests/policy/test_many_agents.py::"
LOADING = "tests/run/test_loading.py::"

VALUES = "tests/policy/test_values.py::"

MUTATIONS = [
    Mutation(
        "V is that of other observations",
        "acting.inputs.values(np.asarray(out.value), read)",
        "acting.inputs.values(np.asarray(out.value)[::-1], read)",
        (VALUES + "test_v_is_that_of_the_critic_by_hand[True]",),
        "policy/policy.py",
    ),
    Mutation(
        "sampled actions have no V",
        "return out.carry, action, out.value if return_value else None",
        "return out.carry, action, None",
        (VALUES + "test_v_is_that_of_the_critic_by_hand[False]",),
        "policy/programs.py",
    ),
    Mutation(
        "V may be asked for after steps that the critic's memory has not seen",
        "            self._require_one_memory()\n",
        "            pass\n",
        (VALUES + "test_a_critic_with_a_memory_of_its_own_sees_every_step_or_none",),
        "policy/policy.py",
    ),
    Mutation(
        "a shared memory is two memories",
        "        shared = actor.memory.read == self.actor.memory.read",
        "        shared = False",
        (VALUES + "test_a_shared_memory_gives_v_in_any_call",),
        "policy/policy.py",
    ),
    Mutation(
        "a reset does not reach the critic's memory",
        "        acting = self._acting_with_value if self._with_value else self._acting  # the other",
        "        acting = self._acting  # the other",
        (VALUES + "test_v_of_a_critic_that_sees_more_has_a_memory_of_its_own[gru]",),
        "policy/policy.py",
    ),
    Mutation(
        "V of groups in the order of their names",
        "        return {name: part for (name, _), part in zip(self._spec.sizes, parts, strict=True)}",
        "        return {name: part for (name, _), part in zip(sorted(self._spec.sizes), parts, strict=True)}",
        (VALUES + "test_v_of_groups_in_the_order_of_the_groups",),
        "policy/inputs.py",
    ),
    Mutation(
        "V of agents by name is that of other agents",
        "zip(read.names, self._streams(read.names), strict=True)}",
        "zip(read.names, range(len(read.names)), strict=True)}",
        (VALUES + "test_v_of_agents_by_name_and_in_arrays[shared]",),
        "policy/inputs.py",
    ),
    Mutation(
        "actions of agents by name are of groups in another order",
        "for leaf in self._action_leaves[group]] for group in self._axes}",
        "for leaf in self._action_leaves[group]] for group in self._action_leaves}",
        (VALUES + "test_v_of_groups_in_the_order_of_the_groups",),
        "policy/inputs.py",
    ),
    Mutation(
        "unknown categories act",
        "    if not wrong.any():\n        return\n",
        "    return\n",
        (INPUTS + "test_numbers_that_the_policy_does_not_take_are_refused_in_every_call",),
        "hosting/arrays.py",
    ),
    Mutation(
        "2^32 + 7 is read as 7",
        "if low < limits.min or high > limits.max:",
        "if False:",
        ("tests/envs/hosting/test_numbers.py::test_the_dtype_in_which_a_space_is_stored",),
        "hosting/arrays.py",
    ),
    Mutation(
        "NaN acts",
        " and not np.isfinite(own).all():",
        " and False:",
        (INPUTS + "test_numbers_that_the_policy_does_not_take_are_refused_in_every_call",),
        "policy/inputs.py",
    ),
    Mutation(
        "a mask of logits allows every action",
        "(wrong := (given != 0) & (given != 1)).any():",
        "(wrong := given != given).any():",
        (INPUTS + "test_entries_of_masks_and_resets_are_true_or_false",),
        "policy/inputs.py",
    ),
    Mutation(
        "the carry of another policy acts",
        "        self._require_carry(acting.actor, carry, first.shape[0], return_value)\n",
        "",
        (INPUTS + "test_a_carry_of_another_batch_or_policy_is_refused",),
        "policy/policy.py",
    ),
    Mutation(
        "the reader of a bundle casts every number",
        "        if np.any(wrong):",
        "        if False:",
        ("tests/policy/bundle/test_writing.py::test_the_reader_refuses_numbers_that_the_policy_does_not_take",),
        "bundle/numpy_policy.py",
    ),
    Mutation(
        "the memory of a policy is not kept between calls",
        "self._carry, self._first = carry, np.zeros_like(self._first)",
        "self._first = np.zeros_like(self._first)",
        (INPUTS + "test_memory_is_kept_and_reset_where_it_is_told",),
        "policy/policy.py",
    ),
    Mutation(
        "a reset of some observations resets all",
        "self._first[: len(rows)] |= rows",
        "self._first[:] = True",
        (INPUTS + "test_memory_is_kept_and_reset_where_it_is_told",),
        "policy/policy.py",
    ),
    Mutation(
        "absent agents remember observations that they never had",
        "        if present is None:\n            self._carry",
        "        if True:\n            self._carry",
        (AGENTS + "test_agents_that_are_absent_keep_their_memory",),
        "policy/policy.py",
    ),
    Mutation(
        "a mask that training had may be forgotten",
        "            if self._spec.masked:\n",
        "            if False:\n",
        (INPUTS + "test_a_mask_is_required_where_training_had_one",),
        "policy/inputs.py",
    ),
    Mutation(
        "actions of agents by name are those of other agents",
        "own, *self._place(name)) for name in read.names",
        "own, self._place(name)[0], i) for i, name in enumerate(read.names)",
        (AGENTS + "test_players_act_with_their_own_parameters",),
        "policy/inputs.py",
    ),
    Mutation(
        "a user who writes to an action changes later ones",
        "own = np.array(x[: math.prod(lead)], leaf.space_dtype).reshape(shape)",
        "own = np.asarray(x[: math.prod(lead)]).reshape(shape)",
        (INPUTS + "test_actions_have_the_form_and_dtype_of_the_space",),
        "policy/inputs.py",
    ),
    Mutation(
        "sampled actions are repeated after the first call",
        "noise_for(self._distribution, 1, self._rng))",
        "noise_for(self._distribution, 1, np.random.default_rng(0)))",
        (ACTING + "test_samples_have_the_probabilities_of_the_distribution",),
        "policy/programs.py",
    ),
    Mutation(
        "a loaded policy of self-play is that of a past self",
        "agent, learner = agent.agent, learner.current",
        "agent, learner = agent.agent, jax.tree.map(lambda x: x[0], learner.pool)",
        (AGENTS + "test_self_play_acts_with_the_current_learners",),
        "policy/actor.py",
    ),
    Mutation(
        "load(step=...) gives the newest checkpoint",
        "    if step is not None:\n        return read(find_step(path, step).path)\n",
        "",
        (LOADING + "test_every_checkpoint_can_be_loaded_by_its_step",),
        "run/loading.py",
    ),
    Mutation(
        "weights that are not finite are loaded",
        "    if broken:\n        raise checkpoint.DamagedCheckpoint",
        "    if False:\n        raise checkpoint.DamagedCheckpoint",
        (LOADING + "test_weights_that_are_not_finite_are_refused",),
        "run/loading.py",
    ),
    Mutation(
        "all checkpoints are kept, whatever log.keep says",
        "for old in older[: -keep if keep else 0]:",
        "for old in ():",
        (LOADING + "test_the_newest_checkpoints_are_kept",),
        "run/checkpoint.py",
    ),
    Mutation(
        "checkpoints by iterations have no log row",
        "return every, run.log.checkpoint_every or every",
        "return every, every",
        (LOADING + "test_checkpoints_have_steps_and_scores",),
        "run/logging.py",
    ),
    Mutation(
        "an entry without an element cannot be acted on",
        "        number = math.prod(rows)  # not -1: an entry may have no element",
        "        number = -1",
        ("tests/policy/test_inputs.py::test_entries_without_an_element_can_be_acted_on_and_exported",),
    ),
]
