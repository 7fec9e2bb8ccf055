"""Breaks of extensions in run files, on the command line, in groups, warm starts and checkpoints."""

from breaks.base import Mutation

FILES = "tests/config/test_extensions.py::"
LINES = "tests/cli/test_extensions.py::"
MATCHING = "tests/run/warm_start/test_matching.py::"
EARLIER = "tests/run/test_checkpoint.py::test_a_run_of_another_format_is_refused_in_one_sentence"

MUTATIONS: list[Mutation] = [
    Mutation(
        "moments go to an extension's weights that are fresh",
        "key=lambda field: len(WEIGHTS.get(field, ()))",
        "key=lambda field: field in WEIGHTS",
        (MATCHING + "test_moments_are_left_where_the_weights_of_an_extension_differ",),
        "run/warm_start.py",
    ),
    Mutation(
        "arrays of an extension are taken one by one",
        '_of_field("extension", dotted_name(prefix, name)',
        '_of_field("params", dotted_name(prefix, name)',
        (MATCHING + "test_extensions_are_taken_or_left_each_as_a_whole",),
        "run/warm_start.py",
    ),
    Mutation(
        "an extension without weights takes the optimiser's moments along",
        'if field != "extensions" or _trained(row.path, prefix)',
        "",
        (MATCHING + "test_extensions_are_taken_or_left_each_as_a_whole",),
        "run/warm_start.py",
    ),
    Mutation(
        "extensions on the command line are in alphabetical order",
        "        for one in chosen:\n            kept = ",
        "        for one in sorted(chosen):\n            kept = ",
        (LINES + "test_a_list_sets_extensions_in_its_order",),
        "cli/arguments.py",
    ),
    Mutation(
        "an option adds an extension that the list leaves out",
        "if path in listed and one not in listed[path]:",
        "if False:",
        (LINES + "test_what_is_wrong_is_refused_in_one_sentence",),
        "cli/arguments.py",
    ),
    Mutation(
        "a group's list silently keeps extensions of the run",
        'if path.startswith("groups.") and chosen and lacking:',
        "if False:",
        (LINES + "test_groups_have_extensions_of_their_own",),
        "cli/arguments.py",
    ),
    Mutation(
        "a list of extensions is swept",
        'one = name in ("", *HELP, *OWN, *ONE) or is_extension_list(name)',
        'one = name in ("", *HELP, *OWN, *ONE)',
        (LINES + "test_a_list_is_no_sweep",),
        "cli/sweep.py",
    ),
    Mutation(
        "the help does not say what extensions are for",
        "    if topic in chains:\n",
        "    if False:\n",
        (LINES + "test_help_lists_the_extensions_with_a_line_each",),
        "cli/options.py",
    ),
    Mutation(
        "a group's extensions are in the order of the run",
        "dict(own) if base.keys() <= own.keys() else {**base, **own}",
        "{**base, **own}",
        (FILES + "test_a_group_has_extensions_of_its_own",),
        "config/group_tables.py",
    ),
    Mutation(
        "an extension of another class keeps the numbers of the run's",
        'if before == after or "part" not in _table(own[name]):',
        "if True:",
        (FILES + "test_an_extension_of_another_class_in_a_group_starts_from_its_own_defaults",),
        "config/group_tables.py",
    ),
    Mutation(
        "an empty list removes no extension",
        'removed = tuple(f"{path}." for path, x in own.items() if x == [])',
        "removed = ()",
        (FILES + "test_tables_laid_over_others",),
        "ppax/core/options.py",
    ),
    Mutation(
        "a checkpoint of an earlier format is skipped as a damaged one",
        '            raise CheckpointError(\n                f"{where} has format',
        '            raise DamagedCheckpoint(\n                f"{where} has format',
        (EARLIER,),
        "storage/manifest.py",
    ),
    Mutation(
        "the run file of an earlier format is read before its checkpoint",
        "    checkpoint.require_format(run_dir)\n",
        "",
        (EARLIER,),
        "run/restore.py",
    ),
    Mutation(
        "a policy of an earlier format is read from its run file first",
        "    checkpoint.require_format(path)\n",
        "",
        (EARLIER,),
        "run/loading.py",
    ),
    Mutation(
        "numbers of extensions are not annealed",
        "return dataclasses.replace(agent, **parts, **chains)",
        "return dataclasses.replace(agent, **parts)",
        ("tests/ppo/schedules/test_annealed_extensions.py::test_a_number_of_an_extension_is_annealed_to_its_end",),
        "ppo/schedules.py",
    ),
    Mutation(
        "past selves keep the states of extensions",
        '"reward_stats": None, "extensions": {}}',
        '"reward_stats": None}',
        ("tests/agents/test_extensions.py::test_past_selves_keep_no_states_and_their_streams_stay",),
        "ppax/core/types.py",
    ),
    Mutation(
        "streams of past selves begin anew",
        "jnp.concatenate([new[: own.start], old[own], new[own.start :]])",
        "jnp.concatenate([new[: own.start], 0 * old[own], new[own.start :]])",
        ("tests/agents/test_extensions.py::test_past_selves_keep_no_states_and_their_streams_stay",),
        "agents/self_play.py",
    ),
]
