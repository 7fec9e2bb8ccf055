"""Figures of ppax.plot: score against an option, colours and order of settings, labels of axes."""

import pytest

from ppax.core.types import ConfigError
from ppax.reports.settings import settings_of
from ppax.run.records import of_history

pytest.importorskip("matplotlib")

from ppax.reports import plotting


def run(seed, score, **agent):
    rows = [{"iteration": i, "env_steps": 1000 * i, "episode_return": score, "eval_return": score} for i in (1, 2)]
    record = of_history(f"run{seed}", rows, {"env": "CartPole-v1", "seed": seed, "agent": agent})
    return record._replace(evaluation={"mean_return": score, "episodes": 100})


def swept(values, scores=(10.0, 20.0, 40.0), name="learning_rate", **agent):
    return [
        run(seed, score + 100 * i, **agent, **{name: x})
        for i, x in enumerate(values)
        for seed, score in enumerate(scores)
    ]


def lines_of(axes):
    """Return the lines of the IQM: those with large markers."""
    return [line for line in axes.lines if line.get_markersize() == 6 and line.get_marker() == "o"]


def test_the_score_against_an_option_has_a_point_for_each_seed_and_the_interquartile_mean():
    figure = plotting.sensitivity_figure(settings_of(swept([1e-2, 1e-4, 1e-3])), "agent.learning_rate")
    (axes,) = figure.axes
    (line,) = lines_of(axes)
    assert line.get_xdata().tolist() == [1e-4, 1e-3, 1e-2]
    assert line.get_ydata().tolist() == pytest.approx([70 / 3 + 100, 70 / 3 + 200, 70 / 3])
    seeds = [sorted(one.get_ydata()) for one in axes.lines if one.get_markersize() == 3.5]
    assert seeds == [[110, 120, 140], [210, 220, 240], [10, 20, 40]]
    assert axes.get_xscale() == "log"
    assert axes.get_ylabel() == "return, final evaluation of 100 episodes"
    assert axes.get_xlabel() == "learning_rate"
    figure.draw_without_rendering()
    assert axes.get_ylim()[0] < 10 < 240 < axes.get_ylim()[1]
    assert 5e-5 < axes.get_xlim()[0] < 1e-4 < 1e-2 < axes.get_xlim()[1] < 2e-2


@pytest.mark.parametrize(
    ("values", "scale"),
    [((0.1, 0.2, 0.3), "linear"), ((0.0, 0.001, 0.1), "symlog"), ((1, 10), "log"), (("tanh", "relu"), "linear")],
)
def test_the_axis_is_logarithmic_for_numbers_that_span_a_power_of_ten(values, scale):
    figure = plotting.sensitivity_figure(settings_of(swept(values, name="ent_coef")), "agent.ent_coef")
    assert figure.axes[0].get_xscale() == scale
    figure.draw_without_rendering()
    assert len(figure.axes[0].get_xticks()) == len(values)


def test_other_options_are_a_line_each():
    runs = swept([1e-3, 1e-2], gamma=0.9) + swept([1e-3, 1e-2], gamma=0.99)
    figure = plotting.sensitivity_figure(settings_of(runs), "agent.learning_rate")
    assert len(lines_of(figure.axes[0])) == 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["gamma = 0.9", "gamma = 0.99"]


def test_options_of_learning_curves_are_refused_in_a_plot_against_an_option(monkeypatch):
    monkeypatch.setattr(plotting, "records_of", lambda runs, score="final": swept([1e-3, 1e-2]))
    with pytest.raises(ConfigError, match="takes no metric"):
        plotting.plot("runs", "entropy", against="learning_rate")
    with pytest.raises(ConfigError, match=r"nearest: agent\.learning_rate"):
        plotting.plot("runs", against="learning_rat")
    with pytest.raises(ConfigError, match="is for a plot against an option"):
        plotting.plot("runs", score="training")


def test_values_of_one_number_are_in_order_with_ordered_colours(monkeypatch):
    """By value, not by score; the colours go from dark to light."""
    monkeypatch.setattr(plotting, "records_of", lambda runs, score="final": swept([1e-2, 1e-4, 1e-3]))
    figure = plotting.plot("runs")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        f"learning_rate = {rate}" for rate in ("0.0001", "0.001", "0.01")
    ]
    assert figure.axes[0].get_ylabel() == "return in evaluation"  # as in a report
    colours = {round(line.get_ydata()[0]): line.get_color() for line in figure.axes[0].lines}
    ordered = [plotting.ordered_colour(place, 3) for place in range(3)]
    assert [colours[round(y)] for y in (123.3, 223.3, 23.3)] == ordered


@pytest.mark.parametrize("label", ["clip_eps = 0.1", "loss.clip_eps = 0.1", "agent.loss.clip_eps = 0.1"])
def test_a_setting_is_chosen_by_any_of_its_names(monkeypatch, label):
    runs = [run(0, 1.0, loss={"clip_eps": eps}) for eps in (0.1, 0.2)]
    monkeypatch.setattr(plotting, "records_of", lambda runs_, score="final": runs)
    assert len(plotting.plot("runs", settings=[label]).axes[0].lines) == 1


def test_runs_of_one_setting_are_told_or_drawn_each(monkeypatch):
    runs = [run(0, 1.0, gamma=0.9), run(1, 2.0, gamma=0.9)]
    monkeypatch.setattr(plotting, "records_of", lambda runs_, score="final": runs)
    figure = plotting.plot("runs")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["2 runs of one setting"]
    assert "one line over all of them; --each" in plotting.notes_of_plot(runs)[0]
    same = [runs[0], runs[0]._replace(name="again")]
    assert plotting.notes_of_plot(same)[-1] == "--each draws each run."
    each = plotting.plot("runs", each=True)
    assert [text.get_text() for text in each.legends[0].get_texts()] == ["run0", "run1"]


def test_dollar_signs_are_no_formulas():
    runs = swept(("a$_{$", "b$"), name="ent_coef")
    figure = plotting.sensitivity_figure(settings_of(runs), "agent.ent_coef")
    figure.draw_without_rendering()
    assert {text.get_text() for text in figure.axes[0].get_xticklabels()} == {r"a\$_{\$", r"b\$"}
    names = plotting.chosen_settings(settings_of(runs), {one.label: f"{one.label} $x$" for one in settings_of(runs)})
    plotting.figure_of(runs, ["episode_return"], "range", names).draw_without_rendering()


def test_a_path_without_a_name_is_refused_with_one():
    with pytest.raises(ConfigError, match=r"must end in .*; nearest: curves\.pdf"):
        plotting.checked_file(".")
