"""Charts: the drawn path has the values of the rows, ticks are round numbers, nothing lies outside of the picture."""

import itertools
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from ppax.reports.charts import HEALTHY, Band, Line, chart, nice_ticks, tick_labels
from ppax.reports.curves import Curve
from ppax.reports.formatting import duration_text, short_count


def line(values, low=None, high=None, steps=None, **looks):
    values = np.array(values, float)
    steps = np.arange(1.0, len(values) + 1) * 1000 if steps is None else np.array(steps, float)
    low, high = (values if x is None else np.array(x, float) for x in (low, high))
    return Line(Curve(steps, steps, values, low, high), "a name", "#123456", **looks)


def points(path):
    return np.array([[float(x) for x in pair.split()] for pair in re.findall(r"[ML]([-\d.]+ [-\d.]+)", path)])


def axis(picture):
    """Slope and offset from pixels to values, read from the labels of the horizontal grid lines."""
    texts = [text for text in picture.iter("text") if text.get("text-anchor") == "end"]
    places = np.array([float(text.get("y")) - 4 for text in texts])
    found = np.polyfit(places, [float(text.text.replace("\N{MINUS SIGN}", "-")) for text in texts], 1)
    assert found[0] < 0  # higher values are further up
    return found


def test_the_line_has_the_values_of_the_rows():
    values = [3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0]
    picture = ET.fromstring(chart([line(values)], 1000, 2000, "name"))
    (drawn,) = [x for x in picture.iter("path") if x.get("stroke") == "#123456"]
    place = points(drawn.get("d"))
    np.testing.assert_allclose(np.polyval(axis(picture), place[:, 1]), values, atol=0.01)
    gaps = np.diff(place[:, 0])
    np.testing.assert_allclose(gaps, gaps[0], atol=0.2)  # equal numbers of steps
    assert place[-1, 0] == 1000 - 14  # the last row is at the right edge


def test_the_band_has_the_extremes_of_the_rows():
    picture = ET.fromstring(chart([line([1.0, 2.0], low=[0.0, -3.0], high=[1.5, 8.0])], 600, 2000, "name"))
    (band,) = [x for x in picture.iter("path") if x.get("fill") == "#123456"]
    drawn = np.polyval(axis(picture), points(band.get("d"))[:, 1])
    np.testing.assert_allclose(drawn, [1.5, 8.0, -3.0, 0.0], atol=0.01)


def test_the_healthy_range_is_shaded_as_far_as_it_is_visible():
    picture = ET.fromstring(chart([line([0.0, 1.0])], 600, 1000, "name", Band((-1.0, 2.0), (0.5, 99.0), 1.5)))
    (box,) = [x for x in picture.iter("rect") if x.get("fill") == HEALTHY]
    top, height = float(box.get("y")), float(box.get("height"))
    assert top == 10.0  # the edge of the picture
    assert np.polyval(axis(picture), top + height) == pytest.approx(0.5, abs=0.01)
    (limit,) = [x for x in picture.iter("path") if x.get("stroke-dasharray")]
    assert np.polyval(axis(picture), points(limit.get("d"))[0, 1]) == pytest.approx(1.5, abs=0.01)


@pytest.mark.parametrize(
    "values",
    [[0.0], [5.0, 5.0, 5.0], [1e-100, 0.0], [-1e100, 1e100], [1e9, 1e9 + 1e-3], [1e-7, 3e-7], [0.1, 0.2, 1e6]],
    ids=str,
)
def test_every_range_has_ticks_within_the_picture(values):
    picture = ET.fromstring(chart([line(values, dots=True)], 340, 190, "name", Band((), (0.0, 1.0))))
    texts = [x for x in picture.iter("text") if x.get("text-anchor") == "end"]
    assert 2 <= len({x.text for x in texts}) <= 12
    for path in picture.iter("path"):
        place = points(path.get("d"))
        assert np.isfinite(place).all()
        assert (place >= 0).all()
        assert (place <= [340, 190]).all()


def test_ticks_are_round_numbers():
    assert nice_ticks(0.0, 1.0, 5) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert nice_ticks(-30.0, 512.0, 5) == [0.0, 200.0, 400.0]
    assert tick_labels([0.0, 0.05, 0.1]) == ["0.00", "0.05", "0.10"]
    assert tick_labels([-200.0, 0.0]) == ["\N{MINUS SIGN}200", "0"]
    assert tick_labels([0.0, 50_000.0, 1_500_000.0]) == ["0", "50k", "1.5M"]
    assert tick_labels([0.0, 2e-7]) == ["0", "2e-7"]


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 2.5e-4), (0, 1.6e-4), (-2e-5, 2e-5), (12_340, 12_360), (0, 999_936), (0, 3e15), (0.0011, 0.0012)],
)
def test_labels_of_ticks_are_their_values(low, high):
    """All are different, and read as numbers they are the ticks."""
    ticks = nice_ticks(low, high, 5)
    sizes = {"k": "e3", "M": "e6", "G": "e9", "T": "e12"}
    texts = [label.replace("\N{MINUS SIGN}", "-") for label in tick_labels(ticks)]
    assert [float(text[:-1] + sizes.get(text[-1], text[-1])) for text in texts] == pytest.approx(ticks, rel=1e-9)


@pytest.mark.parametrize(
    ("value", "text"),
    [(999.4, "999"), (999.9, "1k"), (999_936, "1M"), (999_700_000, "1G"), (1.5e15, "1.5e+15"), (-1234.0, "-1.23k")],
)
def test_short_counts(value, text):
    assert short_count(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(59.9, "59.9 s"), (3599.7, "1 h 0 min"), (86_000, "23 h 53 min"), (100_000, "1 d 4 h"), (8.64e7, "1,000 d 0 h")],
)
def test_durations_have_their_two_largest_units(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize("steps", [3, 99_000, 100_000, 499_999, 1_000_000, 12_345_678, 2e9])
@pytest.mark.parametrize("width", [340, 1000])
def test_labels_of_steps_do_not_touch(steps, width):
    picture = ET.fromstring(chart([line([0.0, 1.0], steps=[1, steps])], width, 190, "name"))
    labels = [x for x in picture.iter("text") if x.get("text-anchor") == "middle"]
    edges = sorted((float(x.get("x")) - 3 * len(x.text), float(x.get("x")) + 3 * len(x.text)) for x in labels)
    assert len(labels) >= 3
    assert all(right < left for (_, right), (left, _) in itertools.pairwise(edges))
    assert edges[-1][1] <= width - 14
    assert sum(x.text.endswith(" steps") for x in labels) == 1
