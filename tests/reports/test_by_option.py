"""Score against the values of an option, and differences between its values, against NumPy."""

import math

import numpy as np
import pytest

from ppax.core.types import ConfigError
from ppax.reports.by_option import differences_by, option_named, series_of
from ppax.reports.comparison import of_records
from ppax.reports.settings import settings_of
from ppax.run.records import WHOLE_EVALUATED, WHOLE_TRAINED, of_history


def run(seed, score, env="CartPole-v1", **agent):
    """Return the record of a run with the final evaluation `score` and the options `agent`."""
    rows = [{"iteration": i, "env_steps": 1000 * i, "episode_return": score * i / 4} for i in range(1, 5)]
    record = of_history(f"{score}-{seed}", rows, {"env": env, "seed": seed, "total_steps": 4000, "agent": agent})
    return record._replace(evaluation={"mean_return": score, "episodes": 100})


SCORES = np.random.default_rng(1).normal(100.0, 10.0, (2, 3, 5)).round(3)  # [normalised, rate, seed]
RATES = (1e-2, 1e-4, 1e-3)


def runs_of_two_methods():
    return [
        run(seed, float(SCORES[method, place, seed]), learning_rate=rate, normalize_advantage=("off", "batch")[method])
        for method in range(2)
        for place, rate in enumerate(RATES)
        for seed in range(5)
    ]


def iqm(scores):
    """Interquartile mean by hand: of five seeds the middle three."""
    kept = np.sort(scores)
    cut = len(scores) // 4
    return kept[cut : len(scores) - cut].mean()


def test_scores_are_in_the_order_of_the_option_with_a_series_for_each_other_option():
    found = series_of(settings_of(runs_of_two_methods()), "agent.learning_rate")
    assert [one.label for one in found] == ["normalize_advantage = batch", "normalize_advantage = off"]
    for series, method in zip(found, (1, 0), strict=True):
        assert [point.value for point in series.points] == [1e-4, 1e-3, 1e-2]
        for point, place in zip(series.points, (1, 2, 0), strict=True):
            own = SCORES[method, place]
            np.testing.assert_array_equal(sorted(point.scores), sorted(own))
            assert point.iqm == pytest.approx(iqm(own))
            drawn = [iqm(np.random.default_rng(k).choice(own, 5)) for k in range(4000)]
            np.testing.assert_allclose((point.low, point.high), np.percentile(drawn, (2.5, 97.5)), atol=1.0)


def test_a_seed_without_a_score_stays_in_its_point():
    runs = [run(0, 3.0, gamma=0.9), run(1, math.nan, gamma=0.9), run(0, 5.0, gamma=0.99)]
    (series,) = series_of(settings_of(runs), "agent.gamma")
    assert [len(point.scores) for point in series.points] == [2, 1]
    assert series.label == ""
    assert math.isnan(series.points[0].low)


@pytest.mark.parametrize("name", ["learning_rate", "learning-rate", "--agent.learning-rate", "agent.learning_rate"])
def test_an_option_is_named_by_its_path_or_its_last_words(name):
    assert option_named(name, runs_of_two_methods()) == "agent.learning_rate"


def test_an_unknown_option_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"option 'learning_rat'.*nearest: agent.learning_rate; those that differ"):
        option_named("learning_rat", runs_of_two_methods())
    parts = [run(0, 1.0, loss={"part": "spo"}), run(0, 1.0, loss={"part": "clipped"})]
    assert option_named("loss", parts) == "agent.loss.part"
    with pytest.raises(ConfigError, match="several options have this name"):
        option_named("eps", [run(0, 1.0, loss={"eps": 0.1}, critic={"eps": 0.2})])


def test_methods_are_compared_at_equal_options_with_seeds_in_pairs_and_their_best_settings():
    """Intervals by an independent bootstrap that draws seeds of both methods together."""
    found = differences_by(settings_of(runs_of_two_methods()), "agent.normalize_advantage", "off")
    assert [one.label for one in found] == ["normalize_advantage = batch"] * 4
    assert {one.other for one in found} == {"normalize_advantage = off"}
    by_rate = {one.at: one for one in found[:3]}
    for place, rate in enumerate(RATES):
        one = by_rate[f"learning_rate = {rate:g}"]
        new, old = SCORES[1, place], SCORES[0, place]
        assert one.paired
        assert one.difference.iqm == pytest.approx(iqm(new) - iqm(old))
        assert one.difference.better == pytest.approx((new[:, None] > old[None, :]).mean())
        draws = np.random.default_rng(7).integers(5, size=(6000, 5))
        gaps = [iqm(new[draw]) - iqm(old[draw]) for draw in draws]
        np.testing.assert_allclose((one.difference.low, one.difference.high), np.percentile(gaps, (2.5, 97.5)), atol=1)
    best = [max(iqm(SCORES[method, place]) for place in range(3)) for method in range(2)]
    places = [max(range(3), key=lambda place: iqm(SCORES[method, place])) for method in (1, 0)]
    rates = list(dict.fromkeys(f"learning_rate = {RATES[place]:g}" for place in places))
    assert found[3].at == f"best setting of each: {' / '.join(rates)}"
    assert found[3].difference.iqm == pytest.approx(best[1] - best[0])


def test_pairs_of_equal_differences_have_a_narrow_interval():
    """The scores of seeds spread by 100, the difference of each seed is 1: drawn apart the interval would be wide."""
    runs = [
        run(seed, 100.0 * seed + better, gamma=gamma) for better, gamma in ((0, 0.9), (1, 0.99)) for seed in range(5)
    ]
    (one,) = differences_by(settings_of(runs), "agent.gamma", "0.9")
    np.testing.assert_allclose((one.difference.iqm, one.difference.low, one.difference.high), 1.0)
    others = [*runs[:5], *(run(seed + 5, 100.0 * seed + 1, gamma=0.99) for seed in range(5))]
    (apart,) = differences_by(settings_of(others), "agent.gamma", "0.9")
    assert not apart.paired
    assert apart.difference.low < -50 < 50 < apart.difference.high


def test_the_page_counts_comparisons_and_says_how_seeds_are_drawn():
    found = of_records(runs_of_two_methods(), by="normalize-advantage")
    assert "4 comparisons, not corrected for their number. Intervals draw seeds in pairs (both have the same" in str(
        found
    )
    assert "measure both again on other seeds" in str(found)
    assert found.to_dict()["differences"][0]["paired"] is True
    with pytest.raises(ConfigError, match=r"baseline = 'of': must be a value of .*: off, batch; nearest: off"):
        of_records(runs_of_two_methods(), by="normalize_advantage", baseline="of")
    with pytest.raises(ConfigError, match="must be an option with several values"):
        of_records([run(0, 1.0, gamma=0.9)], by="gamma")


def test_options_of_one_method_alone_belong_to_it():
    runs = [run(0, 10.0 * eps, loss={"part": "clipped", "clip_eps": eps}) for eps in (0.1, 0.2)]
    runs += [run(0, 7.0, loss={"part": "spo", "eps": 0.3})]
    found = differences_by(settings_of(runs), "agent.loss.part")
    assert sorted(one.difference.iqm for one in found) == [5.0, 5.0, 6.0]


def test_mean_and_minimum_show_a_failed_seed_at_the_ceiling():
    good, bad = [500.0] * 10, [500.0] * 8 + [20.0, 30.0]
    runs = [run(s, x, gamma=g) for scores, g in ((good, 0.9), (bad, 0.99)) for s, x in enumerate(scores)]
    found = of_records(runs)
    assert [(one.standing.iqm, one.mean, one.minimum) for one in found.settings] == [(500, 500, 500), (500, 405, 20)]
    head = str(found).splitlines()[0].split("  ")
    assert "mean" in [cell.strip() for cell in head]
    assert "min" in [cell.strip() for cell in head]


def test_an_undecided_difference_with_a_decided_probability_is_told():
    """Two of three seeds of one setting fail a little: the IQM of the middle scores is equal, and ranks are not."""
    runs = [run(s, 500.0, gamma=0.9) for s in range(20)]
    runs += [run(s, 500.0 if s < 14 else 499.0 - s, gamma=0.99) for s in range(20)]
    found = of_records(runs)
    (one,) = found.differences
    assert one.difference.low <= 0.0 <= one.difference.high
    assert one.difference.better_low > 0.5
    assert any("The difference of the IQM decides" in note for note in found.notes)


def test_the_mean_return_over_training_is_the_area_under_the_curve():
    """Trapezoids by hand: over steps 1000 to 4000, and rows without an ended episode do not count."""
    rows = [(1000, 0.0), (2000, 10.0), (3000, math.nan), (4000, 30.0)]
    logged = [{"iteration": i, "env_steps": steps, "episode_return": x} for i, (steps, x) in enumerate(rows)]
    record = of_history("run", logged, {"env": "CartPole-v1"})._replace(over_training=True)
    assert record.final_return == pytest.approx((1000 * 5 + 2000 * 20) / 3000)
    assert record.measure == WHOLE_TRAINED
    evaluated = [row | {"eval_return": 2.0} for row in logged]
    record = of_history("run", evaluated, {"env": "CartPole-v1"})._replace(over_training=True)
    assert (record.final_return, record.measure) == (2.0, WHOLE_EVALUATED)
    assert math.isnan(of_history("run", [], {})._replace(over_training=True).final_return)
    failed = record._replace(stopped={"kind": "fault"})
    assert math.isnan(failed.final_return)


def test_the_table_of_settings_in_four_forms():
    runs = [run(seed, 10.0 + seed, network={"part": name}) for name in ("a_b", "c|d") for seed in range(2)]
    found = of_records(runs)
    assert "10-0" not in found.settings_table()
    assert (
        found.settings_table("markdown").splitlines()[0].startswith("| setting | IQM of the final return [95 %] | mean")
    )
    assert "network = c\\|d" in found.settings_table("markdown")
    latex = found.settings_table("latex")
    assert latex.startswith("\\begin{tabular}{l")
    assert "network = a\\_b & 10.5 [10, 11] & 10.5 & 10 &" in latex
    assert "[95 \\%]" in latex
    head, first, _ = found.settings_table("csv").splitlines()
    cells = dict(zip(head.split(","), first.split(","), strict=True))
    assert (cells["iqm"], cells["min"], cells["runs"]) == ("10.5", "10.0", "2")


@pytest.mark.parametrize(
    "values", [("x" * 70 + "a", "x" * 70 + "b"), (0.00031234561, 0.00031234562)], ids=["long texts", "close numbers"]
)
def test_values_with_one_short_text_are_methods_by_their_full_texts(values):
    runs = [run(seed, 10.0 + place + seed, ent_coef=x) for place, x in enumerate(values) for seed in range(3)]
    (found,) = differences_by(settings_of(runs), "agent.ent_coef")
    assert found.difference.iqm == pytest.approx(1.0)
    (other,) = differences_by(settings_of(runs), "agent.ent_coef", baseline=str(values[1]))
    assert other.difference.iqm == pytest.approx(-1.0)
