"""Breaks of options, of precision and dtypes, and of what a run says about its steps."""

from breaks.base import Mutation

X64 = "tests/system/test_x64.py::test_runs_with_64_bit_types_stay_32_bit_and_equal_those_without"
PRECISION = "tests/system/test_precision.py::test_only_operands_with_sides_of_at_least_16_are_rounded"
HEADS = "tests/networks/test_heads.py::test_log_std_init_without_standard_deviation_is_refused"
TRAIN = "tests/training/test_training.py::"
MANY_ERRORS = "tests/config/test_many_errors.py::"
TRAINED = "tests/run/test_result.py::"
SETTINGS = "tests/envs/test_settings.py::"
NAMES = "tests/core/test_names.py::"

MUTATIONS: list[Mutation] = [
    Mutation(
        "the nearest option is one of the same last name anywhere",
        "    if siblings and not same:\n",
        "    if False:\n",
        ("tests/config/test_config.py::test_the_nearest_option_is_not_one_of_the_same_last_name_in_another_table",),
        "core/options.py",
    ),
    Mutation(
        "a population decides after as many iterations as steps",
        "search = config.part_in_iterations(plan.search, config.SEARCH, sizes[0])",
        "search = config.part_in_iterations(plan.search, config.SEARCH, 1)",
        ("tests/config/test_intervals.py::test_the_interval_of_a_population_in_steps",),
        "sweeps/decisions.py",
    ),
    Mutation(
        "the first error of a file hides the others",
        "            problems.append(str(error))\n\n\ndef _raise",
        "            raise\n\n\ndef _raise",
        (MANY_ERRORS + "test_all_errors_of_a_file_are_in_one_message",),
        "config/validation.py",
    ),
    Mutation(
        "an unknown part hides all other errors",
        "        except WrongTable as error:\n",
        "        except WrongTable as error:\n            raise\n",
        (MANY_ERRORS + "test_all_errors_of_a_file_are_in_one_message",),
        "config/validation.py",
    ),
    Mutation(
        "groups repeat the errors of the agent",
        "if faults[one] == inherited[one] or inherited[one] not in faults.values()]",
        "]",
        (MANY_ERRORS + "test_errors_that_groups_inherit_are_reported_once",),
        "config/validation.py",
    ),
    Mutation(
        "parameters in the default float",
        "jax.random.normal(key, (long, short), jnp.float32)",
        "jax.random.normal(key, (long, short))",
        (X64,),
        "networks/layers.py",
    ),
    Mutation(
        "observations of 64 bits stay so",
        "narrow(self.observation_space, self._to_streams(now.obs)),",
        "self._to_streams(now.obs),",
        (X64,),
        "envs/vector.py",
    ),
    Mutation(
        "observations rounded to bfloat16",
        "    obs = in_float32(obs)\n",
        "    obs = cast(obs, jnp.dtype(product_dtype(compute_dtype)))\n",
        (PRECISION,),
        "ppo/forward.py",
    ),
    Mutation(
        "features rounded to bfloat16",
        "in_float32(to_rows(memory.features))",
        "cast(to_rows(memory.features), dtype)",
        (PRECISION,),
        "ppo/forward.py",
    ),
    Mutation(
        "log_std_init of discrete actions accepted",
        "        for name, default in BOX_DEFAULTS.items():\n            if (value",
        "        for name, default in list(BOX_DEFAULTS.items())[1:]:\n            if (value",
        (HEADS, "tests/config/test_options_act.py::test_a_change_of_an_option_changes_numbers_or_is_refused_sample"),
        "networks/heads.py",
    ),
    Mutation(
        "log_std_init of Beta accepted",
        'if family == "beta" and options.log_std_init != 0.0:',
        "if False:",
        (HEADS,),
        "networks/heads.py",
    ),
    Mutation(
        "event files without a directory, in silence",
        "        if run_dir is None:\n            raise ConfigError(",
        "        if False:\n            raise ConfigError(",
        ("tests/loggers/test_tensorboard.py::test_log_tensorboard_without_a_run_directory_is_refused",),
        "ppax/loggers/tensorboard.py",
    ),
    Mutation(
        "Craftax's own limit as an option",
        'HIDDEN = ("max_steps_in_episode", "max_timesteps")',
        'HIDDEN = ("max_steps_in_episode",)',
        ("tests/envs/wrappers/test_params.py::test_a_suites_own_time_limit_is_no_option",),
    ),
    Mutation(
        "numbers by hand unchecked",
        "    check_numbers(agent)\n",
        "",
        (TRAIN + "test_numbers_out_of_range_are_refused_by_hand_too",),
        "ppax/training/loop.py",
    ),
    Mutation(
        "a network of another environment accepted",
        "if spaces is not None and bool(groups)",
        "if spaces is None and bool(groups)",
        (TRAIN + "test_a_network_of_another_environment_is_refused",),
        "ppax/training/arguments.py",
    ),
    Mutation(
        "silence about a metric without numbers",
        "for sentence in self.monitor.metrics_without_values() if self._all_done(state) else ():",
        "for sentence in ():",
        ("tests/run/test_metrics_without_values.py::test_a_metric_that_was_always_nan_is_warned_of_at_the_end",),
        "ppax/run/loop.py",
    ),
    Mutation(
        "the closing line leaves out the steps of resets, which `total_steps` counts",
        'return f"{self.total_steps:,} steps{agents}"',
        'return f"{self.env_steps:,} steps{agents}"',
        (TRAINED + "test_steps_done_counts_as_the_option_total_steps_does",),
    ),
    Mutation(
        "parameters of a configuration are not set in an environment of one's own",
        "if env is None else configured(env, config)",
        "if env is None else env",
        (SETTINGS + "test_build_sets_parameters_of_an_environment_of_ones_own",),
        "config/construction.py",
    ),
    Mutation(
        "resume leaves an environment of one's own as it is",
        "if env is None else config.configured(env, run_config)",
        "if env is None else env",
        (SETTINGS + "test_evaluation_has_parameters_of_its_own",),
        "run/restore.py",
    ),
    Mutation(
        "sampled parameters stay sampled",
        "for name, x in ends.items() if name not in params}",
        "for name, x in ends.items()}",
        (SETTINGS + "test_sampled_parameters_can_be_set_again",),
        "wrappers/params.py",
    ),
    Mutation(
        "wrappers of the user are lost in evaluation",
        "(not settings.by_name or env_params.keys() <= known.keys())",
        "not settings.by_name",
        (SETTINGS + "test_a_changed_environment_made_by_name_stays_changed",),
        "envs/making.py",
    ),
    Mutation(
        "another timeout compiles again",
        "dataclasses.field(default=TIMEOUT, compare=False)",
        "dataclasses.field(default=TIMEOUT)",
        (SETTINGS + "test_settings_that_change_no_program_compile_none_again",),
        "envs/settings.py",
    ),
    Mutation(
        "a timeout without worker processes is accepted",
        'if self.vectorization == "sync":',
        "if False:",
        (SETTINGS + "test_a_timeout_out_of_range_or_without_effect_is_refused",),
        "envs/settings.py",
    ),
    Mutation(
        "a field holds the parts of its name",
        "kind = field.metadata[holds]",
        "kind = field.name if field.name in PARTS else field.metadata[holds]",
        ("tests/config/test_config.py::test_fields_with_a_slot_hold_parts_whatever_their_names",),
        "config/catalogue.py",
    ),
    Mutation(
        "numbers beyond float32 pass",
        "not SMALLEST <= abs(value) <= LARGEST",
        "not 0.0 < abs(value) < math.inf",
        ("tests/training/test_training.py::test_numbers_out_of_range_are_refused_by_hand_too",),
        "ppax/core/options.py",
    ),
    Mutation(
        "names of other libraries in capitals unknown",
        'return name.lower().replace("-", "_")',
        'return name.replace("-", "_")',
        (NAMES + "test_names_in_any_case",),
        "ppax/core/unknown_names.py",
    ),
    Mutation(
        "an unknown option of another library by spelling alone",
        'same = [other for other in known if row and row.option and f".{other}".endswith(f".{row.option}")]',
        "same: list[str] = []",
        (NAMES + "test_in_run_files_and_on_the_command_line",),
        "ppax/core/options.py",
    ),
    Mutation(
        "a suggested option without its value",
        "written(option, row.value)",
        "written(option, '')",
        (NAMES + "test_in_run_files_and_on_the_command_line",),
        "ppax/core/options.py",
    ),
    Mutation(
        "calls without the names of other libraries",
        """            raise TypeError(f"{function.__name__} has no argument {unknown}: {remedy(unknown, names)}")
""",
        "            pass\n",
        (NAMES + "test_in_calls",),
        "ppax/core/unknown_names.py",
    ),
    Mutation(
        "leaves of schedules without the names of other libraries",
        "path.removesuffix(last) + own_name(last)",
        "path",
        (NAMES + "test_in_tables_of_groups_and_of_leaves",),
        "ppo/schedules.py",
    ),
]
