"""Breaks of warm starts and of another length of a run."""

from breaks.base import Mutation

MATCHING = "tests/run/warm_start/test_matching.py::"
SOURCE = "tests/run/warm_start/test_source.py::"
CHANGED = "tests/run/warm_start/test_changed_spaces.py::"
START = "tests/run/warm_start/test_start.py::"
RESTORE = "tests/run/test_restore.py::"

MUTATIONS: list[Mutation] = [
    Mutation(
        "an address of the Hub is taken for a path to start from",
        "    if name.startswith(hub.PREFIX):\n",
        "    if False:\n",
        ("tests/policy/test_hub.py::test_a_run_starts_from_an_address",),
        "run/warm_start.py",
    ),
    Mutation(
        "new numbers of an observation have the weights of the first one",
        "return np.where((index < 0).reshape(shape), fill, chosen).astype(x.dtype)",
        "return chosen.astype(x.dtype)",
        (CHANGED + "test_a_policy_acts_as_before_on_the_old_numbers[separate-three added]",),
        "run/changed_spaces.py",
    ),
    Mutation(
        "numbers of a later entry have the weights of the first entry",
        "np.where(index < 0, -1, offsets[source] + index)",
        "np.where(index < 0, -1, index)",
        (CHANGED + "test_entries_of_a_dict_follow_their_names",),
        "run/changed_spaces.py",
    ),
    Mutation(
        "statistics stay in their old order",
        'if field != "count" and not origin.whole:',
        'if field != "count" and values.shape != shape:',
        (CHANGED + "test_a_policy_acts_as_before_on_the_old_numbers[gru-reordered]",),
        "run/changed_spaces.py",
    ),
    Mutation(
        "new numbers of an observation begin with variance 0",
        'origin.places, -1, float(field == "var.high"))',
        "origin.places, -1, 0.0)",
        (CHANGED + "test_statistics_follow_their_numbers_and_new_ones_are_standard",),
        "run/changed_spaces.py",
    ),
    Mutation(
        "a new entry begins with variance 0",
        'arrays[f"{own}.var.high"] += 1.0',
        "pass",
        (CHANGED + "test_entries_of_a_dict_follow_their_names",),
        "run/changed_spaces.py",
    ),
    Mutation(
        "an entry that one run alone normalises gets new statistics",
        "if not known and entry is not None:",
        "if False:",
        (CHANGED + "test_an_entry_that_one_run_alone_normalises_is_refused",),
        "run/changed_spaces.py",
    ),
    Mutation(
        "statistics of single numbers are matched with those of all",
        "if any(isinstance(node, PartStats) for _, node in nodes) or any(",
        "if any(",
        (CHANGED + "test_numbers_that_are_not_normalised_are_refused",),
        "run/changed_spaces.py",
    ),
    Mutation(
        "a new action as likely as the mean of the old ones",
        '("bias", bias, math.log(share) if new else 0.0)',
        '("bias", bias, 0.0)',
        (CHANGED + "test_new_discrete_actions_are_rare_and_never_the_likeliest",),
        "run/changed_spaces.py",
    ),
    Mutation(
        "new actions become the likeliest",
        "if not 0.0 < probability < limit:",
        "if not 0.0 < probability < 1.0:",
        (CHANGED + "test_actions_that_do_not_fit_are_refused",),
        "run/changed_spaces.py",
    ),
    Mutation(
        "the standard deviations of old elements of a Box stay in their old places",
        "np.where(index < 0, -1, index + i * old)",
        "np.where(index < 0, -1, index)",
        (CHANGED + "test_new_elements_of_a_box_begin_in_the_middle_and_old_ones_act_as_before[state_std]",),
        "run/changed_spaces.py",
    ),
    Mutation(
        "a number of an observation is taken twice",
        "if (origin.entry, i) in users:",
        "if False:",
        (CHANGED + "test_observations_that_do_not_fit_are_refused[twice]",),
        "run/changed_spaces.py",
    ),
    Mutation(
        "moments of an optimiser for weights of other spaces",
        'for name in ("opt_state", "extensions"):\n        if name in settings.keep:',
        'for name in ("opt_state", "extensions"):\n        if False:',
        (CHANGED + "test_observations_that_do_not_fit_are_refused[moments]",),
        "run/changed_spaces.py",
    ),
    Mutation(
        "residual connections around a first layer whose inputs change",
        "if torso.residual and torso.hidden[0] in (size_in, end):",
        "if False:",
        (CHANGED + "test_observations_that_do_not_fit_are_refused[residual]",),
        "run/changed_spaces.py",
    ),
    Mutation(
        "the first state of a warm start is not saved",
        "if warm is not None and (error := saver.save_final(state)):",
        "if False and (error := saver.save_final(state)):",
        (START + "test_a_resumed_warm_start_is_exact_without_the_other_run",),
        "run/saving.py",
    ),
    Mutation(
        "arrays of another shape are taken",
        "SAME if here.shape == there.shape and here.dtype == there.dtype else OTHER",
        "SAME",
        (MATCHING + "test_weights_are_compared_one_by_one",),
        "run/warm_start.py",
    ),
    Mutation(
        "the mean of one run's statistics with the count of another's",
        '{"params": None, "obs_stats": is_stats}.get(',
        '{"params": None, "obs_stats": None}.get(',
        (MATCHING + "test_statistics_of_an_observation_are_taken_as_a_whole",),
        "run/warm_start.py",
    ),
    Mutation(
        "an optimiser's state goes to other weights",
        "usable, prefix = left.isdisjoint(WEIGHTS.get(field, ())), dotted_name",
        "usable, prefix = True, dotted_name",
        (MATCHING + "test_an_optimisers_state_is_taken_with_all_of_its_weights_only",),
        "run/warm_start.py",
    ),
    Mutation(
        "moments of auxiliary weights go to fresh ones",
        '"opt_state": ("params", "extensions")',
        '"opt_state": ("params",)',
        (START + "test_moments_are_never_taken_without_their_weights",),
        "run/warm_start.py",
    ),
    Mutation(
        "random keys are compared with those of another run",
        "leaf for within, leaf in inner if not _is_key(leaf)}",
        "leaf for within, leaf in inner}",
        (START + "test_every_field_of_every_part_is_taken_except_random_keys",),
        "run/warm_start.py",
    ),
    Mutation(
        "random past selves after a warm start",
        "_replace(current=learner, pool=pool_of(learner, agent.pool.size))",
        "_replace(current=learner)",
        (START + "test_self_play_starts_with_a_pool_of_the_learners_that_it_takes",),
        "run/warm_start.py",
    ),
    Mutation(
        "a learner that differs is taken in part without being asked",
        "or (warm.left and not settings.partial)",
        "or False",
        (START + "test_a_network_that_differs_is_refused_with_a_table_and_nothing_is_written",),
        "run/warm_start.py",
    ),
    Mutation(
        "a state of any size is read for a warm start",
        '.get("id", "")), available_bytes()',
        '.get("id", "")), None',
        (SOURCE + "test_a_state_larger_than_the_memory_is_not_read",),
        "run/warm_start.py",
    ),
    Mutation(
        "a run may be made shorter than it is",
        "    if after < done:",
        "    if False:",
        (RESTORE + "test_lengths_that_are_impossible_are_refused_and_nothing_is_changed",),
        "run/restore.py",
    ),
    Mutation(
        "another length of a run is not recorded",
        '| {"total_steps": after})',
        '| {"total_steps": before})',
        (RESTORE + "test_a_finished_run_that_is_extended_equals_a_longer_one_bit_for_bit",),
        "run/directory.py",
    ),
]
