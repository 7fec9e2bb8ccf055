"""Pictures of scores: learning curves, with the band over seeds by hand, and the performance profile."""

import builtins
import math

import numpy as np
import pytest

from ppax.scores import curves, scoring
from ppax.scores.results import Score, SeedResult
from ppax.scores.suite import SuiteRow


def score(*lines, **row):
    members = tuple(SeedResult(1000 + i, line[-1][1], 0.0, 1.0, 0.0, 300, 1.0, line) for i, line in enumerate(lines))
    row = SuiteRow(name="A", target="CartPole-v1", threshold=475.0, reference=490.0, **row)
    return Score(row, "CartPole-v1", "compiled", 128, members, {}, "mark")


def test_band_by_hand():
    """Lines from 0 to 30 and from 10 to 10 over the common steps 100 to 300."""
    one = ((0, -15.0), (100, 0.0), (300, 30.0))
    other = ((50, math.nan), (100, 10.0), (350, 10.0))
    band = curves.band(score(one, other))
    assert (band.env_steps[0], band.env_steps[-1]) == (100.0, 300.0)
    middle = np.interp(200.0, band.env_steps, band.mean)
    assert middle == pytest.approx(12.5)
    assert (band.low[0], band.high[0], band.low[-1], band.high[-1]) == (0.0, 10.0, 10.0, 30.0)
    assert curves.band(score(((100, math.nan),))) is None


def test_picture(tmp_path):
    pytest.importorskip("matplotlib")
    from PIL import Image

    path = tmp_path / "A.png"
    curves.draw_curve(score(((100, 1.0), (300, 400.0)), ((100, 2.0), (300, 500.0))), path)
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert picture.size[0] > 600
        assert len(picture.convert("RGB").getcolors(2**20)) > 20
    assert [file.name for file in tmp_path.iterdir()] == ["A.png"]


def test_the_profile_of_scores_with_a_reference(tmp_path):
    """Two rows have a picture; one alone, or rows without a reference, have none."""
    pytest.importorskip("matplotlib")
    from PIL import Image

    rows = [score(((100, 1.0), (300, value)), ((100, 2.0), (300, 400.0))) for value in (380.0, 500.0)]
    scoring._draw_together(rows[:1], tmp_path)
    assert not list(tmp_path.iterdir())
    scoring._draw_together(rows, tmp_path)
    with Image.open(tmp_path / "profile.png") as picture:
        assert len(picture.convert("RGB").getcolors(2**20)) > 20


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    import_ = builtins.__import__

    def refused(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return import_(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refused)
    with pytest.warns(UserWarning, match=r'pip install "ppax\[plot\]"'):
        scoring._draw(score(((100, 1.0), (300, 400.0))), tmp_path)
    with pytest.warns(UserWarning, match=r'no performance profile: .*pip install "ppax\[plot\]"'):
        scoring._draw_together([score(((100, 1.0), (300, 400.0)))] * 2, tmp_path)
    assert not list(tmp_path.iterdir())
