"""Breaks of the recommended settings."""

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
        'if not path.startswith(f"agent.{slot}.")}',
        "if True}",
        (TESTS + "test_options_of_a_part_leave_with_it",),
        DEFAULTS_FILE,
    ),
    Mutation(
        "minibatches of recurrent networks divide rows, not sequences",
        'option("seq_len") or (config["num_steps"] if recurrent else 1)',
        'option("seq_len") or 1',
        (TESTS + "test_minibatches_divide_the_rollout_and_have_about_the_rows",),
        DEFAULTS_FILE,
    ),
    Mutation(
        "the number of minibatches does not divide the rollout",
        "for parts in range(1, sequences + 1) if sequences % parts == 0)",
        "for parts in range(1, sequences + 1))",
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
        "if any(entry.image for entry in entries(one.observation_space)):",
        "if False:",
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
]
