"""A table as a constructor's argument: in Python, run files, on the command line; recorded, overridden, swept."""

import tomllib

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.cli.main import main
from ppax.core.types import ConfigError
from ppax.envs.making import other_params
from ppax.envs.wrappers.params import merged, nested

DEFAULTS = {"lanes": 4, "duration": 10, "observation": {"type": "Kinematics", "size": 2}}
WISH = {"config": {"lanes": 2, "duration": 5, "observation": {"size": 3}}}


class Road(gymnasium.Env):
    """Environment whose constructor takes a dict, as those of highway-env."""

    def __init__(self, config=None, gravity=1.0, render_mode=None):
        own = config or {}
        self.config = {**DEFAULTS, **own, "observation": {**DEFAULTS["observation"], **own.get("observation", {})}}
        self.observation_space = spaces.Box(-1, 1, (self.config["observation"]["size"],))
        self.action_space = spaces.Discrete(self.config["lanes"])
        self.gravity = gravity

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        self.t += 1
        obs = np.zeros(self.observation_space.shape, np.float32)
        return obs, self.gravity, False, self.t >= self.config["duration"], {}


@pytest.fixture(autouse=True)
def registered():
    gymnasium.register(id="Road-v0", entry_point=Road)
    yield
    del gymnasium.registry["Road-v0"]


def sizes(env):
    return int(env.action_space.n), env.observation_space.shape[0]


@pytest.mark.parametrize(
    "given",
    [
        WISH,
        {"config.lanes": 2, "config": {"duration": 5}, "config.observation.size": 3},
        {"config": {"lanes": 2, "duration": 5, "observation.size": 3}},
    ],
    ids=["nested", "dotted", "mixed"],
)
def test_python(given):
    for env in (ppax.make("gymnasium/Road-v0", 2, env_params=given), ppax.envs.host(Road, 2, env_params=given)):
        assert sizes(env) == (2, 3)
        assert env.settings.env_params == WISH


def test_a_run_is_recorded_resumed_and_evaluated_with_its_table(tmp_path):
    env = ppax.make("gymnasium/Road-v0", 2, env_params=WISH)
    agent = ppax.PPO(ppax.networks.network(env, hidden=(4,)))
    run = ppax.fit(agent, env, 40, num_steps=10, run_dir=tmp_path / "run", log=ppax.Log(console=False))
    assert tomllib.loads((tmp_path / "run" / "run.toml").read_text())["env_params"] == WISH
    assert run.evaluate(2).mean_length == 5
    longer = ppax.resume(tmp_path / "run", console=False, total_steps=80)
    assert sizes(longer.env) == (2, 3)
    assert longer.evaluate(2).mean_length == 5
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 0


def test_run_files_and_the_command_line(tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr("ppax.cli.main.fit_run", lambda agent, env, *_, **__: built.append(env) or 1 / 0)
    text = 'env = "gymnasium/Road-v0"\nnum_envs = 2\n[env_params.config]\nlanes = 2\nduration = 5\n'
    (tmp_path / "run.toml").write_text(text + "[env_params.config.observation]\nsize = 3\n")
    base = str(tmp_path / "run.toml")
    cases = {
        (): (2, 3, 5),
        ("--env-params.config.lanes", "3"): (3, 3, 5),
        ("--env-params.config.observation.size=7",): (2, 7, 5),
        ("--env-params.config", '{"lanes": 6, "observation": {"size": 8}}'): (6, 8, 5),
        ("--env-params.config={lanes = 6}",): (6, 3, 5),
    }
    for arguments, (lanes, size, duration) in cases.items():
        with pytest.raises(ZeroDivisionError):
            main(["train", base, *arguments])
        assert sizes(built[-1]) == (lanes, size)
        assert built[-1].settings.env_params["config"]["duration"] == duration


def test_other_parameters_change_single_entries():
    """Those of evaluation, `eval.env_params`, leave the other entries of a table as they are."""
    env = ppax.make("gymnasium/Road-v0", 2, env_params=WISH)
    other = other_params(env, {"config": {"duration": 7}, "gravity": 2.0})
    assert other.settings.env_params == {"config": {**WISH["config"], "duration": 7}, "gravity": 2.0}
    assert other_params(env, {"config": {"duration": 5}}) is env


def test_ranges_are_low_and_high_and_nothing_else():
    drawn = ppax.make("gymnasium/Road-v0", 1, env_params={**WISH, "gravity": {"low": 2.0, "high": 3.0}})
    assert sizes(drawn) == (2, 3)
    with pytest.raises(
        ConfigError, match=r"env_params.gravity = \{'low': 2.0\}: must be a number, or have low and high"
    ):
        ppax.make("gymnasium/Road-v0", 1, env_params={"gravity": {"low": 2.0}})
    assert merged({"gravity": {"low": 1, "high": 2}}, {"gravity": 3}) == {"gravity": 3}
    assert merged({"gravity": {"low": 1, "high": 2}}, {"gravity": {"low": 0, "high": 9}}) == {
        "gravity": {"low": 0, "high": 9}
    }
    assert nested({"gravity.low": 1, "gravity.high": 2}) == {"gravity": {"low": 1, "high": 2}}


def test_tables_that_no_run_file_can_hold_are_refused():
    with pytest.raises(ConfigError, match=r"env_params.config: the name 1 of 'x' must be a text"):
        ppax.make("gymnasium/Road-v0", 1, env_params={"config": {1: "x"}})


def test_a_sweep_over_an_entry_of_a_table(tmp_path):
    text = 'env = "gymnasium/Road-v0"\nnum_envs = 2\nnum_steps = 10\ntotal_steps = 20\nagent.num_epochs = 1\n'
    (tmp_path / "run.toml").write_text(text)
    options = ["--env-params.config.duration", "3,5", "--log.console", "false", "--agent.network.hidden", "4"]
    code = main(["sweep", str(tmp_path / "run.toml"), *options, "--run-dir", str(tmp_path / "sweep"), "--seeds", "1"])
    assert code == 0
    files = sorted((tmp_path / "sweep").rglob("run.toml"))
    assert sorted(config.read(file)["env_params"]["config"]["duration"] for file in files) == [3, 5]
