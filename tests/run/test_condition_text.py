"""Stop conditions as text: what each means on rows written by hand, and what is said about what means nothing."""

import pytest

from ppax import ConfigError
from ppax.run.condition_text import parse
from ppax.run.conditions import And, HitsUpperBound, KeepBest, Or, watches, why

MEANINGS = [
    ("x >= 2", [1, 1.9, 2, 3, 1], [0, 0, 1, 1, 0]),
    ("x<=-1.5e0", [0, -1.4, -1.5, -2, 0], [0, 0, 1, 1, 0]),
    # highest 3 at row 3; 2, 3, 2.9 are not above it
    ("x stops rising for 3", [1, 2, 3, 2, 3, 2.9], [0, 0, 0, 0, 0, 1]),
    ("x stops falling for 2", [3, 2, 1, 1, 1], [0, 0, 0, 0, 1]),
    ("x stops rising", [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1]),  # 5 rows
    ("x plateaus for 3 within 0.01", [50, 100, 101, 99, 100.5], [0, 0, 0, 0, 1]),
    ("x plateaus for 1", [100, 100.2, 100.25], [0, 0, 1]),  # within 1e-3
    ("x plateaus within 0.5", [4, 5, 5, 5, 5, 6, 9], [0, 0, 0, 0, 0, 1, 0]),
    # `and` before `or`; y is 1 throughout
    ("y >= 1 or x >= 2 and x <= 0", [1], [1]),
    ("(y >= 1 or x >= 2) and x <= 0", [1, 0], [0, 1]),
    ("( (x >= 2) )and(y<=1)", [1, 2], [0, 1]),
    ("x >= 3 or x <= 1 or x >= 1_000", [2, 3, 1, 1000], [0, 1, 1, 1]),
]


@pytest.mark.parametrize(("text", "values", "expected"), MEANINGS, ids=[text for text, _, _ in MEANINGS])
def test_what_it_means(text, values, expected):
    for condition in (parse(text), parse(str(parse(text)))):  # also when it is said again in its own words
        got = [condition(None, {"iteration": i, "x": x, "y": 1.0}) for i, x in enumerate(values)]
        assert got == [bool(e) for e in expected]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["expected the name of a metric, received the end"]),
        ("loss", ["expected `>=`, `<=`, `plateaus`, `stops`, received the end"]),
        ("loss > 3", ["received '>'", "nearest: >="]),
        ("loss plateau for 3", ["received 'plateau'", "nearest: plateaus"]),
        ("loss stops raising", ["'raising'", "`rising` or `falling`", "nearest: rising"]),
        ("loss stops rising for 2.5", ["expected a whole number of rows, received '2.5'"]),
        ("loss stops rising for", ["expected a whole number of rows, received the end"]),
        ("loss <= low", ["expected a number, received 'low'"]),
        ("loss plateaus within", ["expected a relative tolerance, as 1e-3, received the end"]),
        ("(loss >= 1", ["expected `)`, received the end"]),
        ("loss >= 1)", ["expected `and`, `or` or the end, received ')'"]),
        ("loss >= 1 nd loss <= 2", ["'nd'", "nearest: and"]),
        ("loss >= 1 and", ["expected the name of a metric, received the end"]),
        ("and >= 1", ["expected the name of a metric, received 'and'"]),
        ("loss >= nan", ["bound = nan"]),
        ("loss stops rising for 0", ["patience = 0"]),
        ("loss plateaus within -1", ["rtol = -1"]),
        ("__import__('os')", ["received '('"]),
    ],
)
def test_what_means_nothing_is_named(text, words):
    with pytest.raises(ConfigError) as caught:
        parse(text)
    for word in words:
        assert word in str(caught.value)


def test_why_says_what_was_met_and_where():
    condition = parse("x >= 475 or (x <= 1 and y >= 2) or y stops rising for 1")
    assert not condition(None, {"iteration": 1, "x": 20.0, "y": 5.0})
    assert condition(None, {"iteration": 2, "x": 480.25, "y": 4.0})
    assert why(condition) == "x >= 475 (at 480.25) or y stops rising for 1 (at 4)"
    assert condition(None, {"iteration": 3, "x": 0.5, "y": 7.0})
    assert why(condition) == "x <= 1 (at 0.5) and y >= 2 (at 7)"

    def late(state, row):
        return True

    assert why(late) == "callback late"
    assert str(And(late, Or(late, HitsUpperBound("x", 1.0)))) == "callback late and (callback late or x >= 1)"


def test_everything_that_watches_is_found():
    condition = Or(parse("a >= 1 and (b <= 2 or c plateaus)"), KeepBest("d"), lambda state, row: None)
    assert [watch.key for watch in watches(condition)] == ["a", "b", "c", "d"]
