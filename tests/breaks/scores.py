"""Breaks of scores: statistics, verdict, resumption, controls."""

from breaks.base import Mutation

STATISTICS = "tests/reports/test_statistics.py::"
RESULTS = "tests/scores/test_results.py::"
SCORING = "tests/scores/test_scoring.py::"
SUITE = "tests/scores/test_suite.py::"
NORMALISED = "tests/scores/test_normalised.py::"

MUTATIONS: list[Mutation] = [
    Mutation(
        "one seed fewer than needed passes",
        "needed = math.ceil(share * len(scores) - 1e-9)",
        "needed = math.floor(share * len(scores) - 1e-9)",
        (STATISTICS + "test_verdict_at_its_boundaries",),
        "reports/statistics.py",
    ),
    Mutation(
        "seeds are measured against 90 % of the threshold itself",
        "bar = random + NEAR * (threshold - random)",
        "bar = NEAR * threshold",
        (STATISTICS + "test_verdict_on_negative_scores",),
        "reports/statistics.py",
    ),
    Mutation(
        "the interval is that of the mean",
        "lambda x, axis=-1: stats.trim_mean(x, TRIMMED, axis=axis),",
        "lambda x, axis=-1: stats.trim_mean(x, 0.0, axis=axis),",
        (STATISTICS + "test_interval_of_one_success_in_five",),
        "reports/statistics.py",
    ),
    Mutation(
        "settings of equal IQM are ranked by nothing else",
        "return Standing(worst, len(known) - len(scores), -math.inf, mean)",
        "return Standing(worst, 0, -math.inf, -math.inf)",
        (
            STATISTICS + "test_settings_are_ranked_by_iqm_then_failures_then_lower_bound_then_mean",
            "tests/sweeps/test_searching.py::test_of_settings_with_failed_seeds_the_one_with_fewer_is_best",
        ),
        "reports/statistics.py",
    ),
    Mutation(
        "results of other settings count",
        "if known is None or known.fingerprint != mark:",
        "if known is None:",
        (SCORING + "test_only_missing_seeds_are_trained",),
        "scores/scoring.py",
    ),
    Mutation(
        "a control may learn",
        "return PASSED if self.statistics.iqm <= self.row.at_most else FAILED",
        "return PASSED if self.statistics.iqm >= self.row.at_most else FAILED",
        (RESULTS + "test_status_and_reason",),
        "scores/results.py",
    ),
    Mutation(
        "the first seed is scored for all",
        "lambda x: x[member], learners)",
        "lambda x: x[0], learners)",
        (SCORING + "test_members_equal_separate_runs[CartPole-v1-False]",),
        "scores/scoring.py",
    ),
    Mutation(
        "scores use the seeds of tuning",
        "TUNING_SEEDS, SCORE_SEEDS = range(100), range(1000, 2000)",
        "TUNING_SEEDS, SCORE_SEEDS = range(100), range(0, 1000)",
        (SUITE + "test_seeds_of_scores_are_those_of_no_preset_test_or_benchmark",),
        "scores/scoring.py",
    ),
    Mutation(
        "options of a part stay when another part takes its place",
        "if not path.startswith(of_parts)",
        "if True",
        ("tests/run/test_building.py::test_options_of_a_part_leave_with_it",),
        "config/user_parts.py",
    ),
    Mutation(
        "spaces are computed from the parameters of all members",
        "return jax.tree.map(lambda x: x[0] if np.ndim(x) else x, env)",
        "return env",
        (SCORING + "test_arrays_of_an_environment_are_no_values_of_seeds[gymnax/MemoryChain-bsuite]",),
        "training/sweeps.py",
    ),
    Mutation(
        "the number of seeds of a row is ignored",
        "    seeds = row.seeds if seeds is None else seeds\n",
        "",
        (SCORING + "test_a_row_says_how_many_seeds_it_has",),
        "scores/scoring.py",
    ),
    Mutation(
        "a performance profile counts seeds, not rows",
        "share = np.array([weights @ (values > one) for one in thresholds])",
        "share = np.array([(values > one).mean() for one in thresholds])",
        (NORMALISED + "test_a_profile_is_the_share_of_runs_above_a_threshold",),
        "scores/normalised.py",
    ),
    Mutation(
        "scores of other settings are published where the environment's library is missing",
        "return written_settings(row, folder) == row_settings(row)",
        "return True",
        ("tests/scores/test_recorded.py::test_without_the_environments_library_the_rows_own_settings_are_compared",),
        "scores/tables.py",
    ),
    Mutation(
        "a row with more seeds counts more among normalised scores",
        "np.full(len(row), 1 / (len(row) * len(rows)))",
        "np.full(len(row), 1 / sum(map(len, rows)))",
        (NORMALISED + "test_a_row_counts_the_same_with_any_number_of_seeds",),
        "scores/normalised.py",
    ),
    Mutation(
        "normalised scores begin at 0, not at the untrained policy",
        "return (np.asarray(score.scores) - random) / (reference - random)",
        "return np.asarray(score.scores) / reference",
        (NORMALISED + "test_zero_is_the_untrained_policy_and_one_the_reference",),
        "scores/normalised.py",
    ),
    Mutation(
        "the bootstrap of normalised scores draws from all rows",
        "rng.choice(row, (RESAMPLES, len(row)))",
        "rng.choice(np.concatenate(rows), (RESAMPLES, len(row)))",
        (NORMALISED + "test_the_interval_draws_the_seeds_of_each_row_apart",),
        "scores/normalised.py",
    ),
    Mutation(
        "a reference below the untrained policy is normalised",
        " or not reference > random:",
        ":",
        (NORMALISED + "test_rows_without_a_reference_above_the_untrained_policy_are_left_out",),
        "scores/normalised.py",
    ),
    Mutation(
        "ppax score does not say the normalised scores of its rows",
        "    if together is not None:\n        say(str(together))\n",
        "",
        ("tests/cli/test_score.py::test_rows_with_published_scores_are_also_given_together",),
        "cli/score.py",
    ),
    Mutation(
        "a seed without a score counts among the highest, as in older versions of SciPy",
        "return math.nan if np.isnan(x).any() else float(stats.trim_mean(x, TRIMMED))",
        "return float(stats.trim_mean(np.nan_to_num(x, nan=np.inf), TRIMMED))",
        (STATISTICS + "test_verdict_at_its_boundaries",),
        "reports/statistics.py",
    ),
]
