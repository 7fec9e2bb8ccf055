"""Breaks of reports: extremes, groups, escaping, figures."""

from breaks.base import Mutation

CURVES = "tests/reports/test_curves.py::"
PAGE = "tests/reports/test_page.py::"

MUTATIONS: list[Mutation] = [
    Mutation(
        "members of a population with equal last values are one setting",
        "place if alone else -1",
        "-1",
        ("tests/reports/test_settings.py::test_each_member_of_a_population_is_a_setting",),
        "reports/settings.py",
    ),
    Mutation(
        "options of a part that others lack fill the name of a setting",
        "    return MISSING in values and any(",
        "    return False and any(",
        ("tests/reports/test_settings.py::test_settings_of_unlike_parts_are_named_by_the_parts",),
        "reports/settings.py",
    ),
    Mutation(
        "a setting is named by what its part lacks",
        "if not (values[i] == MISSING and _of_parts(path, rows))",
        "if True",
        ("tests/reports/test_settings.py::test_settings_of_unlike_parts_are_named_by_the_parts",),
        "reports/settings.py",
    ),
    Mutation(
        "a run that failed has the return of its last row",
        'if self.evaluation or self.stopped.get("kind") == FAULT:',
        "if False:",
        ("tests/sweeps/test_searching.py::test_sweep_best_run_file_and_comparison_name_the_same_winner",),
        "run/records.py",
    ),
    Mutation(
        "a narrow terminal gets one block of columns",
        "if width is None or len(GAP.join(column[0] for column in padded)) <= width:",
        "if True:",
        ("tests/reports/test_aligned.py::test_columns_by_hand_in_one_block_and_in_two",),
        "reports/comparison.py",
    ),
    Mutation(
        "the highest value of many rows is lost",
        "np.maximum.reduceat(values, first))",
        "mean)",
        (
            CURVES + "test_one_spike_in_many_rows_stays",
            CURVES + "test_points_of_many_rows_have_their_mean_and_extremes",
        ),
        "reports/curves.py",
    ),
    Mutation(
        "a run that is over keeps its last value in the mean",
        "np.interp(grid, curve.iterations, values, np.nan, np.nan)",
        "np.interp(grid, curve.iterations, values)",
        (CURVES + "test_a_run_that_ended_early_has_no_part_in_the_mean_after_its_end",),
        "reports/curves.py",
    ),
    Mutation(
        "the confidence band is that of the mean",
        "cut = int(TRIMMED * count)",
        "cut = 0",
        (CURVES + "test_the_confidence_band_is_the_interval_of_the_interquartile_mean",),
        "reports/statistics.py",
    ),
    Mutation(
        "environments share an axis",
        "found.setdefault(setting.env, []).append(setting)",
        'found.setdefault("", []).append(setting)',
        (PAGE + "test_each_environment_has_axes_of_its_own",),
        "reports/settings.py",
    ),
    Mutation(
        "runs of other seeds are settings of their own",
        "return path != SEED and not path.startswith(OTHER)",
        "return not path.startswith(OTHER)",
        ("tests/reports/test_settings.py::test_runs_that_differ_by_seed_and_logging_alone_are_one_group",),
        "reports/settings.py",
    ),
    Mutation(
        "text of a run becomes markup",
        'else Markup(html.escape(printable(str(content), "\\n")))',
        'else Markup(printable(str(content), "\\n"))',
        (PAGE + "test_no_text_of_a_run_becomes_markup",),
        "reports/charts.py",
    ),
    Mutation(
        "the page may load from the network",
        "default-src 'none'; img-src data:",
        "default-src *; img-src data:",
        (PAGE + "test_the_page_loads_nothing",),
        "reports/page.py",
    ),
    Mutation(
        "a picture is drawn upside down",
        "self.bottom - (self.bottom - self.top) * share",
        "self.top + (self.bottom - self.top) * share",
        ("tests/reports/test_charts.py::test_the_band_has_the_extremes_of_the_rows",),
        "reports/charts.py",
    ),
    Mutation(
        "control characters reach the terminal",
        'text, most = printable(text), SETTING if head == "setting" else CELL',
        'text, most = text, SETTING if head == "setting" else CELL',
        ("tests/reports/test_comparison.py::test_text_of_a_run_cannot_steer_the_terminal",),
        "reports/comparison.py",
    ),
    Mutation(
        "a film takes as long as it takes",
        "or time.monotonic() - begin > max_seconds",
        "or time.monotonic() - begin > 1e9",
        ("tests/run/films/test_play.py::test_play_stops_after_max_seconds",),
        "run/films.py",
    ),
]
