"""Stop conditions as text: their meaning on hand-written rows, and the messages for syntax errors."""

import pytest

from ppax import ConfigError
from ppax.core.protocols import ConditionState
from ppax.run.conditions import And, HitsUpperBound, KeepBest, Or, parse_condition

MEANINGS = [
    ("x >= 2", [1, 1.9, 2, 3, 1], [0, 0, 1, 1, 0]),
    ("x<=-1.5e0", [0, -1.4, -1.5, -2, 0], [0, 0, 1, 1, 0]),
    # maximum 3 at row 3; 2, 3, 2.9 do not exceed it
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


def states(condition, rows):
    """State of the condition after each row."""
    after, found = ConditionState(), []
    for row in rows:
        found.append(after := condition.update(after, None, row))
    return found


@pytest.mark.parametrize(("text", "values", "expected"), MEANINGS, ids=[text for text, _, _ in MEANINGS])
def test_texts_mean_the_same_parsed_and_printed(text, values, expected):
    rows = [{"iteration": i, "x": x, "y": 1.0} for i, x in enumerate(values)]
    for condition in (parse_condition(text), parse_condition(str(parse_condition(text)))):
        assert [after.met for after in states(condition, rows)] == [bool(e) for e in expected]


@pytest.mark.parametrize("name", ["episode_return/red-team", "x-velocity", "eval_return/élan+1", "episode_return/a_1"])
def test_metrics_of_groups_and_infos_have_names_of_any_text_without_spaces(name):
    assert parse_condition(f"(loss <= 1 or {name}>=2)").metrics == ("loss", name)


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
        ("loss plateaus for " + "9" * 5000, ["for 999999999... rows: must have at most 9 digits"]),
        ("loss >= 1 or " * 1000, ["13,000 characters; must have at most 10,000"]),
        ("loss stops rising for 0", ["patience = 0"]),
        ("loss plateaus within -1", ["rtol = -1"]),
        ("__import__('os')", ["received '('"]),
    ],
)
def test_syntax_errors_name_the_token_and_the_nearest_word(text, words):
    with pytest.raises(ConfigError) as caught:
        parse_condition(text)
    for word in words:
        assert word in str(caught.value)


def test_the_reason_has_the_parts_that_are_met_with_their_values():
    condition = parse_condition("x >= 475 or (x <= 1 and y >= 2) or y stops rising for 1")
    rows = [(20.0, 5.0), (480.25, 4.0), (0.5, 7.0)]
    assert [after.reason for after in states(condition, [{"x": x, "y": y} for x, y in rows])] == [
        "",
        "x >= 475 (at 480.25) or y stops rising for 1 (at 4)",
        "x <= 1 (at 0.5) and y >= 2 (at 7)",
    ]


def test_functions_in_a_condition_are_named():
    def late(state, row):
        return True

    condition = And(late, Or(late, HitsUpperBound("x", 1.0)))
    assert str(condition) == "callback late and (callback late or x >= 1)"
    assert states(condition, [{"x": 0.0}])[0].reason == "callback late and callback late"


def test_metrics_are_those_of_all_parts():
    condition = Or(parse_condition("a >= 1 and (b <= 2 or c plateaus)"), KeepBest("d"), lambda state, row: None)
    assert condition.metrics == ("a", "b", "c", "d")
