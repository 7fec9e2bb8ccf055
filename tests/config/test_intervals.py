"""Intervals of a run in iterations or in steps: one meaning in files, on the command line and in Python."""

import dataclasses

import pytest

import ppax
from ppax import config
from ppax.agents.opponents import Pool
from ppax.config import EvalSettings, FilmSettings, Log, Run, in_iterations
from ppax.options import interval
from ppax.types import ConfigError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("50k steps", "50000 steps"),
        ("1 step", "1 steps"),
        ("1.5M steps", "1500000 steps"),
        ("20_000 steps", "20000 steps"),
        ("20,000 steps", "20000 steps"),
        ("1e6 steps", "1000000 steps"),
        ("20 iterations", 20),
        (" 7 iterations ", 7),
    ],
)
def test_spellings_of_an_interval(text, found):
    assert interval("eval.every", text) == found


@pytest.mark.parametrize("text", ["50k", "", "steps", "-5 steps", "0 steps", "0.5 steps", "nan steps", "9e99 steps"])
def test_other_texts_are_refused(text):
    with pytest.raises(
        ConfigError, match=r'eval\.every = .*: must be a whole number of iterations, or of steps, as "50k'
    ):
        interval("eval.every", text)


def test_steps_are_the_nearest_number_of_iterations():
    run = Run(
        num_envs=8,
        num_steps=16,
        log=Log(every="300 steps", checkpoint_every="1k steps"),
        eval=EvalSettings(every="50 steps"),
        film=FilmSettings(every="7 iterations"),
    )
    found = in_iterations(run, 128)
    assert (found.log.every, found.log.checkpoint_every, found.eval.every, found.film.every) == (2, 8, 1, 7)
    assert in_iterations(found, 128) == found


BASE = {"env": "CartPole-v1", "num_envs": 8, "num_steps": 16, "total_steps": 128 * 40}


def test_a_run_file_in_steps_and_its_record_in_iterations():
    """With 2 agents and 8 environments an iteration of 16 steps has 256 steps."""
    built = config.build(BASE | {"eval": {"every": "1k steps"}, "log": {"every": 5}})
    assert (built.run.eval.every, built.run.log.every) == (8, 5)
    assert config.describe_run(*built)["eval"]["every"] == 8
    games = BASE | {"env": "Pursuit-2", "groups": {"prey": {"players": [0]}, "hunter": {"players": [1]}}}
    built = config.build(games | {"self_play": {"every": "1k steps", "size": 2, "opponents": 1}})
    assert built.agent.pool.every == built.run.self_play.every == 4


def test_a_pool_made_in_python_has_iterations():
    env = ppax.envs.grouped(ppax.make("Pursuit-2", num_envs=8), {"prey": [0], "hunter": [1]})
    agents = {name: ppax.PPO(ppax.networks.mlp(group)) for name, group in env.groups.items()}
    agent = ppax.SelfPlay(ppax.Groups(agents, env.sizes), Pool(every="1k steps"), 8)
    with pytest.raises(ConfigError, match=r"self_play\.every = '1k steps': must be a number of iterations in Python"):
        agent.check()


def test_fit_takes_steps():
    env = ppax.make("CartPole-v1", num_envs=8)
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(8,)), num_epochs=1)
    settings = {"log": Log(console=False, every=1), "evaluation": EvalSettings(every="512 steps", episodes=2)}
    run = ppax.fit(agent, env, 128 * 8, num_steps=16, **settings)
    assert [row["iteration"] for row in run.history if row["eval_return"] == row["eval_return"]] == [0, 4, 8]


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ({"eval": {"every": "50k steps"}}, r"eval\.every = 391 iterations: the run has 40, .*; must be at most 40"),
        ({"log": {"every": 41}}, r"log\.every = 41 iterations: the run has 40"),
        ({"log": {"checkpoint_every": 100}}, r"log\.checkpoint_every = 100 iterations: the run has 40"),
        ({"film": {"every": 100}}, r"film\.every = 100 iterations: the run has 40"),
    ],
)
def test_an_interval_longer_than_the_run_is_refused(tables, text, tmp_path):
    built = config.build(BASE | tables)
    with pytest.raises(ConfigError, match=text):
        ppax.run.fit.fit_run(*built, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    config.require_within(
        dataclasses.replace(built.run, eval=EvalSettings(every=40), log=Log(), film=FilmSettings()), 40
    )
