"""Intervals of a run in iterations or in steps: one meaning in files, on the command line and in Python."""

import dataclasses
import json

import pytest

import ppax
from ppax import config
from ppax.agents.self_play import Pool
from ppax.cli import main
from ppax.config import EvalSettings, FilmSettings, Log, Run, in_iterations
from ppax.core.options import interval
from ppax.core.types import ConfigError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("50k steps", "50000 steps"),
        ("1 step", "1 steps"),
        ("1.5M steps", "1500000 steps"),
        ("16.1k steps", "16100 steps"),  # 16.1 * 1e3 is no whole number in binary
        ("1.1e1k steps", "11000 steps"),
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


SWEPT = BASE | {"agent": {"num_epochs": 1, "network": {"hidden": [4]}}, "log": {"console": False}}
RATES = {"agent.learning_rate": [1e-2, 1e-3]}


def test_the_interval_of_a_population_in_steps(tmp_path):
    """It is recorded in iterations, as those of a run."""
    tables = SWEPT | {"total_steps": 128 * 6, "eval": {"episodes": 1}}
    search = {"part": "pbt", "interval": "300 steps", "fraction": 0.5}
    ppax.sweep_runs(tables, RATES, search=search, run_dir=tmp_path / "sweep")
    assert config.read(tmp_path / "sweep" / "sweep.toml")["search"]["interval"] == 2
    rows = [json.loads(line) for line in (tmp_path / "sweep" / "search.jsonl").read_text().splitlines()]
    assert sorted({row["iteration"] for row in rows}) == [2, 4]


def test_the_interval_of_a_population_on_the_command_line_and_in_a_file(tmp_path, capsys):
    (tmp_path / "sweep.toml").write_text(config.to_toml(SWEPT | {"sweep": RATES}))
    command = ["sweep", str(tmp_path / "sweep.toml"), "--search", "pbt", "--search.interval", "1k steps", "--dry-run"]
    assert main.main(command) == 0
    text = capsys.readouterr().out
    assert "interval = 8\n" in text
    (tmp_path / "again.toml").write_text(text.replace("interval = 8", 'interval = "1k steps"'))
    assert main.main(["sweep", str(tmp_path / "again.toml"), "--dry-run"]) == 0
    assert capsys.readouterr().out == text
    assert main.main([*command[:4], "--search.interval", "1M steps", "--dry-run"]) == 2
    assert "search.interval = 7812: must be below the 40 iterations" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["50k stepps", "50k", "every"])
@pytest.mark.parametrize("option", ["--eval.every", "--search.interval"])
def test_a_text_that_is_no_interval_is_explained_on_the_command_line(option, text, capsys):
    """argparse alone would say that it is no whole number."""
    command = ["sweep", "CartPole-v1"] if "search" in option else ["train", "CartPole-v1"]
    with pytest.raises(SystemExit) as stop:
        main.main([*command, *(["--search", "pbt"] if "search" in option else []), option, text])
    assert stop.value.code == 2
    assert (
        f'{option[2:]} = {text!r}: must be a whole number of iterations, or of steps, as "50k'
        in capsys.readouterr().err
    )


def test_steps_are_no_interval_of_members_with_unlike_iterations(tmp_path):
    values = RATES | {"num_steps": [16, 32]}
    with pytest.raises(ppax.ConfigError, match="members have iterations of 128, 256 steps, and decide at equal iter"):
        ppax.sweep_runs(SWEPT, values, search=ppax.sweeps.PBT(interval="1k steps"), run_dir=tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


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
