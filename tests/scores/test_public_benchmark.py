"""benchmarks/public.py, which compares the public suite with published scores and other libraries: by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from ppax.scores.results import Score, SeedResult
from ppax.scores.suite import SuiteRow
from support.aggregated import FIRST

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CARTPOLE = {"env": "CartPole-v1", "steps": 100, "settings": "default"}


@pytest.fixture
def public(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import public

    monkeypatch.setattr(public, "FOLDER", tmp_path)
    (tmp_path / "sb3").mkdir()
    return public


def score(values, reference=1.0, target="CartPole-v1"):
    members = tuple(SeedResult(seed, x, 0.0, 1.0, 0.0, 10, 1.0, ()) for seed, x in enumerate(values))
    row = SuiteRow("public-a", target, steps=100, reference=reference, reference_steps=100)
    return Score(row, target, "compiled", 8, members, {}, "")


def write_peer(folder, scores, **other):
    members = [{"seed": seed, "score": x, "seconds": 1.0, "curve": [], "about": {}} for seed, x in enumerate(scores)]
    (folder / "sb3" / "a.json").write_text(json.dumps({**CARTPOLE, **other, "members": members}))


def test_aggregates_of_a_group_by_hand(public):
    """Gaps of two environments: (1 + 0.5 + 0 + 0) / 4 and 0; the second alone reaches 1, with its whole interval."""
    found = public.group_summary([score([0.0, 0.5, 1.0, 1.5]), score([1.0, 1.0, 2.0, 2.0])])
    assert found["gap"] == pytest.approx((1.5 / 4 + 0.0) / 2)
    assert (found["rows"], found["reached"], found["by_mean"], found["surely"]) == (2, 1, 1, 1)
    assert found["mean"] == pytest.approx((0.75 + 1.5) / 2)


def test_the_optimality_gap_is_that_of_rliable(public):
    assert public.group_summary([score(list(row)) for row in FIRST])["gap"] == pytest.approx(0.28695)


def test_seconds_to_the_published_score_are_those_of_the_first_point_that_reaches_it(public):
    """Of 10 seconds for 100 steps: the point after 40 steps is at 4 s. The second seed never reaches the score."""
    curves = [(20, 0.5), (40, 1.0), (60, 0.2)], [(20, None), (40, 0.9), (60, float("nan"))]
    members = [{"seconds": 10.0, "env_steps": 100, "curve": curve} for curve in curves]
    assert public.seconds_to(1.0, members) == [4.0]
    assert public.seconds_to(None, members) is None


def test_the_probability_of_improvement_and_its_interval_by_hand(public):
    """First row: 1 of 2 x 2 pairs is won, 2 are equal: 0.5. Second row: all are lost, whatever seeds are drawn."""
    first, second = np.array([1.0, 2.0]), np.array([0.0, 0.0, 0.0])
    rows = [(first, np.array([1.0, 2.0])), (second, np.array([1.0, 1.0]))]
    found = public.together(rows, "peer")["better"]
    assert found[0] == pytest.approx((0.5 + 0.0) / 2)
    # of 16 pairs of draws of the first row, one wins all (2, 2 against 1, 1), and one loses all
    assert found[1:] == [0.0, 0.5]


def test_a_peer_with_one_seed_is_shown_but_not_compared(public, tmp_path):
    row = score([0.5] * 4)
    for seeds, pairs in ((1, 0), (2, 1)):
        write_peer(tmp_path, [0.7] * seeds)
        measured = {row.row.name: public.members_of(row)}
        assert len(measured[row.row.name]["Stable-Baselines3"]) == seeds
        found = public.pairs_with("Stable-Baselines3", [row], measured)
        assert len(found) == pairs
    np.testing.assert_allclose(found[0][1], [0.7, 0.7])


@pytest.mark.parametrize("other", [{"steps": 200}, {"settings": "zoo"}, {"env": "Acrobot-v1"}])
def test_a_peer_of_another_task_is_refused(public, tmp_path, other):
    write_peer(tmp_path, [0.7, 0.8], **other)
    with pytest.raises(SystemExit, match="not of the row's environment, steps and settings"):
        public.members_of(score([0.5] * 4))


def test_environments_on_which_defaults_were_chosen_are_apart(public):
    chosen, other = score([1.0] * 4), score([1.0] * 4, target="gymnasium/Ant-v5")
    groups = public.groups_of([chosen, other, score([1.0] * 4, reference=None)])
    assert groups["all"] == [chosen, other]
    assert groups["a default was chosen on them"] == [chosen]
    assert groups["no default was chosen on them"] == groups["MuJoCo"] == [other]


@pytest.mark.parametrize(
    ("target", "sb3", "purejaxrl"),
    [
        ("gymnax/Acrobot-v1", "Acrobot-v1", "Acrobot-v1"),
        ("gymnax/Breakout-MinAtar", None, "Breakout-MinAtar"),
        ("gymnax/Seaquest-MinAtar", None, None),
        ("Pendulum-v1", "Pendulum-v1", None),
        ("gymnasium/Ant-v5", "Ant-v5", None),
        ("brax/halfcheetah", None, None),
    ],
)
def test_names_of_a_row_in_other_libraries(public, target, sb3, purejaxrl):
    found = {peer.name: peer.env_id(target) for peer in public.PEERS}
    assert (found["Stable-Baselines3"], found["PureJaxRL"]) == (sb3, purejaxrl)
    row = score([0.5] * 4, target=target)
    runs = public.row_summary(row, public.members_of(row))["runs"]
    assert ("Stable-Baselines3" in runs, "PureJaxRL" in runs) == (sb3 is not None, purejaxrl is not None)


def test_purejaxrl_is_compared_where_its_files_are(public, tmp_path):
    (tmp_path / "purejaxrl").mkdir()
    row = score([0.5] * 4, target="gymnax/Breakout-MinAtar")
    members = [
        {"seed": seed, "score": x, "seconds": 1.0, "curve": [], "about": {}} for seed, x in enumerate([0.7, 0.8])
    ]
    head = {"env": "Breakout-MinAtar", "steps": 100, "settings": "default"}
    (tmp_path / "purejaxrl" / "a.json").write_text(json.dumps({**head, "members": members}))
    measured = {row.row.name: public.members_of(row)}
    assert len(public.pairs_with("PureJaxRL", [row], measured)) == 1
    assert public.pairs_with("Stable-Baselines3", [row], measured) == []
