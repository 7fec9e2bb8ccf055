"""Settings that a run begins from: of a preset, or of the kind of environment; given options have priority."""

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
from ppax.training.loop import check_sizes


class Camera(gymnasium.Env):
    """Continuous control from small images."""

    observation_space = gymnasium.spaces.Box(0, 255, (12, 12, 3), np.uint8)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape, np.uint8), {}

    def step(self, action):
        return np.zeros(self.observation_space.shape, np.uint8), 0.0, False, False, {}


def camera(*shape, num_envs=1):
    """Environments with images of another shape."""
    space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
    return ppax.envs.host(type("Larger", (Camera,), {"observation_space": space}), num_envs)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: ppax.make("CartPole-v1", 2), ("compiled", "discrete", 1, 0)),
        (lambda: ppax.make("Pendulum-v1", 2), ("compiled", "continuous", 1, 1)),
        (lambda: ppax.make("gymnax/Breakout-MinAtar", 2), ("compiled", "image", 1, 0)),
        (lambda: ppax.make("gymnasium/CartPole-v1", 1), ("host", "discrete", 1, 0)),
        (lambda: ppax.make("gymnasium/Pendulum-v1", 1), ("host", "continuous", 1, 1)),
        (lambda: ppax.envs.host(Camera, 1), ("host", "small image", 1, 2)),
        (lambda: camera(36, 35, 3), ("host", "small image", 1, 2)),
        (lambda: camera(36, 40, 3), ("host", "image", 1, 2)),
        (lambda: camera(3, 40, 36), ("host", "image", 1, 2)),  # channels first
    ],
)
def test_kind_is_read_from_spaces_and_backend(make, kind):
    with make() as env:
        assert kind_of(env)[:4] == kind


def test_every_row_of_the_table_has_a_value_for_each_kind_and_names_an_option():
    known = {option.path for option in config.options(PARTS_FOR_ALL)} | {STREAMS, ROWS, NOISE}
    for cell in TABLE:
        assert len(cell.values) == len(COLUMNS) == 7
        assert cell.setting in known
        assert cell.reason


@pytest.mark.parametrize(
    ("make", "gamma"),
    [
        (lambda: ppax.make("CartPole-v1", 2), 0.99),  # 500 steps
        (lambda: ppax.make("CartPole-v1", 2, env_params={"max_steps": 25}), 0.96),
        (lambda: ppax.make("CartPole-v1", 2, env_params={"max_steps": 75}, action_repeat=3), 0.96),
        (lambda: ppax.make("CartPole-v1", 2, env_params={"max_steps": {"low": 5, "high": 50}}), 0.98),
        (lambda: ppax.make("CartPole-v1", 2, env_params={"max_steps": 3}), 0.9),
        (lambda: ppax.make("gymnasium/CartPole-v1", 1), 0.99),
        (lambda: ppax.make("gymnasium/CartPole-v1", 1, env_params={"max_steps": 50}), 0.98),
        (lambda: ppax.make("gymnasium/CartPole-v1", 1, env_params={"max_steps": 50}, action_repeat=2), 0.96),
        (lambda: ppax.envs.host(Camera, 1), 0.99),  # no limit
    ],
)
def test_short_time_limits_lower_gamma(make, gamma):
    with make() as env:
        completed = config.completed({}, env)
        assert completed.config["agent"].get("gamma", 0.99) == gamma
        assert ("gamma" in completed.text) == (gamma < 0.99)
        given = config.completed({"agent": {"gamma": 0.995}}, env)
        assert given.config["agent"]["gamma"] == 0.995
        assert "gamma" not in given.text


def test_given_options_have_priority():
    given = {"env": "CartPole-v1", "num_steps": 64, "agent": {"learning_rate": 7e-4, "normalize_obs": False}}
    chosen = config.completed(given).config
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


class Rover(Camera):
    """Images beside a counter of thousands and a direction."""

    observation_space = gymnasium.spaces.Dict(
        camera=gymnasium.spaces.Box(0, 255, (12, 12, 3), np.uint8),
        steps=gymnasium.spaces.Box(0, 4000, (), np.int32),
        direction=gymnasium.spaces.Discrete(4),
    )

    def reset(self, *, seed=None, options=None):
        gymnasium.Env.reset(self, seed=seed)
        self.steps = 0
        return self.observation_space.sample() | {"steps": np.int32(0)}, {}

    def step(self, action):
        self.steps += 100
        return self.observation_space.sample() | {"steps": np.int32(self.steps)}, 0.0, False, self.steps == 2000, {}


class Turning(Rover):
    """Images beside a direction: no number that has a scale."""

    observation_space = gymnasium.spaces.Dict({k: v for k, v in Rover.observation_space.items() if k != "steps"})


def test_numbers_beside_images_are_normalised_and_images_are_not():
    with ppax.envs.host(Rover, 2) as env:
        completed = config.completed({}, env)
        assert completed.config["agent"]["normalize_obs"] is True
        assert completed.config["agent"]["normalization"]["skip"] == ["camera"]
        assert "observations but images normalised" in completed.text
        result = ppax.build(env, num_steps=16, total_steps=32, log={"console": False}).fit()
    stats = result.state.learner.obs_stats
    assert {name for name, one in stats.items() if jax.tree.leaves(one)} == {"steps"}
    assert float(stats["steps"].mean.high) == 750.0  # of 0, 100, ... 1500


def test_images_alone_or_beside_categories_are_not_normalised():
    for made in (Camera, Turning):
        with ppax.envs.host(made, 1) as env:
            agent = config.completed({}, env).config["agent"]
        assert agent["normalize_obs"] is False
        assert "normalization" not in agent


@pytest.mark.parametrize(
    "given", [{"normalize_obs": False}, {"normalization": {"skip": ["steps"]}}, {"normalization": {"freeze_obs": 10}}]
)
def test_given_options_of_normalisation_have_priority_beside_images(given):
    with ppax.envs.host(Rover, 1) as env:
        agent = config.completed({"agent": given}, env).config["agent"]
    assert agent.get("normalization", {}) == given.get("normalization", {})
    assert agent["normalize_obs"] is False


@pytest.mark.parametrize("joints", [1, 2, 6])
def test_the_noise_of_all_actions_together_is_that_of_one(joints):
    """Expected square of the norm of the initial noise: 1 whatever the number of actions."""
    with ppax.envs.host(lambda: Arm(joints), 1) as env:
        log_std = config.completed({}, env).config["agent"]["network"]["log_std_init"]
    assert joints * math.exp(log_std) ** 2 == pytest.approx(1.0, rel=2e-3)
    assert math.copysign(1.0, log_std) == (1.0 if joints == 1 else -1.0)  # 0.0, not -0.0


@pytest.mark.parametrize("network", [{"distribution": "beta"}, {"log_std_init": -2.0}, {"part": "composed"}])
def test_other_distributions_and_deviations_are_kept(network):
    with ppax.envs.host(lambda: Arm(2), 1) as env:
        chosen = config.completed({"agent": {"network": network}}, env).config
    assert {name: chosen["agent"]["network"][name] for name in network} == network
    assert ("log_std_init" in chosen["agent"]["network"]) == ("distribution" not in network)


def test_discrete_actions_and_cameras_have_no_deviation_of_the_table():
    assert "network" not in config.completed({"env": "CartPole-v1"}).config["agent"]
    with ppax.envs.host(Camera, 1) as env:
        assert "network" not in config.completed({}, env).config["agent"]


def test_given_minibatches_are_kept():
    chosen = config.completed({"env": "CartPole-v1", "agent": {"minibatch": {"num_minibatches": 2}}}).config
    assert chosen["agent"]["minibatch"]["num_minibatches"] == 2


def test_small_images_on_the_host_take_more_gradient_steps():
    """128 steps of 8 environments, in minibatches of 64 or 256 rows."""
    for shape, epochs, parts in (((7, 7, 3), 10, 16), ((84, 84, 4), 4, 4)):
        with camera(*shape, num_envs=8) as env:
            chosen = config.completed({}, env)
        assert chosen.config["agent"]["num_epochs"] == epochs
        assert chosen.config["agent"]["minibatch"]["num_minibatches"] == parts
        assert chosen.text.startswith("small images, on the host" if parts == 16 else "images, on the host")


def test_columns_differ_where_the_table_does():
    """The same task, compiled and on the host: other numbers of streams, as docs/settings.md lists them."""
    chosen = {name: config.completed({"env": name}).config for name in ("CartPole-v1", "gymnasium/CartPole-v1")}
    assert [chosen[name]["num_envs"] for name in chosen] == [64, 8]
    assert [chosen[name]["num_steps"] for name in chosen] == [32, 256]


def test_options_of_a_part_leave_with_it():
    given = {"env": "CartPole-v1", "agent": {"loss": {"part": "dpo"}, "schedule": {"part": "constant"}}}
    chosen = config.completed(given).config
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
        ({"num_envs": 8, "num_steps": 256, "agent.recompute.part": "minibatch"}, 1, 64, 8),  # 8 sequences
        ({"num_envs": 8, "num_steps": 32, "agent.seq_len": "none"}, 1, 512, 1),
        ({"num_envs": 8, "num_steps": 32, "agent.network.memory.part": "gru", "agent.seq_len": "none"}, 1, 64, 4),
        ({"num_envs": 1, "num_steps": 8, "agent.seq_len": 16}, 1, 512, 1),  # refused when the agent is checked
        ({"num_envs": 10**12, "num_steps": 32}, 1, 32 * 10**6, 10**6),  # found without trying all smaller numbers
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
    built = config.build(config.completed(given | {"groups": groups, "num_envs": 3}).config)
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
    chosen = config.completed({"env": name}).config
    assert chosen["num_envs"] == num_envs
    built = config.build(chosen)
    ppax.start(built.agent, built.env, built.run.num_steps, jax.random.key(0))


SMALL = {"total_steps": 64, "num_envs": 2, "num_steps": 8, "eval": {"episodes": 1}, "log": {"console": False}}


def train(*arguments):
    """Run `ppax train` with SMALL over its target; return the run file that it records."""
    *target, run_dir = map(str, arguments)
    small = [f"--{path.replace('_', '-')}={value}" for path, value in config.flatten(SMALL)]
    assert main(["train", *target, *small, "--no-cache", "--run-dir", run_dir]) == 0
    return tomllib.loads((arguments[-1] / "run.toml").read_text())


@pytest.mark.parametrize(
    ("env", "preset"),
    [("CartPole-v1", None), ("gymnasium/Pendulum-v1", None), ("Pendulum-v1", "Pendulum-v1")],
)
@pytest.mark.filterwarnings("ignore:preset .* is tuned")
def test_command_line_run_file_and_python_have_the_same_settings(env, preset, tmp_path):
    """The run files that they record are equal to the letter."""
    (tmp_path / "mine.toml").write_text(f'env = "{env}"')
    recorded = train(env, tmp_path / "command")
    assert train(tmp_path / "mine.toml", tmp_path / "file") == recorded
    ppax.build(env, **SMALL).fit(tmp_path / "python")
    assert tomllib.loads((tmp_path / "python" / "run.toml").read_text()) == recorded
    assert recorded["preset"] == (preset or "none")
    assert train(tmp_path / "command" / "run.toml", tmp_path / "again") == recorded
    of_file = tomllib.loads(config.to_toml(config.describe_run(*ppax.build(tmp_path / "mine.toml", **SMALL))))
    of_file["agent"]["compute_dtype"] = recorded["agent"]["compute_dtype"]  # decided when a run begins
    assert of_file == recorded


def test_a_run_file_gets_the_defaults_by_kind_of_its_environment():
    by_kind = config.completed({"env": "CartPole-v1"}).config
    assert config.resolve(by_kind)["num_steps"] == 32
    file = {"env": "CartPole-v1", "num_envs": 8, "agent": {"loss": {"part": "spo"}}}
    chosen = config.completed(file).config
    assert (chosen["num_steps"], chosen["num_envs"], chosen["agent"]["ent_coef"]) == (32, 8, 0.01)
    assert chosen["agent"]["loss"] == {"part": "spo"}  # clip_eps of another loss is no default of this one


def test_a_run_file_may_name_a_preset_or_none():
    of_env = config.completed({"env": "Pendulum-v1", "num_steps": 64}).config
    assert (of_env["preset"], of_env["num_envs"], of_env["num_steps"]) == ("Pendulum-v1", 16, 64)
    assert of_env == config.completed({"env": "Pendulum-v1", "preset": "Pendulum-v1", "num_steps": 64}).config
    for none in (None, "none"):
        by_kind = config.completed({"env": "Pendulum-v1", "preset": none}).config
        assert (by_kind["preset"], by_kind["num_envs"]) == (None, 64)
    other = config.completed({"env": "Acrobot-v1", "preset": "styles/rl8"}).config
    assert (other["env"], other["agent"]["gamma"]) == ("Acrobot-v1", 0.98)
    with pytest.raises(ppax.ConfigError, match=r"no preset 'Pendulum'; did you mean 'Pendulum-v1'\?"):
        config.completed({"env": "Pendulum-v1", "preset": "Pendulum"})


def test_a_whole_configuration_is_left_as_it_is():
    """The file of a recorded run repeats it, also with settings that nobody would choose, and makes no environment."""
    by_hand = config.resolve({"env": "Pendulum-v1", "num_envs": 3}) | {"env": "gymnasium/NoSuchEnvironment-v0"}
    assert config.completed(by_hand).config == by_hand


def test_presets_on_the_command_line(capsys, tmp_path):
    assert train("Pendulum-v1", "--preset", "none", tmp_path / "none")["agent"]["gamma"] == 0.99
    assert "preset Pendulum-v1" not in capsys.readouterr().out
    other = train("CartPole-v1", "--preset=styles/rl8", tmp_path / "style")
    assert (other["preset"], other["agent"]["gamma"]) == ("styles/rl8", 0.98)
    out = capsys.readouterr().out
    assert "preset styles/rl8: not measured" in out
    assert "preset styles/rl8 is tuned for 1,000,000 steps, this run has 64; preset = " in out
    assert main(["train", "CartPole-v1", "--preset", "styles/rl"]) == 2
    assert "did you mean 'styles/rl8'" in capsys.readouterr().err


def test_a_preset_at_its_own_length_needs_no_word():
    assert config.completed({"env": "Pendulum-v1"}).text == ""


def test_an_environment_in_python_keeps_its_number():
    env = ppax.make("Acrobot-v1", 24)
    run = ppax.build(env, total_steps=1000)
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


def test_invalid_options_are_refused_by_name():
    with pytest.raises(ppax.ConfigError, match="num_envs"):
        ppax.build("CartPole-v1", num_envs=0)
    with pytest.raises(ppax.ConfigError, match="num_steps"):
        ppax.build("CartPole-v1", num_steps=0)
    with pytest.raises(ppax.ConfigError, match="CartPole-v1"):
        ppax.build("CartPol-v1")
    with pytest.raises(ppax.ConfigError, match=r"preset = \['none'\]: must be the name of a preset, or 'none'"):
        ppax.build({"env": "CartPole-v1", "preset": ["none"]})
    with pytest.raises(ppax.ConfigError, match="seq_len = 16 does not divide num_steps = 8"):
        ppax.build("CartPole-v1", preset="none", num_envs=1, num_steps=8, agent={"seq_len": 16}).fit()
    assert ppax.build("CartPole-v1", preset="none", agent={"seq_len": "none"}).agent.seq_len is None
