"""Tables for the terminal: every column whole at any width, in blocks that begin with the key."""

import math
from pathlib import Path

import pytest

from ppax.reports import comparison
from ppax.run.records import of_history
from ppax.sweeps.results import MemberResult, SettingResult, SweepResult

COLUMNS = [["score", "1", "22"], ["name", "ab", "c"], ["note", "x y", ""], ["", "", ""]]


def test_columns_by_hand_in_one_block_and_in_two():
    whole = "score  name  note\n    1  ab    x y\n   22  c"
    assert comparison.text_table(COLUMNS, ("name", "note"), "name") == whole
    assert comparison.text_table(COLUMNS, ("name", "note"), "name", 17) == whole
    parts = "name  score\nab        1\nc        22\n\nname  note\nab    x y\nc"
    assert comparison.text_table(COLUMNS, ("name", "note"), "name", 16) == parts
    assert comparison.text_table(COLUMNS, ("name", "note"), "name", 1) == parts  # a column is never cut


def wide_sweep():
    options = ("learning_rate", "advantage.gae_lambda", "loss.clip_eps", "optimizer.b1", "max_grad_norm", "gamma")
    values = {f"agent.{name}": 0.123456 for name in options} | {"env_params.gravity": 9.8}
    members = [MemberResult(i, values, i, 123.4, 5.6, 1, "", Path(f"members/00{i}")) for i in (0, 1)]
    failed = members[1]._replace(score=math.nan, dropped="iteration 12 is not finite")
    return SweepResult(Path(), (SettingResult(values, (members[0], failed), -math.inf, math.nan, math.nan),), None)


def sweep_of(settings, seeds):
    """Return the result of a sweep whose score is 100 times the number of the setting plus the seed."""
    rows = []
    for i in range(settings):
        values = {"agent.loss.clip_eps": 0.1 * i}
        members = [
            MemberResult(seeds * i + s, values, s, 100.0 * i + s, 1.0, 1, "", Path(f"members/{seeds * i + s:03d}"))
            for s in range(seeds)
        ]
        rows.append(SettingResult(values, tuple(members), 100.0 * i + (seeds - 1) / 2, 1.0, 2.0))
    return SweepResult(Path("sweeps/one"), tuple(rows), None)


def test_a_sweep_has_a_row_for_each_setting_and_then_its_members_where_they_are_few():
    text = str(sweep_of(2, 3))
    assert text.splitlines()[:2] == [
        "IQM [95 %]  mean  min  clip_eps  seeds",
        "1 [1, 2]    1     0    0         3",
    ]
    assert "member  clip_eps  seed" in text
    assert "A setting has only 3 seeds" in text
    many = str(sweep_of(5, 5))
    assert "member  clip_eps" not in many
    assert "25 members: `ppax compare sweeps/one` lists them." in many
    assert "A setting has only" not in many
    assert "member" in str(sweep_of(30, 1)).splitlines()[0]  # one of each setting: their rows are those of the settings


def wide_comparison():
    rows = [{"iteration": 1, "env_steps": 1000, "seconds": 2.0, "episode_return": 5.5, "eval_return": 6.0}]
    agents = [{f"option_{n}": 0.5 + i for n in range(2)} for i in (0, 1)]
    runs = [(f"sweeps/a_long_name/members/00{i}", agent) for i, agent in enumerate(agents)]
    runs.append(("sweeps/a_long_name/members/002", agents[0]))
    return comparison.of_records(
        [of_history(name, rows, {"env": "CartPole-v1", "seed": i, "agent": one}) for i, (name, one) in enumerate(runs)]
    )


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("made", [wide_sweep, wide_comparison])
def test_no_line_is_longer_than_the_terminal_and_no_word_is_lost(made, width):
    result = made()
    whole, narrow = str(result), result.table(width)
    assert max(map(len, whole.splitlines())) > 120
    assert max(map(len, narrow.splitlines())) <= width
    assert set(narrow.split()) == set(whole.split())
    assert "…" not in narrow


def test_only_a_terminal_or_columns_sets_a_width(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert comparison.terminal_width() is None  # the output of a test is no terminal
    monkeypatch.setenv("COLUMNS", "80")
    assert comparison.terminal_width() == 80
