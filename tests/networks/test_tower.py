"""Towers: options of the actor or the critic alone, in Python, run files and on the command line."""

import dataclasses
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.cli.options import add_train, parse_run
from ppax.networks import Tower, encoders, memories, network

MASKED = ppax.make("CartPole-v1-masked", num_envs=4)
APART = """
[agent.network]
hidden = [8]
layer_norm = true
[agent.network.actor]
memory = { part = "stack", num_layers = 3, cell = { part = "lstm", width = 5 } }
layer_norm = false
[agent.network.critic]
hidden = [16, 4]
activation = "relu"
memory = { part = "gru", width = 6 }
"""
# the environment has a preset, with a memory
WORDS = """--agent.network.memory none --agent.network.hidden 8 --agent.network.layer-norm
    --agent.network.actor.memory stack
    --agent.network.actor.memory.num-layers 3 --agent.network.actor.memory.cell lstm
    --agent.network.actor.memory.cell.width 5 --no-agent.network.actor.layer-norm --agent.network.critic.hidden 16 4
    --agent.network.critic.activation relu --agent.network.critic.memory gru --agent.network.critic.memory.width 6"""


class World:
    """Spaces of an environment, without steps."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (12, 12, 3), np.uint8),
            "chart": spaces.Box(0, 255, (12, 12, 1), np.uint8),
            "sensors": spaces.Dict({"depth": spaces.Box(0, 255, (8, 8, 1), np.uint8)}),
            "speed": spaces.Box(-1.0, 1.0, (2,)),
        }
    )
    action_space = spaces.Discrete(2)


def affine(p, x):
    return x @ p["kernel"] + p["bias"]


def gru(p, h, x):
    """Next state of a GRU of six units, in float64."""
    (x_r, x_z, x_n), (h_r, h_z, h_n) = np.split(affine(p["input"], x), 3), np.split(h @ p["recurrent"], 3)
    r, z = 1 / (1 + np.exp(-x_r - h_r)), 1 / (1 + np.exp(-x_z - h_z))
    return (1 - z) * np.tanh(x_n + r * (h_n + p["bias_n"])) + z * h


def in_python():
    actor = Tower(memory=memories.Stack(memories.LSTM(5), 3), layer_norm=False)
    critic = Tower(hidden=(16, 4), activation="relu", memory=memories.GRU(6))
    return network(MASKED, hidden=(8,), layer_norm=True, actor=actor, critic=critic)


def from_words(words, env="CartPole-v1-masked"):
    plan = parse_run("train", [env, *words.split()], add_train)[1]
    return config.build(plan).agent.network


def test_python_run_files_and_the_command_line_make_the_same_network():
    made = config.build({"env": "CartPole-v1-masked", **tomllib.loads(APART)}).agent.network
    assert made == in_python() == from_words(WORDS)


def test_a_run_file_with_towers_is_read_as_it_was_written():
    plan = config.describe(ppax.PPO(in_python()))
    text = config.to_toml({"env": "CartPole-v1-masked", "agent": plan})
    table = tomllib.loads(text)["agent"]["network"]
    assert table["actor"]["hidden"] == table["critic"]["layer_norm"] == table["critic"]["encoder"]["part"] == "same"
    assert config.build(tomllib.loads(text)).agent.network == in_python()


def test_same_on_the_command_line_takes_the_choice_of_the_network_again():
    net = from_words(WORDS + " --agent.network.critic.hidden same --agent.network.critic.activation same")
    assert (net.critic.hidden, net.critic.activation) == (None, None)
    assert net.init(jax.random.key(0))["critic"]["0"]["kernel"].shape == (2, 8)


def test_what_a_tower_leaves_out_follows_the_network():
    net = dataclasses.replace(in_python(), hidden=(3,), activation="gelu")
    params = jax.eval_shape(net.init, jax.random.key(0))
    assert params["actor"]["0"]["kernel"].shape == (2, 3)
    assert params["critic"]["1"]["kernel"].shape == (16, 4)
    assert "norm" in params["critic"]["0"]
    assert "norm" not in params["actor"]["0"]
    plain = network(MASKED, hidden=(8,), critic=Tower(hidden=()))  # no layers, which is not: left out
    assert set(jax.eval_shape(plain.init, jax.random.key(0))["critic"]) == set()


def test_towers_of_other_sizes_by_hand():
    """The actor has a GRU, the critic none: a carry for the actor alone, and each tower by float64 equations."""
    net = network(
        MASKED, hidden=(4,), actor=Tower(memory=memories.GRU(6)), critic=Tower(hidden=(3,), activation="relu")
    )
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), net.init(jax.random.key(0)))
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    carry = net.initial_carry()
    assert jax.tree.map(np.shape, carry) == {"actor": (6,), "critic": ()}
    obs, first = rng.normal(size=(5, 2)), np.array([False, False, True, False, False])
    x = jax.vmap(net.encode, (None, 0))(params, jnp.asarray(obs, jnp.float32))
    memory = net.remember(params, carry, x, jnp.asarray(first))
    out = jax.vmap(lambda x: net.decide(params, x, None))(memory.features)
    h = np.zeros(6)
    for t in range(5):
        h = gru(p["actor"]["memory"], h * (not first[t]), np.tanh(affine(p["actor"]["0"], obs[t])))
        np.testing.assert_allclose(out.distribution.logits[t], affine(p["policy"], h), rtol=1e-4, atol=1e-5)
        value = affine(p["value"], np.maximum(affine(p["critic"]["0"], obs[t]), 0.0))
        np.testing.assert_allclose(out.value[t], value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(memory.carry["actor"], h, rtol=1e-4, atol=1e-5)
    assert memory.carry["critic"] == ()


def test_default_sizes_count_the_memory_of_a_tower():
    base = {"env": "CartPole-v1-masked", "preset": "none"}
    given = base | {"agent": {"network": {"critic": {"memory": {"part": "gru"}}}}}
    plain = config.completed(base).config["agent"]["minibatch"]["num_minibatches"]
    both = config.completed(given).config["agent"]["minibatch"]["num_minibatches"]
    whole = config.completed({**given, "agent": {"network": {"memory": {"part": "gru"}}}}).config
    assert both == whole["agent"]["minibatch"]["num_minibatches"]
    assert (plain, both) == (8, 8)


# ---------------------------------------------------------------- encoders by entry

CAMERAS = """
[agent.network]
encoders.camera = { part = "impala_cnn", channels = [4, 8] }
encoders.sensors.depth = { part = "flat" }
[agent.network.critic]
encoders.chart = { part = "flat" }
"""


def cameras():
    named = {"camera": encoders.ImpalaCNN((4, 8)), "sensors.depth": encoders.Flat()}
    return network(World, encoders=named, critic=Tower(encoders={"chart": encoders.Flat()}))


def test_encoders_by_entry_from_run_files_equal_those_from_python():
    def build(plan):
        return config.build_agent(plan, SpacesOf).network

    assert build(tomllib.loads(CAMERAS)) == cameras()
    described = config.to_toml({"agent": config.describe(ppax.PPO(cameras()))})
    assert build(tomllib.loads(described)) == cameras()
    kinds = {
        tower: [type(reader.encoder).__name__ for reader in getattr(cameras(), f"{tower}_readers")]
        for tower in ("actor", "critic")
    }
    assert kinds["actor"] == ["ImpalaCNN", "SmallCNN", "Flat", "Flat"]
    assert kinds["critic"] == ["SmallCNN", "Flat", "SmallCNN", "Flat"]  # its own table replaces the network's


class SpacesOf(World):
    """What `build_agent` asks of an environment."""

    sizes = ()
    num_agents = 1


def test_encoders_by_entry_on_the_command_line():
    words = "--agent.network.encoders.front_camera impala_cnn --agent.network.encoders.front_camera.channels 4 8"
    plan = parse_run("train", ["CartPole-v1", "--agent.schedule.part", "constant", *words.split()], add_train)[1]
    assert plan["agent"]["network"]["encoders"] == {
        "front_camera": {"part": "impala_cnn", "channels": [4, 8], "layout": "hwc"}
    }


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"encoders": {"camara": {"part": "flat"}}}, r"network\.encoders: no entry 'camara' .*nearest: camera"),
        (
            {"encoders": {"camera": {"part": "flatt"}}},
            r"agent\.network\.encoders\.camera\.part = 'flatt'.*nearest: flat",
        ),
        ({"encoders": {"camera": "flat"}}, r"agent\.network\.encoders\.camera = 'flat': must be a table"),
        ({"encoders": {"speed": {"part": "small_cnn"}}}, r"a convolution needs an image"),
        ({"critic": {"hiden": [3]}}, r"'agent\.network\.critic\.hiden'; did you mean 'agent\.network\..*hidden'"),
        ({"critic": {"memory": {"part": "gruu"}}}, r"critic\.memory\.part = 'gruu'.*nearest: gru"),
        ({"memory": {"part": "stack", "cell": {"part": "grru"}}}, r"memory\.cell\.part = 'grru'.*nearest: gru"),
        ({"shared": True, "actor": {"hidden": [3]}}, r"network\.shared = true: .*leave out network\.actor"),
    ],
)
def test_tables_that_cannot_be_are_refused(table, named):
    with pytest.raises(ppax.ConfigError, match=named):
        config.build_agent({"agent": {"network": table}}, SpacesOf)
