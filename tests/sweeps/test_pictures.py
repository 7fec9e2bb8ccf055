"""Pictures of a sweep, and the importance of its options against calculations by hand."""

import json
import math
import sys

import numpy as np
import pytest

from ppax.sweeps import pictures
from ppax.sweeps.results import MemberResult, SettingResult, SweepResult, importance, ranks_of

PNG = b"\x89PNG\r\n\x1a\n"


def test_ranks_of_equal_values_are_their_mean():
    assert ranks_of([3.0, 1.0, 3.0, 2.0]).tolist() == [2.5, 0.0, 2.5, 1.0]


def test_the_share_of_groups_is_the_adjusted_share_of_their_means():
    """Ranks 0, 1 of a and 2, 3 of b: total sum of squares 5, within groups 1; 1 - (1 / 5) (3 / 2) = 0.7."""
    values = [{"x": "a"}, {"x": "a"}, {"x": "b"}, {"x": "b"}]
    assert importance(values, [10.0, 20.0, 30.0, 4000.0])["x"] == pytest.approx(0.7)
    assert importance(values, [10.0, 30.0, 20.0, 40.0])["x"] == 0.0  # within groups 4: 1 - (4 / 5) (3 / 2) < 0


def test_a_number_that_decides_explains_all_and_noise_nothing():
    """The score falls with the distance of log x from a middle: a parabola, which no straight line fits."""
    drawn = np.random.default_rng(0)
    x, noise = np.geomspace(1e-5, 1e-2, 41), drawn.permutation(41)
    values = [{"rate": float(a), "noise": float(b)} for a, b in zip(x, noise, strict=True)]
    found = importance(values, [-((math.log10(a) + 3.5) ** 2) for a in x])
    assert found["rate"] > 0.9
    assert found["noise"] < 0.15


def test_members_without_a_score_are_left_out():
    values = [{"x": float(i % 2)} for i in range(9)]
    scores = [float(i % 2) * 10 + i for i in range(8)]
    assert importance(values, [*scores, math.nan]) == importance(values[:8], scores)
    assert math.isnan(importance(values, [1.0] * 9)["x"])
    assert math.isnan(importance(values[:3], [1.0, 2.0, 3.0])["x"])


def result_in(path, members=9):
    """Result of a sweep with a dropped and a stopped member, odd names and equal values."""
    found = []
    for i in range(members):
        run_dir = path / "members" / f"{i:03d}"
        run_dir.mkdir(parents=True)
        rows = [{"iteration": k, "env_steps": 64 * k, "episode_return": None if k < 2 else k + i} for k in range(1, 9)]
        (run_dir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows if i != 3))
        values = {"agent.learning_rate": 10.0 ** (i - 6), "env_params.$a_{": [i % 2], "agent.loss.part": "spo"}
        score, dropped, stopped = (math.nan, "x", "") if i == 3 else (float(i), "", "stopped" if i == 4 else "")
        found.append(MemberResult(i, values, 0, score, 0.0, 512, dropped, run_dir, stopped))
    settings = tuple(SettingResult(one.values, (one,), one.score, math.nan, math.nan) for one in found)
    return SweepResult(path, settings, None)


def test_both_pictures_are_drawn(tmp_path):
    assert pictures.draw(result_in(tmp_path)) == [tmp_path / "members.png", tmp_path / "parallel.png"]
    for name in ("members.png", "parallel.png"):
        data = (tmp_path / name).read_bytes()
        assert data.startswith(PNG)
        assert len(data) > 10_000


def test_seeds_alone_have_no_parallel_coordinates(tmp_path):
    result = result_in(tmp_path)
    settings = tuple(x._replace(values={}, members=(x.members[0]._replace(values={}),)) for x in result.settings)
    assert pictures.draw(SweepResult(tmp_path, settings, None)) == [tmp_path / "members.png"]


def test_lines_pass_through_the_places_of_their_values(tmp_path):
    """A logarithmic axis: nine rates a factor of ten apart are evenly spread."""
    from matplotlib.figure import Figure

    result = result_in(tmp_path)
    axes = pictures.parallel(result, Figure()).axes[0]
    curves = [line.get_xydata() for line in axes.lines if len(line.get_xydata()) > 2]
    assert len(curves) == 9
    np.testing.assert_allclose(sorted(curve[0, 1] for curve in curves), np.arange(9) / 8, atol=1e-12)
    ends = [0.0, *(np.array([0.0, 1.0, 2.0, 4.0, 5.0, 6.0, 7.0, 8.0]) / 8)]  # without a score: the bottom
    np.testing.assert_allclose(sorted(curve[-1, 1] for curve in curves), ends, atol=1e-12)


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "ppax\[plot\]"'):
        pictures.draw(result_in(tmp_path))


def test_a_few_values_that_span_decades_have_a_logarithmic_axis():
    """1e-4, 1e-3 and 1e-1: the middle one is at a third, not at a half."""
    places, ticks = pictures._places([1e-4, 1e-3, 1e-1] * 4)
    np.testing.assert_allclose(places[:3], [0.0, 1 / 3, 1.0])
    assert [text for _, text in ticks] == ["0.0001", "0.001", "0.1"]
    assert pictures._places([1.0, 2.0, 4.0] * 4)[0][:3] == [0.0, 0.5, 1.0]  # less than DECADES: evenly


@pytest.mark.parametrize("members", [4, 9])
def test_a_legend_outside_of_the_axes_explains_colours_thick_line_and_dots(tmp_path, members):
    from matplotlib.figure import Figure

    result = result_in(tmp_path, members)
    for draw, dots in ((pictures.curves, members == 9), (pictures.parallel, False)):
        figure = draw(result, Figure(figsize=(6.0, 4.5), layout="constrained"))
        (legend,) = figure.legends
        texts = [text.get_text() for text in legend.get_texts()]
        assert texts[0] == "a member; colour: its score, dark low, light high"
        assert texts[1] == f"best member ({result.members[-1 if members == 9 else 2].run_dir.name}), thick"
        assert ("stopped by the search" in texts) == dots
        assert "no score" in texts
        figure.draw_without_rendering()
        box = legend.get_window_extent()
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= min(axes.get_tightbbox().y0 for axes in figure.axes) + 1.0
    heads = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert heads[0] == "learning_rate\n(log)"


def test_of_several_environments_no_member_is_the_best(tmp_path):
    from matplotlib.figure import Figure

    result = result_in(tmp_path)
    settings = tuple(
        setting._replace(members=tuple(x._replace(values=x.values | {"env": f"env {i % 2}"}) for x in setting.members))
        for i, setting in enumerate(result.settings)
    )
    figure = pictures.curves(SweepResult(tmp_path, settings, None), Figure())
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[0] == "a member; colour: its score, dark low, light high"
    assert not any("best member" in text for text in texts)
