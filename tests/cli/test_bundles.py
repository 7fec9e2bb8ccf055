"""Bundles in commands: played, evaluated, taken as a start; those of environments that no file can name."""

import json

import jax
import numpy as np
import pytest

import ppax
from ppax.arrays import counter
from ppax.cli import main
from ppax.config import Log
from ppax.core.types import part
from ppax.envs import builtin
from ppax.run.loading import load

TINY = ["--num-envs", "4", "--num-steps", "8", "--total-steps", "64", "--agent.network.hidden", "8", "--log.every", "1"]
TINY += ["--eval.episodes", "2", "--agent.num-epochs", "1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run directory, with its bundle policy.zip."""
    path = tmp_path_factory.mktemp("bundles") / "run"
    options = ["--agent.normalize-obs", "true", "--agent.normalize-reward", "true"]
    assert main.main(["train", "CartPole-v1", *TINY, *options, "--run-dir", str(path)]) == 0
    ppax.load(path).export(path / "policy.zip", formats=["numpy"])
    return path


def test_play_takes_a_bundle_and_plays_the_episode_of_its_run(run, tmp_path, capsys):
    assert main.main(["play", str(run / "policy.zip"), "--json"]) == 0
    played = json.loads(capsys.readouterr().out)
    assert played["path"] == str(run / "policy.gif")
    assert main.main(["play", str(run), "--json", "--out", str(tmp_path / "one.gif")]) == 0
    assert json.loads(capsys.readouterr().out)["returns"] == played["returns"]
    film = ppax.film(run / "policy.zip", tmp_path / "two.gif")
    assert film.returns.tolist() == played["returns"]


def test_play_refuses_best_and_step_of_a_bundle(run, capsys):
    for option in (["--best"], ["--step", "3"]):
        assert main.main(["play", str(run / "policy.zip"), *option]) == main.USAGE
        assert "is a bundle, of one policy" in capsys.readouterr().err


def test_a_run_starts_from_a_bundle(run, tmp_path, capsys):
    options = ["--agent.normalize-obs", "true", "--agent.normalize-reward", "true", "--total-steps", "32"]
    options += ["--agent.learning-rate", "0.0"]
    path = tmp_path / "second"
    command = ["train", "CartPole-v1", *TINY, *options, "--init-from", str(run / "policy.zip"), "--run-dir", str(path)]
    assert main.main(command) == 0
    said = capsys.readouterr()
    assert "policy.zip (bundle, without statistics of rewards): " in said.out + said.err
    first, second = (load(one).learner.params for one in (run, path))
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))
    seen = [counter.to_int(load(one).learner.obs_stats.count) for one in (run, path)]
    assert seen[0] < seen[1] <= seen[0] + 32  # the statistics of observations go on
    assert main.main(["resume", str(path), "--total-steps", "64"]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--init-from.keep", "params", "opt_state"], "opt_state: "),
        (["--init-from.keep", "reward_stats"], "reward_stats: "),
        (["--init-from.best"], "init_from.best: "),
    ],
)
def test_what_a_bundle_does_not_hold_is_refused(run, tmp_path, options, message, capsys):
    command = ["train", "CartPole-v1", *TINY, "--init-from", str(run / "policy.zip"), *options]
    assert main.main([*command, "--run-dir", str(tmp_path / "run")]) == main.USAGE
    said = capsys.readouterr().err
    assert message in said
    assert "bundle" in said


@pytest.mark.parametrize("with_directory", [True, False])
@pytest.mark.parametrize("verb", ["evaluate", "play"])
def test_a_bundle_whose_environment_is_a_python_object_says_what_to_write(with_directory, verb, tmp_path, capsys):
    @part
    class Local(builtin.CartPole):
        """Not importable."""

    env = ppax.envs.VectorEnv(ppax.envs.TimeLimit(Local(), 10), 4)
    run_dir = tmp_path / "run" if with_directory else None
    agent = ppax.build(env, agent={"network": {"hidden": [8]}}).agent
    run = ppax.fit(agent, env, 32, run_dir=run_dir, num_steps=8, log=Log(console=False))
    bundle = tmp_path / "policy.zip"
    run.policy().export(bundle, formats=["numpy"])
    sources = [bundle, run_dir] if with_directory else [bundle]
    for source in sources:
        assert main.main([verb, str(source)]) == main.USAGE
        said = capsys.readouterr().err
        assert f"{source} was made from Python objects" in said
        assert (
            f"policy = ppax.load('{source}'), then policy.evaluate(env) or ppax.film(policy, 'play.gif', env)" in said
        )
        assert "resume" not in said
        assert "no environment" not in said


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["play", "x", "--to", "a.gif"], "--out"),
        (["play", "x", "--output", "a.gif"], "--out"),
        (["export", "x", "--to", "a.zip"], "--out"),
        (["report", "x", "--output", "a.html"], "--out"),
        (["plot", "x", "--to", "a.png"], "--out"),
        (["play", "x", "--sampld"], "--sampled"),
        (["evaluate", "x", "--maxsteps", "4"], "--max-steps"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_an_unknown_option_is_answered_with_the_nearest(arguments, near, capsys):
    assert main.main(arguments) == main.USAGE
    assert f"has no such argument; did you mean {near}?" in capsys.readouterr().err


def test_the_bundle_of_a_bundle_needs_a_name(run, capsys):
    assert main.main(["export", str(run / "policy.zip")]) == main.USAGE
    said = capsys.readouterr().err
    assert "is a bundle already: write an MLflow model of it, --mlflow DIR, or another bundle, --out " in said
