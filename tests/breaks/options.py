"""Breaks of options, of precision and dtypes, and of what a run says about its steps."""

from breaks.base import Mutation

X64 = "tests/system/test_x64.py::test_runs_with_64_bit_types_stay_32_bit_and_equal_those_without"
PRECISION = "tests/system/test_precision.py::test_only_operands_with_sides_of_at_least_16_are_rounded"
HEADS = "tests/networks/test_heads.py::test_log_std_init_without_standard_deviation_is_refused"
TRAIN = "tests/test_training.py::"
TRAINED = "tests/run/test_result.py::"

MUTATIONS: list[Mutation] = [
    Mutation(
        "GRU memory in the default float",
        "return jnp.zeros(self.width, jnp.float32)",
        "return jnp.zeros(self.width)",
        (X64,),
        "memories/gru.py",
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
        "narrow(self._to_streams(now.obs)),",
        "self._to_streams(now.obs),",
        (X64,),
        "envs/vector.py",
    ),
    Mutation(
        "observations rounded to bfloat16",
        "cast(learner.params, dtype), in_float32(obs)",
        "cast(learner.params, dtype), cast(obs, dtype)",
        (PRECISION,),
        "learning/forward.py",
    ),
    Mutation(
        "features rounded to bfloat16",
        "in_float32(to_rows(memory.features))",
        "cast(to_rows(memory.features), dtype)",
        (PRECISION,),
        "learning/forward.py",
    ),
    Mutation(
        "an observation of a dense layer in the weights' precision",
        "dtype = jnp.float32 if isinstance(self.encoder, Flat) else dtype",
        "dtype = dtype",
        (PRECISION,),
        "encoders/choice.py",
    ),
    Mutation(
        "log_std_init of discrete actions accepted",
        "zip(options._fields, options, BoxOptions(), strict=True)",
        "zip(options._fields[:-1], options, BoxOptions(), strict=False)",
        (HEADS, "tests/config/test_options_act.py::test_a_change_of_an_option_changes_numbers_or_is_refused_sample"),
        "networks/head_for.py",
    ),
    Mutation(
        "log_std_init of Beta accepted",
        'if family == "beta" and log_std_init != 0.0:',
        "if False:",
        (HEADS,),
        "networks/head_for.py",
    ),
    Mutation(
        "event files without a directory, in silence",
        "        if run_dir is None:\n            raise ConfigError(",
        "        if False:\n            raise ConfigError(",
        ("tests/loggers/test_tensorboard.py::test_without_a_run_directory_it_is_refused",),
        "ppax/run/fit.py",
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
        "ppax/training.py",
    ),
    Mutation(
        "a network of another environment accepted",
        "if seen is not None:\n            require_made_for",
        "if seen is None:\n            require_made_for",
        (TRAIN + "test_a_network_of_another_environment_is_refused",),
        "ppax/agents/arguments.py",
    ),
    Mutation(
        "silence about a metric without numbers",
        "for sentence in self.monitor.metrics_without_values() if done == self.total_iterations else ():",
        "for sentence in ():",
        ("tests/run/test_metrics_without_values.py::test_a_metric_that_no_row_had_is_said_at_the_end",),
        "ppax/run/loop.py",
    ),
    Mutation(
        "resets counted without a word",
        "idle = self.total_steps - self.env_steps",
        "idle = 0",
        (TRAINED + "test_steps_that_only_reset_are_counted_apart",),
    ),
]
