"""Breaks of the command line, of mistakes in the first call, and of what a prompt shows."""

from breaks.base import Mutation

CLI = "tests/cli/test_main.py::"
RESUME = "tests/run/test_resume.py::"
ARGUMENTS = "tests/agents/test_arguments.py::"
CACHE = "tests/storage/test_cache.py::"
REPRS = "tests/system/test_reprs.py::"

MUTATIONS: list[Mutation] = [
    Mutation(
        "an ignored signal is taken over",
        "if (handler := signal.getsignal(name)) is not signal.SIG_IGN}",
        "if (handler := signal.getsignal(name)) is not None}",
        (RESUME + "test_a_signal_ignored_at_the_start_stays_ignored",),
        "ppax/run/signals.py",
    ),
    Mutation(
        "Ctrl-C without a run directory loses the run",
        "return ON_DISK if directory or not processes.leads() else IN_MEMORY",
        "return ON_DISK if directory or not processes.leads() else ()",
        (RESUME + "test_ctrl_c_without_a_run_directory_returns_the_result_so_far",),
        "ppax/run/fit.py",
    ),
    Mutation(
        "a boolean's value is taken for true",
        "if equals and not BOOLEANS[value.lower()] else name",
        "if False else name",
        (CLI + "test_options_with_dashes_or_underscores",),
        "ppax/cli/arguments.py",
    ),
    Mutation(
        "a part's name needs .part",
        '"--groups.", "--schedule.")) and of_part):\n        name += ".part"',
        '"--groups.", "--schedule.")) and of_part):\n        name += ""',
        (CLI + "test_options_with_dashes_or_underscores",),
        "ppax/cli/arguments.py",
    ),
    Mutation(
        "help shows every option",
        'shown, section = path in USUAL, "usual options"',
        'shown, section = True, "usual options"',
        (CLI + "test_help_shows_common_options_and_how_to_list_all",),
        "ppax/cli/options.py",
    ),
    Mutation(
        "parentheses without end",
        "if self.depth > DEEPEST:",
        "if False:",
        (CLI + "test_unknown_commands_are_refused",),
        "ppax/run/conditions/text.py",
    ),
    Mutation(
        "evaluate prints zeros for what it does not know",
        "**(trained if run.history else {}),",
        "**trained,",
        (CLI + "test_evaluate_is_deterministic_and_writes_nothing",),
        "run/result.py",
    ),
    Mutation(
        "a network for other observations is not noticed",
        "if other is not None:",
        "if False:",
        (ARGUMENTS + "test_an_agent_that_was_made_for_another_environment[Pendulum-v1-observations]",),
        "networks/composed.py",
    ),
    Mutation(
        "a head for other actions is not noticed",
        "elif not same_actions(network.head, head_for(env.action_space)):",
        "elif False:",
        (ARGUMENTS + "test_an_agent_for_other_actions_on_the_same_observations",),
        "networks/composed.py",
    ),
    Mutation(
        "an array for a size goes on to JAX",
        'if field.metadata.get("static") and isinstance(value, jax.Array | np.ndarray):',
        "if False:",
        (ARGUMENTS + "test_what_is_no_agent_or_has_a_field_that_is_no_part[an array for a size]",),
        "ppax/agents/arguments.py",
    ),
    Mutation(
        "an auxiliary loss that is none goes on to JAX",
        '    "auxiliary": (("__call__",), "ppax.losses.NoAuxiliary()"),\n',
        "",
        (ARGUMENTS + "test_every_part_of_ppo_is_checked_before_tracing[auxiliary]",),
        "ppax/agents/arguments.py",
    ),
    Mutation(
        "a critic without a loss goes on to JAX",
        '("init", "value", "error", "update", "metrics"), ',
        "(), ",
        (ARGUMENTS + "test_every_part_of_ppo_is_checked_before_tracing[critic]",),
        "ppax/agents/arguments.py",
    ),
    Mutation(
        "a class is taken for a part",
        "return not isinstance(value, type) and all(",
        "return all(",
        (ARGUMENTS + "test_every_part_of_ppo_is_checked_before_tracing[loss]",),
        "ppax/agents/arguments.py",
    ),
    Mutation(
        "fit compiles anew in every process",
        "compilation_cache.reset_cache()  # JAX looks",
        "pass  # JAX looks",
        (CACHE + "test_another_directory_is_used_from_the_next_run_on",),
        "ppax/storage/cache.py",
    ),
    Mutation(
        "JAX's settings stay changed after fit",
        "        if before:\n            _apply(before)",
        "        if False:\n            _apply(before)",
        (CACHE + "test_settings_of_jax_are_restored",),
        "ppax/storage/cache.py",
    ),
    Mutation(
        "an agent shows its defaults too",
        "if not (_derived(field) or _equal(getattr(tree, field.name), field.default))",
        "if not _derived(field)",
        (REPRS + "test_agent_repr_shows_changed_options_only",),
        "ppax/parts.py",
    ),
    Mutation(
        "bodies are drawn as they stand at first",
        "data.qpos[:] = np.asarray(positions, float)",
        "data.qpos[:] = model.qpos0",
        ("tests/envs/test_pictures.py::test_a_limb_is_on_the_side_of_its_joint_angle",),
        "wrappers/pictures.py",
    ),
    Mutation(
        "a logger's failure is told without its traceback",
        'and is removed; training goes on\\n{trace}"',
        'and is removed; training goes on"',
        ("tests/run/test_failing_loggers.py::test_a_logger_that_raises_is_removed_with_class_and_traceback_once",),
    ),
    Mutation(
        "terms of a loss of any shape are accepted",
        "        if shape != rows:\n",
        "        if False:\n",
        ("tests/losses/test_auxiliary.py::test_a_term_that_is_not_per_row_is_refused",),
        "losses/base.py",
    ),
    Mutation(
        "the settings of a run are those of the default environment",
        "run = dataclasses.replace(_run(config), **env.settings.run_fields())",
        "run = _run(config)",
        ("tests/config/test_config.py::test_the_settings_of_a_run_are_those_of_the_environment_that_is_passed",),
    ),
    Mutation(
        "a class of a compiled environment is called as a function",
        "methods == [True, True, False]",
        "methods == [True, False, False]",
        ("tests/checks/test_check_env.py::test_a_class_in_the_place_of_an_instance_is_named",),
    ),
]
