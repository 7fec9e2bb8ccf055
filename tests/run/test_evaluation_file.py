"""evaluation.json is of one policy: it is shown, exported and compared for that policy alone."""

import json
import shutil
import zipfile

import pytest

import ppax
from ppax.cli.main import main
from ppax.run import records
from ppax.run.directory import read_evaluation

pytestmark = pytest.mark.usefixtures("quick_programs", "shared_programs")
SIZES = ["--total-steps", "256", "--num-envs", "4", "--num-steps", "16", "--agent.network.hidden", "8"]


def files(path, evaluated=8, saved=(4, 8), end=8, run_id="a", of="a"):
    (path / "about.json").write_text(json.dumps({"id": run_id, "starts": []}))
    (path / "evaluation.json").write_text(json.dumps({"mean_return": 1.0, "iterations": evaluated, "run_id": of}))
    for iteration in saved:
        (path / "checkpoints" / f"{iteration:010d}").mkdir(parents=True)
    if end is not None:
        (path / "stopped.json").write_text(json.dumps({"kind": "done", "iteration": end}))


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, True),
        ({"saved": (), "end": None}, True),  # nothing newer is known
        ({"saved": (4, 8, 9)}, False),  # trained on, and saved
        ({"saved": (4,), "end": 9}, False),  # trained on, and the last checkpoint was not saved
        ({"end": None}, True),
        ({"evaluated": 4}, False),
        ({"of": "b"}, False),  # a file of another run
    ],
)
def test_an_evaluation_is_of_its_own_policy_alone(tmp_path, changes, shown):
    files(tmp_path, **changes)
    assert bool(read_evaluation(tmp_path)) == shown
    assert bool(read_evaluation(tmp_path, 8)) == (changes.get("evaluated", 8) == 8 and changes.get("of") != "b")
    assert read_evaluation(tmp_path, 7) == {}


@pytest.mark.parametrize("text", ["", "[1]", '{"iterations": "8"}', '{"iterations": [8]}', "9" * 5000, "[" * 10_000])
def test_a_damaged_file_is_no_evaluation(tmp_path, text):
    files(tmp_path)
    (tmp_path / "evaluation.json").write_text(text)
    assert read_evaluation(tmp_path) == {}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return tmp_path_factory.mktemp("runs") / "a"


def scores_of_bundle(path, *options):
    assert main(["export", str(path), "--out", str(path / "b.zip"), "--formats", "numpy", "--no-cache", *options]) == 0
    return json.loads(zipfile.ZipFile(path / "b.zip").read("policy.json"))["scores"]


@pytest.mark.filterwarnings("ignore:total_steps was 256")
def test_further_training_removes_the_evaluation(finished, tmp_path, capsys):
    assert main(["train", "CartPole-v1", *SIZES, "--eval.episodes", "2", "--no-cache", "--run-dir", str(finished)]) == 0
    score = json.loads((finished / "evaluation.json").read_text())["mean_return"]
    assert scores_of_bundle(finished)["mean_return"] == score
    assert records.read(finished).result("mean_return") == score
    before = shutil.copytree(finished, tmp_path / "before")
    ppax.resume(finished, console=False)  # nothing left to train: the evaluation is of this policy
    assert read_evaluation(finished)["mean_return"] == score
    ppax.resume(finished, total_steps=512, console=False)
    assert not (finished / "evaluation.json").exists()
    # as a version of ppax that did not remove it has left it
    shutil.copy(before / "evaluation.json", finished)
    assert scores_of_bundle(finished) is None
    assert records.read(finished).evaluation == {}
    capsys.readouterr()


def episodes_recorded(path):
    return read_evaluation(path).get("episodes")


@pytest.mark.filterwarnings("ignore:total_steps was 256")
def test_an_evaluation_in_python_is_recorded_if_it_is_the_runs_own(tmp_path):
    """Sampled actions, another limit and other parameters measure something else; fewer episodes are no better."""
    path = tmp_path / "run"
    sizes = {"num_envs": 4, "num_steps": 16, "total_steps": 256, "agent": {"network": {"hidden": [8]}}}
    run = ppax.build("CartPole-v1", **sizes, log=ppax.Log(console=False)).fit(path)
    assert not (path / "evaluation.json").exists()
    run.evaluate(episodes=2, deterministic=False)
    run.evaluate(episodes=2, max_steps=5)
    run.evaluate(episodes=2, env_params={"gravity": 1.0})
    run.evaluate(episodes=2, record=False)
    assert not (path / "evaluation.json").exists()
    first = run.evaluate(episodes=2)
    assert read_evaluation(path)["mean_return"] == first.mean_return
    assert read_evaluation(path)["compile_seconds"] == run.compile_seconds
    run.evaluate(episodes=2, seed=1)  # not the luckier of two
    assert read_evaluation(path)["mean_return"] == first.mean_return
    assert main(["evaluate", str(path), "--episodes", "3", "--no-cache"]) == 0
    assert episodes_recorded(path) == 2
    assert read_evaluation(path)["compile_seconds"] == run.compile_seconds  # known to the run that trained
    ppax.resume(path, total_steps=512, console=False)
    run.evaluate(episodes=4)  # of a policy that is no longer the newest
    assert not (path / "evaluation.json").exists()


def test_the_last_evaluation_during_training_is_that_of_the_final_policy(tmp_path):
    sizes = {"num_envs": 4, "num_steps": 16, "total_steps": 256, "agent": {"network": {"hidden": [8]}}}
    evaluations = {"every": 2, "episodes": 2}
    run = ppax.build("CartPole-v1", **sizes, eval=evaluations, log=ppax.Log(console=False)).fit(tmp_path / "run")
    assert read_evaluation(tmp_path / "run")["mean_return"] == run.evaluations[int(run.state.iteration)].mean_return
    assert records.read(tmp_path / "run").untrained_return == run.evaluations[0].mean_return
