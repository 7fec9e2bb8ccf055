"""Files that ppax has written are read by later versions: samples/ has those of each version (samples/make.py)."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import ppax
from ppax.policy import spec
from ppax.policy.bundle import archive, numpy_policy
from ppax.run import directory, provenance
from ppax.run.directory import read_about
from ppax.scores import results
from ppax.scores.suite import SuiteRow
from ppax.storage import manifest
from ppax.sweeps import directory as sweep_directory
from samples.make import OBS, answers

SAMPLES = sorted(path for path in (Path(__file__).parents[1] / "samples").iterdir() if path.name[0].isdigit())
pytestmark = pytest.mark.usefixtures("cached_programs")
of_each_version = pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)


def known(sample):
    return json.loads((sample / "known.json").read_text())


def assert_answers(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours["action"], theirs["action"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(ours["value"], theirs["value"], rtol=1e-4, atol=1e-5)


@of_each_version
@pytest.mark.parametrize("source", ["run", "policy.zip"])
def test_a_policy_answers_as_when_it_was_saved(sample, source):
    assert_answers(answers(ppax.load(sample / source)), known(sample)["run"])


@of_each_version
def test_the_numpy_reader_answers_as_the_policy_did(sample):
    policy = numpy_policy.NumpyPolicy(sample / "policy.zip")
    carry, found = policy.initial_carry(1), []
    for number, obs in enumerate(OBS):
        out = policy({"obs": np.array([obs], np.float32), "first": np.array([number == 0]), **carry})
        carry = {name.removeprefix("next_"): x for name, x in out.items() if name.startswith("next_carry")}
        found.append({"action": out["action"][0], "value": out["value"][0]})
    assert_answers(found, known(sample)["run"])


@of_each_version
def test_a_run_is_continued_and_evaluated(sample, tmp_path):
    path = shutil.copytree(sample / "run", tmp_path / "run")
    before = known(sample)["total_steps"]
    with pytest.warns(UserWarning, match="total_steps was 64 and is 128: progress goes from 100% to 50%"):
        run = ppax.resume(path, total_steps=2 * before)
    assert run.total_steps == 2 * before
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert rows[0] == json.loads((sample / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert [row["iteration"] for row in rows] == [4, 8]
    assert np.isfinite(run.evaluate(episodes=2).mean_return)
    assert read_about(path)["id"] == read_about(sample / "run")["id"]


def test_an_option_of_a_newer_version_is_no_change_of_the_run():
    """A run of an earlier ppax has it neither in its run file nor with its checkpoint."""
    run = SAMPLES[-1] / "run"
    saved = provenance.Origin("id", 1, "float32", "cpu", "0.10.2", {"agent.gamma": 0.99})
    newer = saved._replace(config=saved.config | {"agent.invented": True})
    provenance.warn_of_changes(run, saved, newer, None)  # warnings are errors
    edited = newer._replace(config=newer.config | {"agent.gamma": 0.9})
    with pytest.warns(
        UserWarning, match=r"was changed since the checkpoint was saved: agent.gamma was 0.99 and is 0.9$"
    ):
        provenance.warn_of_changes(run, saved, edited, None)


@of_each_version
def test_the_result_of_a_sweep_is_read(sample, tmp_path):
    path = shutil.copytree(sample / "sweep", tmp_path / "sweep")
    result = ppax.resume_sweep(path)
    assert [[member.values, member.score] for member in result.members] == known(sample)["sweep"]
    assert ppax.load(result.members[0].run_dir).act([0.0, 0.0, 0.1, 0.0]) in (0, 1)


@of_each_version
def test_a_score_is_read(sample):
    name = known(sample)["score"]["file"].removesuffix(".json")
    assert results.load(SuiteRow(name, "CartPole-v1"), sample).statistics.iqm == known(sample)["score"]["iqm"]


def test_every_format_of_today_has_a_sample():
    """A new format needs new samples: raise the version of ppax, and run tests/samples/make.py."""
    today = {
        "run/about.json": directory.FORMAT,
        "run/policy.json": spec.FORMAT,
        "run/checkpoints/*/manifest.json": manifest.FORMAT,
        "sweep/sweep.json": sweep_directory.FORMAT,
        "L*.json": results.FORMAT,
    }
    for pattern, version in today.items():
        found = {json.loads(path.read_text())["format"] for sample in SAMPLES for path in sample.glob(pattern)}
        assert version in found, pattern
    bundles = {archive.read_archive(sample / "policy.zip")[0]["format"] for sample in SAMPLES}
    assert archive.FORMAT in bundles


def test_newer_formats_are_refused_with_their_number(tmp_path):
    sample = SAMPLES[-1]
    path = shutil.copytree(sample / "run", tmp_path / "run")
    about = read_about(path)
    (path / "about.json").write_text(json.dumps(about | {"format": 99}))
    with pytest.raises(ppax.ConfigError, match="is a run directory of format 99, and this ppax reads format 1"):
        ppax.resume(path)
    with pytest.raises(ppax.ConfigError, match="format 99"):
        ppax.load(path)
    name = known(sample)["score"]["file"]
    content = json.loads((sample / name).read_text())
    row = SuiteRow(name.removesuffix(".json"), "CartPole-v1")
    (tmp_path / name).write_text(json.dumps(content | {"format": 99}))
    assert results.load(row, tmp_path) is None
    del content["format"]  # as the first files
    (tmp_path / name).write_text(json.dumps(content))
    assert results.load(row, tmp_path) is not None


def test_new_files_have_the_version_of_their_format(tmp_path):
    with directory.RunDirectory.create(tmp_path / "run", {"env": "CartPole-v1"}, {}):
        assert read_about(tmp_path / "run")["format"] == directory.FORMAT
    row = SuiteRow("L1", "CartPole-v1")
    results.save_score(results.load(row, SAMPLES[-1]), tmp_path)
    assert json.loads((tmp_path / "L1.json").read_text())["format"] == results.FORMAT
