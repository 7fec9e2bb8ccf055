"""Breaks of teachers that read other entries than the student, of several teachers, and of the critic's warm-up."""

from breaks.base import Mutation

PRIVILEGED = "tests/extensions/imitation/test_privileged_teachers.py::"
SEVERAL = "tests/extensions/imitation/test_several_teachers.py::"
WARMUP = "tests/extensions/test_critic_warmup.py::"
VIEWS, SELECTION = "extensions/imitation/views.py", "extensions/imitation/selection.py"
DISTILLATION, CRITIC = "extensions/imitation/distillation.py", "extensions/critic_warmup.py"
TARGETS = "test_targets_are_those_of_the_entries_that_the_teacher_reads"
ROWS = "test_each_row_has_the_targets_of_the_teacher_of_its_task"
HIGHEST = "test_by_value_each_row_has_the_targets_of_the_teacher_with_the_highest_value"
MUTATIONS = [
    Mutation(
        "a privileged teacher sees zeros",
        "    if student == teacher:\n        return obs\n",
        "    if False:\n        return obs\n",
        (PRIVILEGED + TARGETS,),
        VIEWS,
    ),
    Mutation(
        "a privileged teacher reads an entry that the environment lacks",
        "    if lacking:\n",
        "    if False:\n",
        (PRIVILEGED + "test_a_teacher_that_reads_what_the_environment_lacks_is_refused",),
        VIEWS,
    ),
    Mutation(
        "a privileged teacher reads an entry of another space",
        "        if given[path] != space:",
        "        if False:",
        (PRIVILEGED + "test_an_entry_of_another_space_is_refused",),
        VIEWS,
    ),
    Mutation(
        "the entry of a privileged teacher is the whole observation",
        "own = follow_path(obs, self.wanted.entry)",
        "own = obs",
        (PRIVILEGED + "test_one_entry_is_the_whole_observation_of_a_teacher",),
        DISTILLATION,
    ),
    Mutation(
        "the numbers of several teachers' tasks begin at 0",
        "(x[0] - int(space.start))",
        "(x[0])",
        (SEVERAL + ROWS + "[task]",),
        SELECTION,
    ),
    Mutation(
        "the columns of several teachers' tasks are all columns",
        "x = x[np.array(self.columns)] if self.columns else x",
        "x = x[:]",
        (SEVERAL + ROWS + "[number]",),
        SELECTION,
    ),
    Mutation(
        "of several teachers the one with the lowest value is followed",
        "jnp.argmax(values * scales)",
        "jnp.argmin(values * scales)",
        (SEVERAL + HIGHEST,),
        SELECTION,
    ),
    Mutation(
        "the values of several teachers have no scales",
        "jnp.argmax(values * scales)",
        "jnp.argmax(values)",
        (SEVERAL + HIGHEST,),
        SELECTION,
    ),
    Mutation(
        "values of several teachers in different units are compared",
        "        if scaled and not self.scales:",
        "        if False:",
        (SEVERAL + "test_values_of_normalised_rewards_need_scales",),
        SELECTION,
    ),
    Mutation(
        "the critic of one of several teachers reads zeros",
        "actor = policy.actor_critic if wanted.needs_value else policy.actor",
        "actor = policy.actor",
        (SEVERAL + "test_by_value_a_teacher_needs_what_its_critic_reads",),
        DISTILLATION,
    ),
    Mutation(
        "of several teachers another one than the selected is followed",
        "chosen = where_rows(index >= i, tree, chosen)",
        "chosen = where_rows(index < i, tree, chosen)",
        (SEVERAL + ROWS + "[onehot]",),
        DISTILLATION,
    ),
    Mutation(
        "several teachers forget with every rollout",
        "return Taught(distribution, tuple(array for one in taught for array in one.memory))",
        "return Taught(distribution, memory)",
        (SEVERAL + "test_each_teacher_has_a_memory_of_its_own",),
        DISTILLATION,
    ),
    Mutation(
        "of several teachers the first one acts",
        "_selected(index, [one.action for one in acted])",
        "acted[0].action",
        (SEVERAL + "test_the_teacher_of_the_task_acts[compiled]",),
        DISTILLATION,
    ),
    Mutation(
        "a checksum stands for trust in one of several teachers that is remote",
        "remote = any(imports.REMOTE.match(text) for _, text in _texts(values[place], place))",
        "remote = bool(imports.REMOTE.match(str(values[place])))",
        ("tests/config/test_outside_names.py::test_a_checksum_stands_for_trust_in_a_local_file_alone",),
        "config/construction.py",
    ),
    Mutation(
        "the actor learns in the critic's warm-up and not after it",
        "Stopped(agent.optimizer.actor, inner)",
        "Stopped(agent.optimizer.actor, ~inner)",
        (WARMUP + "test_the_actor_starts_when_the_steps_are_over[1]",),
        CRITIC,
    ),
    Mutation(
        "each device counts its own steps of the critic's warm-up",
        "valid = sharding.gather(rollout.steps.valid, axis=1)",
        "valid = rollout.steps.valid",
        (WARMUP + "test_the_actor_starts_when_the_steps_are_over[2]",),
        CRITIC,
    ),
    Mutation(
        "the critic's warm-up has one optimiser for both",
        "        if not isinstance(agent.optimizer, ActorCritic):",
        "        if False:",
        (WARMUP + "test_one_optimiser_for_both_is_refused",),
        CRITIC,
    ),
]
