"""Clipped actions: bounds of the space, what the environment receives, run files, refusals."""

import json
import math

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.cli import main
from ppax.core.types import EnvReset, EnvStep
from ppax.envs.wrappers.clip_actions import clip_actions, narrowed

BOX = spaces.Box(np.array([-np.inf, -0.2, -3.0], np.float32), np.array([np.inf, 5.0, 0.5], np.float32))
TREE = spaces.Dict({"move": BOX, "pair": spaces.Tuple((spaces.Discrete(2), BOX))})


@ppax.part
class Mirror:
    """Environment that observes the last action's elements."""

    tree: bool = ppax.static(default=False)
    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    num_agents = None

    @property
    def action_space(self):
        return TREE if self.tree else BOX

    def reset(self, key):
        return EnvReset(jnp.zeros(()), jnp.zeros(3))

    def step(self, state, action, key):
        seen = action["pair"][1] if self.tree else action
        return EnvStep(state, seen, jnp.float32(0.0), jnp.bool_(False), jnp.bool_(False))


def test_the_environment_gets_clipped_actions():
    action = jnp.array([9.0, -9.0, 0.25])
    for env, given in ((Mirror(), action), (Mirror(True), {"move": action, "pair": (jnp.int32(1), action)})):
        wrapped = clip_actions(env, (-1.5, 2.0))
        start = wrapped.reset(jax.random.key(0))
        np.testing.assert_array_equal(wrapped.step(start.state, given, jax.random.key(0)).obs, [2.0, -1.5, 0.25])


def test_bounds_are_narrowed():
    np.testing.assert_array_equal(narrowed(BOX, (-1.5, 2.0)).low, np.float32([-1.5, -0.2, -1.5]))
    np.testing.assert_array_equal(narrowed(BOX, (-1.5, 2.0)).high, np.float32([2.0, 2.0, 0.5]))
    tree = narrowed(TREE, (-1.5, 2.0))
    assert tree["pair"][0] == spaces.Discrete(2)
    assert tree["pair"][1] == tree["move"] == narrowed(BOX, (-1.5, 2.0))


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (1.0, 4.0, r"has the bounds 1 and 4, and none .* nearest valid value: \[-0\.5, 1\]"),
        (-9.0, -5.0, r"bounds -9 and -5, .* nearest valid value: \[-5, 0\.5\]"),
    ],
)
def test_a_box_outside_the_bounds_is_refused(low, high, said):
    """Clipped to the bounds its actions would be outside the Box."""
    space = spaces.Box(np.float32([-1.0, low]), np.float32([1.0, high]))
    with pytest.raises(ppax.ConfigError, match=said):
        narrowed(space, (-0.5, 0.5))
    np.testing.assert_array_equal(narrowed(spaces.Box(0.25, 4.0, (1,)), (-0.5, 0.5)).low, 0.25)


@pytest.mark.parametrize("name", ["Pendulum-v1", "gymnasium/Pendulum-v1"])
@pytest.mark.parametrize(("given", "bounds"), [(0.5, (-0.5, 0.5)), ([0.5], (-0.5, 0.5)), ([-0.25, 1.0], (-0.25, 1.0))])
def test_a_run_file_chooses_it(name, given, bounds):
    built = config.build({"env": name, "num_envs": 2, "clip_actions": given})
    assert built.env.action_space == spaces.Box(*bounds, (1,), np.float32)
    assert built.env.settings.clip_actions == built.run.clip_actions == bounds
    described = config.describe_run(*built)
    assert described["clip_actions"] == list(bounds)
    assert config.build(described).env.action_space == built.env.action_space


def test_it_stays_where_parameters_change():
    env = ppax.make("Pendulum-v1", 2, clip_actions=0.5, env_params={"gravity": 3.0})
    assert env.env.env.env.gravity == 3.0
    changed = ppax.envs.other_params(env, {"gravity": 4.0})
    assert changed.env.env.env.gravity == 4.0
    assert (changed.env.low, changed.env.high) == (-0.5, 0.5)


def test_the_command_line_takes_one_number_or_two(capsys):
    for given, bounds in ((["0.5"], [-0.5, 0.5]), (["-0.25", "1"], [-0.25, 1.0])):
        assert main.main(["train", "Pendulum-v1", "--clip-actions", *given, "--dry-run", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["config"]["clip_actions"] == bounds


SEEN = []


class Listener(gymnasium.Env):
    """Environment that notes the actions of its steps; episodes of four."""

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = TREE

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        SEEN.append(action)
        self.time += 1
        return np.zeros(3, np.float32), 0.0, self.time == 4, False, {}


class Plain(Listener):
    action_space = BOX


def steps_of(make):
    """Step environments on the host with actions far outside of their Box, and return what they got."""
    with ppax.envs.host(make, 2, clip_actions=(-1.5, 2.0)) as env:
        space = env.action_space
        env.host.reset([0, 1])
        SEEN.clear()
        far = np.tile(np.float32([9.0, -9.0, 0.25]), (2, 1))
        env.host.send(0, [far] if make is Plain else [far, np.ones(2, np.int32), far])
        env.host.receive(0)
    return space, list(SEEN)


def test_an_environment_on_the_host_gets_clipped_actions():
    space, seen = steps_of(Plain)
    assert space == narrowed(BOX, (-1.5, 2.0))
    np.testing.assert_array_equal(seen, [[2.0, -1.5, 0.25]] * 2)
    space, seen = steps_of(Listener)
    assert space == narrowed(TREE, (-1.5, 2.0))
    for action in seen:
        assert action["pair"][0] == 1
        np.testing.assert_array_equal([action["move"], action["pair"][1]], [[2.0, -1.5, 0.25]] * 2)


def test_a_vector_of_gymnasium_gets_clipped_actions():
    SEEN.clear()
    with ppax.envs.host(gymnasium.vector.SyncVectorEnv([Plain] * 2), clip_actions=[-1.5, 2.0]) as env:
        assert env.action_space == narrowed(BOX, (-1.5, 2.0))
        env.host.reset([0, 1])
        env.host.send(0, [np.tile(np.float32([9.0, -9.0, 0.25]), (2, 1))])
        env.host.receive(0)
    np.testing.assert_array_equal(SEEN, [[2.0, -1.5, 0.25]] * 2)


def test_a_run_on_the_host_acts_within_the_bounds():
    """Half of the actions of a new policy with standard deviation 3 are outside: they are at the bounds."""
    env = ppax.envs.host(Plain, 4, clip_actions=(-1.5, 2.0), info_metrics=())
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(4,), log_std_init=math.log(3.0)))
    SEEN.clear()
    run = ppax.fit(agent, env, total_steps=64, num_steps=16, seed=0, log=ppax.Log(console=False))
    first = np.array(SEEN)[:, 0]
    assert first.min() == -1.5
    assert first.max() == 2.0
    assert run.policy().act(np.full(3, 9.0, np.float32)).min() >= -1.5


@pytest.mark.parametrize("name", ["CartPole-v1", "gymnasium/CartPole-v1"])
def test_environments_without_a_box_are_refused(name):
    with pytest.raises(ppax.ConfigError, match=r"clip_actions = \[-1, 1\]: actions are Discrete.*; leave it out"):
        ppax.make(name, 2, clip_actions=1.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (0.0, r"clip_actions = 0\.0: must be above 0"),
        ([-1.0], r"clip_actions = -1\.0: must be above 0"),
        ([2.0, -1.0], r"clip_actions = \[2, -1\]: must be \[low, high\] .*; nearest valid value: \[-1, 2\]"),
        ([1.0, 1.0], r"clip_actions = \[1, 1\]: must be \[low, high\] with low below high$"),
        ([1.0, 2.0, 3.0], "must be two numbers"),
        ([True], "must be two numbers"),
        ("wide", "must be two numbers"),
        ([-1.0, float("inf")], "must be a finite number"),
    ],
)
def test_other_bounds_are_refused(given, message):
    with pytest.raises(ppax.ConfigError, match=message):
        config.resolve({"clip_actions": given})
    with pytest.raises(ppax.ConfigError, match=message):
        ppax.make("Pendulum-v1", 2, clip_actions=given)
