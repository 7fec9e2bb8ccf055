"""Recommended settings: chosen by the kind of environment; given options have priority."""

import dataclasses
import math
import tomllib

import gymnasium
import jax
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.cli.main import main
from ppax.config.defaults import COLUMNS, NOISE, PARTS_FOR_ALL, ROWS, STREAMS, TABLE, kind_of, num_minibatches
from ppax.training import check_sizes


class Camera(gymnasium.Env):
    """Continuous control from small images."""

    observation_space = gymnasium.spaces.Box(0, 255, (12, 12, 3), np.uint8)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((12, 12, 3), np.uint8), {}

    def step(self, action):
        return np.zeros((12, 12, 3), np.uint8), 0.0, False, False, {}


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: ppax.make("CartPole-v1", 2), ("compiled", "discrete", 1, 0)),
        (lambda: ppax.make("Pendulum-v1", 2), ("compiled", "continuous", 1, 1)),
        (lambda: ppax.make("gymnax/Breakout-MinAtar", 2), ("compiled", "image", 1, 0)),
        (lambda: ppax.make("gymnasium/CartPole-v1", 1), ("host", "discrete", 1, 0)),
        (lambda: ppax.make("gymnasium/Pendulum-v1", 1), ("host", "continuous", 1, 1)),
        (lambda: ppax.envs.host(Camera, 1), ("host", "image", 1, 2)),
    ],
)
def test_kind_is_read_from_spaces_and_backend(make, kind):
    with make() as env:
        assert kind_of(env)[:4] == kind


def test_every_row_of_the_table_has_a_value_for_each_kind_and_names_an_option():
    known = {option.path for option in config.options(PARTS_FOR_ALL)} | {STREAMS, ROWS, NOISE}
    for cell in TABLE:
        assert len(cell.values) == len(COLUMNS) == 6
        assert cell.setting in known
        assert cell.reason


def test_given_options_have_priority():
    given = {"env": "CartPole-v1", "num_steps": 64, "agent": {"learning_rate": 7e-4, "normalize_obs": False}}
    chosen = config.recommended(given).config
    assert chosen["num_steps"] == 64
    assert chosen["agent"]["learning_rate"] == 7e-4
    assert chosen["agent"]["normalize_obs"] is False
    assert chosen["agent"]["normalize_reward"] is True  # not given


class Arm(gymnasium.Env):
    """Continuous control of several joints from a vector."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)

    def __init__(self, joints):
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (joints,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("joints", [1, 2, 6])
def test_the_noise_of_all_actions_together_is_that_of_one(joints):
    """Expected square of the norm of the initial noise: 1 whatever the number of actions."""
    with ppax.envs.host(lambda: Arm(joints), 1) as env:
        log_std = config.recommended({}, env).config["agent"]["network"]["log_std_init"]
    assert joints * math.exp(log_std) ** 2 == pytest.approx(1.0, rel=2e-3)
    assert math.copysign(1.0, log_std) == (1.0 if joints == 1 else -1.0)  # 0.0, not -0.0


@pytest.mark.parametrize("network", [{"distribution": "beta"}, {"log_std_init": -2.0}, {"part": "composed"}])
def test_other_distributions_and_deviations_are_kept(network):
    with ppax.envs.host(lambda: Arm(2), 1) as env:
        chosen = config.recommended({"agent": {"network": network}}, env).config
    assert {name: chosen["agent"]["network"][name] for name in network} == network
    assert ("log_std_init" in chosen["agent"]["network"]) == ("distribution" not in network)


def test_discrete_actions_and_cameras_have_no_deviation_of_the_table():
    assert "network" not in config.recommended({"env": "CartPole-v1"}).config["agent"]
    with ppax.envs.host(Camera, 1) as env:
        assert "network" not in config.recommended({}, env).config["agent"]


def test_given_minibatches_are_kept():
    chosen = config.recommended({"env": "CartPole-v1", "agent": {"minibatch": {"num_minibatches": 2}}}).config
    assert chosen["agent"]["minibatch"]["num_minibatches"] == 2


def test_columns_differ_where_the_table_does():
    """The same task, compiled and on the host: other numbers of streams, as docs/defaults.md lists them."""
    chosen = {name: config.recommended({"env": name}).config for name in ("CartPole-v1", "gymnasium/CartPole-v1")}
    assert [chosen[name]["num_envs"] for name in chosen] == [64, 8]
    assert [chosen[name]["num_steps"] for name in chosen] == [32, 256]


def test_options_of_a_part_leave_with_it():
    given = {"env": "CartPole-v1", "agent": {"loss": {"part": "dpo"}, "schedule": {"part": "constant"}}}
    chosen = config.recommended(given).config
    assert chosen["agent"]["loss"] == {"part": "dpo"}
    assert chosen["agent"]["schedule"] == {"part": "constant"}
    config.resolve(chosen)


@pytest.mark.parametrize(
    ("settings", "agents", "rows", "expected"),
    [
        ({"num_envs": 64, "num_steps": 32}, 1, 512, 4),
        ({"num_envs": 8, "num_steps": 32}, 1, 512, 1),  # 256 rows: one minibatch
        ({"num_envs": 7, "num_steps": 100}, 1, 64, 10),  # 700 rows: 10 and 14 divide, 700 / 64 is 10.9
        ({"num_envs": 4, "num_steps": 64}, 4, 256, 4),
        ({"num_envs": 8, "num_steps": 256, "agent.network.memory.part": "gru"}, 1, 64, 8),  # 8 sequences
        ({"num_envs": 8, "num_steps": 256, "agent.network.memory.part": "gru", "agent.seq_len": 32}, 1, 64, 32),
    ],
)
def test_minibatches_divide_the_rollout_and_have_about_the_rows(settings, agents, rows, expected):
    assert num_minibatches(settings, agents, rows) == expected


@pytest.mark.parametrize(
    ("settings", "sizes", "expected"),
    [
        ({}, (("prey", 1), ("predators", 2)), 16),  # 2 * 2 * 256 rows in the larger group, 64 in each minibatch
        ({"agent.network.memory.part": "gru"}, (("prey", 1), ("predators", 3)), 2),  # 2 and 6 sequences
        ({"groups.prey.agent.network.memory.part": "gru"}, (("prey", 1), ("predators", 3)), 2),  # 2, and 1,536 rows
        ({"groups.prey.agent.seq_len": 64}, (("prey", 1), ("predators", 3)), 8),  # 8, and 1,536 rows
    ],
)
def test_minibatches_divide_the_rollout_of_every_group(settings, sizes, expected):
    base = {"num_envs": 2, "num_steps": 256} | settings
    parts = num_minibatches(base, sum(size for _, size in sizes), 64, sizes)
    assert parts == expected


def test_the_default_settings_of_groups_with_memory_fit(tmp_path):
    """Three agents in two groups, with a memory: the defaults of the command line divide every group's sequences."""
    given = {"env": "Pursuit-3", "agent": {"network": {"memory": {"part": "gru"}}}}
    groups = {"prey": {"players": [0]}, "predators": {"players": [1, 2]}}
    built = config.build(config.recommended(given | {"groups": groups, "num_envs": 3}).config)
    check_sizes(built.agent, built.env, built.run.num_steps)


def test_a_group_whose_minibatches_do_not_divide_is_named():
    env = ppax.envs.grouped(ppax.make("Pursuit-3", 3), {"prey": [0], "predators": [1, 2]})
    memory = ppax.networks.memories.GRU(4)
    agents = {name: ppax.PPO(ppax.networks.network(one, memory=memory)) for name, one in env.groups.items()}
    text = r"^groups.prey.agent: a rollout of .*num_minibatches = 4 does not divide the 3 sequences"
    with pytest.raises(ppax.ConfigError, match=text):
        check_sizes(ppax.Groups(agents, env.sizes), env, 16)
    agents["prey"] = dataclasses.replace(agents["prey"], minibatch=ppax.minibatches.Shuffle(3), seq_len=5)
    with pytest.raises(ppax.ConfigError, match=r"^groups.prey.agent: seq_len = 5 does not divide num_steps = 16"):
        check_sizes(ppax.Groups(agents, env.sizes), env, 16)


@pytest.mark.parametrize(("name", "num_envs"), [("Navigator-8", 8), ("Pursuit-3", 21)])
def test_fewer_environments_with_more_agents(name, num_envs):
    """64 streams: eight environments of eight agents, 21 of three, which are in two groups."""
    chosen = config.recommended({"env": name}).config
    assert chosen["num_envs"] == num_envs
    built = config.build(chosen)
    ppax.start(built.agent, built.env, built.run.num_steps, jax.random.key(0))


def test_python_and_command_line_choose_alike(tmp_path):
    arguments = ["--total-steps", "4096", "--num-envs", "16", "--eval.episodes", "2", "--no-log.console", "--no-cache"]
    assert main(["train", "gymnax/Catch-bsuite", *arguments, "--run-dir", str(tmp_path / "run")]) == 0
    recorded = tomllib.loads((tmp_path / "run" / "run.toml").read_text())
    run = ppax.recommended("gymnax/Catch-bsuite", num_envs=16, total_steps=4096)
    described = config.describe_run(run.agent, run.env, run.run)
    for path in ("agent", "num_envs", "num_steps", "total_steps"):
        assert config.resolve(recorded)[path] == config.resolve(described)[path]


def test_an_environment_in_python_keeps_its_number():
    env = ppax.make("Pendulum-v1", 24)
    run = ppax.recommended(env, total_steps=1000)
    assert run.env is env
    assert run.run.num_envs == 24
    assert bool(run.agent.normalize_obs)
    ppax.start(run.agent, run.env, run.run.num_steps, jax.random.key(0))


def test_the_line_of_a_run_names_kind_and_sizes(capsys, tmp_path):
    arguments = ["--total-steps", "256", "--num-envs", "2", "--num-steps", "32", "--eval.episodes", "1", "--no-cache"]
    main(["train", "gymnasium/Pendulum-v1", *arguments, "--run-dir", str(tmp_path / "run")])
    line = next(line for line in capsys.readouterr().out.splitlines() if "defaults" in line)
    assert line.startswith("continuous control, on the host: 2 environments, 32 steps, 10 epochs")
    assert "observations and rewards normalised" in line


def test_files_and_presets_are_left_as_they_are(capsys, tmp_path):
    arguments = ["--total-steps", "256", "--num-envs", "2", "--eval.episodes", "1", "--no-cache"]
    main(["train", "CartPole-v1", *arguments, "--run-dir", str(tmp_path / "run")])
    assert "defaults of this kind" not in capsys.readouterr().out


def test_invalid_options_are_refused_by_name():
    with pytest.raises(ppax.ConfigError, match="num_envs"):
        ppax.recommended("CartPole-v1", num_envs=0)
    with pytest.raises(ppax.ConfigError, match="num_steps"):
        ppax.recommended("CartPole-v1", num_steps=0)
    with pytest.raises(ppax.ConfigError, match="CartPole-v1"):
        ppax.recommended("CartPol-v1")
