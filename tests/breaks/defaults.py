"""Breaks of the settings that a run begins from."""

from breaks.base import Mutation

DEFAULTS_FILE = "config/defaults.py"
TESTS = "tests/config/test_defaults.py::"

MUTATIONS = [
    Mutation(
        "the settings of a kind override the user's",
        "merged = chosen | flat",
        "merged = flat | chosen",
        (TESTS + "test_given_options_have_priority",),
        DEFAULTS_FILE,
    ),
    Mutation(
        "compiled and host environments share a column",
        "column = COLUMNS.index((kind.where, kind.control))",
        "column = COLUMNS.index((COMPILED, kind.control))",
        (TESTS + "test_the_line_of_a_run_names_kind_and_sizes", TESTS + "test_columns_differ_where_the_table_does"),
        DEFAULTS_FILE,
    ),
    Mutation(
        "agents are not counted as streams",
        "round(chosen.pop(STREAMS) / kind.agents)",
        "round(chosen.pop(STREAMS) / 1)",
        (TESTS + "test_fewer_environments_with_more_agents",),
        DEFAULTS_FILE,
    ),
    Mutation(
        "options of the replaced part of a slot are kept",
        'if path in kept or not path.startswith(f"agent.{slot}.")}',
        "}",
        (TESTS + "test_options_of_a_part_leave_with_it",),
        DEFAULTS_FILE,
    ),
    Mutation(
        "minibatches of recurrent networks divide rows, not sequences",
        'else length) or (config["num_steps"] if whole else 1)',
        "else length) or 1",
        (TESTS + "test_minibatches_divide_the_rollout_and_have_about_the_rows",),
        DEFAULTS_FILE,
    ),
    Mutation(
        "the number of minibatches does not divide the rollout",
        "LARGEST_DIVISOR) + 1) if sequences % parts == 0]",
        "LARGEST_DIVISOR) + 1)]",
        (TESTS + "test_minibatches_divide_the_rollout_and_have_about_the_rows",),
        DEFAULTS_FILE,
    ),
    Mutation(
        "the user's number of minibatches is replaced",
        ' == "shuffle" and MINIBATCHES not in flat:',
        ' == "shuffle":',
        (TESTS + "test_given_minibatches_are_kept",),
        DEFAULTS_FILE,
    ),
    Mutation(
        "pictures are taken for vectors",
        "images = tuple(entry.name for entry in observed if entry.image)",
        "images: tuple[str, ...] = ()",
        (TESTS + "test_kind_is_read_from_spaces_and_backend",),
        DEFAULTS_FILE,
    ),
    Mutation(
        "each of many actions explores as much as one",
        "math.log(noise / math.sqrt(kind.actions))",
        "math.log(noise)",
        (TESTS + "test_the_noise_of_all_actions_together_is_that_of_one",),
        DEFAULTS_FILE,
    ),
    Mutation(
        "distributions without a standard deviation are given one",
        'kind.actions and flat.get(DISTRIBUTION, "normal") in NORMAL_FAMILIES:',
        "kind.actions:",
        (TESTS + "test_other_distributions_and_deviations_are_kept",),
        DEFAULTS_FILE,
    ),
    Mutation(
        "a preset with the name of the environment is not used",
        'name = given.get(PRESET, _named_as(given.get("env")))',
        "name = given.get(PRESET)",
        (TESTS + "test_a_run_file_may_name_a_preset_or_none",),
        DEFAULTS_FILE,
    ),
    Mutation(
        "no preset is a preset",
        "if name is None or name == NONE:",
        "if name is None:",
        (TESTS + "test_a_run_file_may_name_a_preset_or_none",),
        DEFAULTS_FILE,
    ),
    Mutation(
        "a whole run file is completed again",
        "if whole.keys() <= dict(flatten(given)).keys():",
        "if False:",
        (TESTS + "test_a_whole_configuration_is_left_as_it_is",),
        DEFAULTS_FILE,
    ),
    Mutation(
        "a preset at another number of steps says nothing",
        "return Completed(started, _other_length(started))",
        "return Completed(started)",
        (TESTS + "test_presets_on_the_command_line",),
        DEFAULTS_FILE,
    ),
    Mutation(
        "run files have the defaults of the classes in sweeps",
        "config.resolve(config.completed(run_config).config)",
        "config.resolve(run_config)",
        ("tests/sweeps/test_runs.py::test_a_sweep_begins_from_the_settings_of_ppax_train",),
        "sweeps/runs.py",
    ),
    Mutation(
        "objects of an agent's options are forgotten",
        "    agent = dataclasses.replace(agent, **parts)\n",
        "    pass\n",
        ("tests/run/test_building.py::test_parts_may_be_objects",),
        "run/building.py",
    ),
    Mutation(
        "a memory that is an object has no whole sequences",
        "if name not in parts} | _network(parts)",
        "if name not in parts}",
        ("tests/run/test_building.py::test_other_settings_follow_from_objects",),
        "run/building.py",
    ),
    Mutation(
        "evaluate takes the modes whatever the run's settings say",
        "deterministic = settings.deterministic if deterministic is None else deterministic",
        "deterministic = True if deterministic is None else deterministic",
        ("tests/run/test_building.py::test_evaluate_has_the_settings_of_the_run",),
        "run/result.py",
    ),
    Mutation(
        "an interrupt while JAX is loaded is left to the libraries",
        "signal.signal(signal.SIGINT, _stopped)",
        "pass",
        ("tests/cli/test_command.py::test_ctrl_c_while_jax_is_loaded_ends_in_one_line",),
        "ppax_command.py",
    ),
]
