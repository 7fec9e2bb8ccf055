"""Dry runs of training and sweeps: settings, sizes and refusals of the real run; nothing is compiled or written."""

import json
import os
import tomllib

import jax
import jax.numpy as jnp
import pytest

import ppax
from ppax import config
from ppax.cli import main
from ppax.core.types import part
from ppax.envs import VectorEnv
from ppax.run.dry_run import dry_run
from ppax.training import backends, sweeps
from support.worlds import Counter

pytestmark = pytest.mark.usefixtures("cached_programs", "quick_programs", "shared_programs")

TINY = ["--num-envs", "4", "--num-steps", "8", "--total-steps", "96", "--eval.episodes", "1", "--no-log.console"]
TINY += ["--agent.network.hidden", "8", "--agent.num-epochs", "2"]


@pytest.fixture
def nothing(monkeypatch, tmp_path):
    """Fail where a program is compiled, and at the end if anything was written to the current directory."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "compile", lambda *_: pytest.fail("compiled"))
        patch.setattr(sweeps.MembersTraining, "__init__", lambda *_: pytest.fail("compiled"))
        yield
    assert os.listdir(tmp_path / "here") == []


def printed(capsys, *arguments, code=0):
    assert main.main([str(x) for x in arguments]) == code
    return capsys.readouterr()


def test_the_output_is_the_run_file_of_the_real_run(nothing, tmp_path, capsys):
    text = printed(capsys, "train", "CartPole-v1", *TINY, "--run-dir", tmp_path / "run", "--dry-run").out
    assert not (tmp_path / "run").exists()
    (tmp_path / "file.toml").write_text(text)
    assert printed(capsys, "train", tmp_path / "file.toml", "--dry-run").out == text
    assert text.startswith("# iterations: 3 of 32 steps (4 streams); 96 steps\n")


@pytest.mark.parametrize("rows", [None, 4])
def test_the_sizes_are_those_of_the_trained_run(rows, tmp_path, capsys):
    """Minibatches of 4 of the 32 rows are 8 gradient steps in an epoch."""
    sized = [] if rows is None else ["--agent.minibatch.part", "shuffle_rows", "--agent.minibatch.rows", str(rows)]
    arguments = ["train", "CartPole-v1", *TINY, *sized]
    found = json.loads(printed(capsys, *arguments, "--dry-run", "--json").out)
    assert main.main([*arguments, "--run-dir", str(tmp_path / "run")]) == 0
    assert config.resolve(found["config"]) == config.resolve(config.read(tmp_path / "run" / "run.toml"))
    trained = ppax.resume(tmp_path / "run", console=False)
    assert found["iterations"] == int(trained.state.iteration)
    assert found["steps"] * found["iterations"] == 96
    assert found["parameters"] == sum(x.size for x in jax.tree.leaves(trained.state.learner.params))
    count = next(x for x in jax.tree.leaves(trained.state.learner.opt_state) if x.ndim == 0)  # of Adam's steps
    assert found["gradient_steps"] * found["iterations"] == int(count)
    assert rows is None or found["gradient_steps"] == 8 * found["config"]["agent"]["num_epochs"]
    assert found["memory"]["learner"] > 0


GAMES = {"env": "Pursuit-2", "num_envs": 4, "num_steps": 8, "total_steps": 640}
GROUPS = {"groups": {"prey": {"players": [0]}, "hunter": {"players": [1], "agent": {"num_epochs": 7}}}}


@pytest.mark.parametrize(
    ("tables", "parameters", "gradient_steps"),
    [
        ({}, 1, 16),
        ({"agents": "independent"}, 2, 16),
        (GROUPS, 2, 28),
        (GROUPS | {"self_play": {"every": 2, "opponents": 1}}, 2, 28),
    ],
)
def test_sizes_of_several_policies(tables, parameters, gradient_steps):
    """Past selves of self-play are no parameters; gradient steps are those of the policy with the most."""
    one = dry_run(*config.build(GAMES)).demand
    found = dry_run(*config.build(GAMES | tables)).demand
    assert (found.parameters, found.gradient_steps) == (parameters * one.parameters, gradient_steps)
    assert found.steps == 4 * 2 * 8


def test_a_sweep_prints_its_members_and_its_run_file(nothing, tmp_path, capsys):
    flags = ["--agent.learning-rate", "1e-3,1e-4", "--agent.network.hidden", "[8],[16]", "--seeds", "3"]
    arguments = ["sweep", "CartPole-v1", *TINY[:-4], *flags, "--run-dir", tmp_path / "sweep", "--dry-run"]
    text = printed(capsys, *arguments).out
    assert "# 12 members, 4 settings of 3 seeds; 2 kinds of programs\n" in text
    assert "# setting 3: agent.learning_rate = 0.0001, agent.network.hidden = [16]\n# each of 6 members:\n" in text
    assert tomllib.loads(text)["sweep"]["agent"]["learning_rate"] == [1e-3, 1e-4]
    (tmp_path / "sweep.toml").write_text(text)
    assert printed(capsys, "sweep", tmp_path / "sweep.toml", "--dry-run").out == text
    found = json.loads(printed(capsys, *arguments, "--json").out)
    assert [one["seed"] for one in found["members"]] == [0, 1, 2] * 4
    assert [one["members"] for one in found["programs"]] == [6, 6]


@part
class Broken(Counter):
    """Environment whose observations are integers, and its space says floats."""

    def reset(self, key):
        begin = super().reset(key)
        return begin._replace(obs=begin.obs.astype(jnp.int32))


REFUSED = [
    (["--agent.learning-rate", "-1"], "agent.learning_rate = -1.0: must be at least 0"),
    (["--eval.every", "50"], "eval.every = 50 iterations: the run has 3"),
    (["--agent.minibatch.num-minibatches", "5"], "num_minibatches = 5 does not divide"),
    (["--best.metric", "returns"], "no metric 'returns' is logged"),
    (["--init-from", "nowhere"], "nowhere"),
    (["--overwrite"], "overwrite: a run without a named directory"),
]


@pytest.mark.parametrize(("more", "text"), REFUSED)
def test_a_dry_run_refuses_what_the_run_refuses(nothing, more, text, capsys):
    assert text in printed(capsys, "train", "CartPole-v1", *TINY, *more, "--dry-run", code=2).err


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--stop", "foo >= 3"], "foo"),
        (["--best.metric", "foo"], "foo"),
        (["--init-from", "nowhere"], "nowhere"),
    ],
)
def test_a_sweep_refuses_metrics_and_starts_before_it_writes_or_compiles(nothing, more, text, tmp_path, capsys):
    for last in (["--dry-run"], []):
        arguments = ["sweep", "CartPole-v1", *TINY[:-4], "--seeds", "2", *more, "--run-dir", tmp_path / "sweep", *last]
        said = printed(capsys, *arguments, code=2).err
        assert said.startswith("ppax: sweep, member 0: ")
        assert text in said
    assert not (tmp_path / "sweep").exists()


def test_a_dry_run_checks_the_environment(nothing):
    env = VectorEnv(Broken(), 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)))
    with pytest.raises(ppax.ConfigError, match=r"Broken.*int32"):
        dry_run(agent, env, config.Run(num_envs=2, num_steps=8))


@pytest.mark.parametrize("verb", ["train", "sweep"])
def test_a_directory_that_holds_a_run_is_refused_and_left_as_it_is(verb, tmp_path, capsys):
    assert main.main(["train", "CartPole-v1", *TINY, "--run-dir", str(tmp_path / "run")]) == 0
    before = sorted(tmp_path.rglob("*"))
    arguments = [verb, "CartPole-v1", *TINY[:-4], "--agent.gamma", "0.9,0.8" if verb == "sweep" else "0.9"]
    said = printed(capsys, *arguments, "--run-dir", tmp_path / "run", "--dry-run", code=2).err
    assert "already holds a run" in said
    assert printed(capsys, *arguments, "--run-dir", tmp_path / "run", "--dry-run", "--overwrite").out.startswith("#")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_refused(tmp_path, capsys):
    (tmp_path / "closed").mkdir(mode=0o500)
    printed(capsys, "train", "CartPole-v1", *TINY, "--run-dir", tmp_path / "closed" / "run", "--dry-run", code=5)
