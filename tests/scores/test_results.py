"""Results: files, fingerprints, status and reason."""

import dataclasses
import json
import math

import pytest

from ppax.scores import results
from ppax.scores.results import Score, SeedResult
from ppax.scores.suite import SuiteRow

CURVE = ((100, math.nan), (200, 20.0))


def score(scores, **fields):
    row = SuiteRow(**{"name": "A", "target": "CartPole-v1", "threshold": 475.0} | fields)
    members = tuple(SeedResult(1000 + i, x, 1.0, 20.0, 25.0, 200 + i, 2.5, CURVE) for i, x in enumerate(scores))
    return Score(row, "CartPole-v1", "compiled", 128, members, {"time": "now"}, "mark")


@pytest.mark.parametrize(
    ("scores", "fields", "status", "reason"),
    [
        ([500] * 5, {}, "passed", ""),
        ([450] * 5, {}, "failed", "IQM 450, threshold 475"),
        ([500, 500, 500, 100, 429], {}, "failed", "3 of 5 seeds near the threshold, 4 needed"),
        ([450] * 5, {"threshold": None}, "measured", ""),
        ([150] * 5, {"threshold": None, "at_most": 150.0}, "passed", ""),
        ([151] * 5, {"threshold": None, "at_most": 150.0}, "failed", "the control reached 151, at most 150 is allowed"),
    ],
)
def test_status_and_reason(scores, fields, status, reason):
    one = score(scores, **fields)
    assert (one.status, one.reason) == (status, reason)


def test_hosts_need_two_seeds_of_three():
    three = dataclasses.replace(score([600, 600, 225]), backend="host")
    assert three.status == "passed"
    assert score([600, 600, 225]).status == "failed"


def test_sums_over_seeds():
    one = score([1.0, 2.0])
    assert (one.seconds, one.env_steps, one.random, one.seeds) == (5.0, 201, 25.0, (1000, 1001))


def test_a_file_has_the_result_and_no_nan(tmp_path):
    one = score([500.0, math.nan])
    results.save_score(one, tmp_path)
    again = results.load(one.row, tmp_path)
    assert again.members[0].curve[1] == (200, 20.0)
    assert math.isnan(again.members[0].curve[0][1])
    assert str(again.to_dict()) == str(one.to_dict())
    content = json.loads((tmp_path / "A.json").read_text(), parse_constant=pytest.fail)
    assert content["members"][1]["score"] is None
    assert content["result"]["status"] == "failed"
    assert [path.name for path in tmp_path.iterdir()] == ["A.json"]


def test_a_result_is_judged_by_the_present_threshold(tmp_path):
    one = score([450.0] * 5)
    results.save_score(one, tmp_path)
    assert results.load(one.row, tmp_path).status == "failed"
    assert results.load(dataclasses.replace(one.row, threshold=440.0), tmp_path).status == "passed"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"members": []}', '{"members": [{"seed": 1}]}', '{"members": 3}'])
def test_a_file_of_something_else_is_no_result(text, tmp_path):
    (tmp_path / "A.json").write_text(text)
    assert results.load(SuiteRow(name="A", target="CartPole-v1"), tmp_path) is None


def test_fingerprints_change_with_what_is_learned_or_evaluated():
    row = SuiteRow(name="A", target="CartPole-v1", threshold=475.0)
    mark = results.fingerprint(row, 128, "1.0")
    same = [{"threshold": 5.0}, {"name": "B"}, {"options": {"seed": 3}}, {"options": {"log": {"every": 7}}}]
    for fields in same:
        assert results.fingerprint(dataclasses.replace(row, **fields), 128, "1.0") == mark, fields
    other = [{"steps": 5}, {"sampled": True}, {"target": "Pendulum-v1"}, {"options": {"agent": {"gamma": 0.5}}}]
    marks = {results.fingerprint(dataclasses.replace(row, **fields), 128, "1.0") for fields in other}
    marks |= {results.fingerprint(row, 64, "1.0"), results.fingerprint(row, 128, "1.1")}
    assert len(marks | {mark}) == 7


def test_members_of_both_once_each():
    one, other = score([1.0, 2.0]).members, score([3.0]).members
    assert [member.score for member in results.with_members(one, other)] == [3.0, 2.0]
