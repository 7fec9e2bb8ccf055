"""Clipped actions: bounds of the space, what the environment receives, run files, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
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
        wrapped = clip_actions(env, 1.5)
        start = wrapped.reset(jax.random.key(0))
        np.testing.assert_array_equal(wrapped.step(start.state, given, jax.random.key(0)).obs, [1.5, -1.5, 0.25])


def test_bounds_are_narrowed():
    np.testing.assert_array_equal(narrowed(BOX, 1.5).low, np.float32([-1.5, -0.2, -1.5]))
    np.testing.assert_array_equal(narrowed(BOX, 1.5).high, np.float32([1.5, 1.5, 0.5]))
    tree = narrowed(TREE, 1.5)
    assert tree["pair"][0] == spaces.Discrete(2)
    assert tree["pair"][1] == tree["move"] == narrowed(BOX, 1.5)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(1.0, 4.0, "has the bounds 1 and 4, and none .* at least 1"), (-9.0, -5.0, "bounds -9 and -5, .* at least 5")],
)
def test_a_box_outside_the_limit_is_refused(low, high, said):
    """Clipped to the limit its actions would be outside the Box."""
    space = spaces.Box(np.float32([-1.0, low]), np.float32([1.0, high]))
    with pytest.raises(ppax.ConfigError, match=said):
        narrowed(space, 0.5)
    np.testing.assert_array_equal(narrowed(spaces.Box(0.25, 4.0, (1,)), 0.5).low, 0.25)


def test_a_run_file_chooses_it():
    built = config.build({"env": "Pendulum-v1", "num_envs": 2, "clip_actions": 0.5, "env_params": {"gravity": 3.0}})
    assert built.env.action_space == spaces.Box(-0.5, 0.5, (1,), np.float32)
    assert built.env.settings.clip_actions == built.run.clip_actions == 0.5
    assert built.env.env.env.env.gravity == 3.0
    assert ppax.envs.other_params(built.env, {"gravity": 4.0}).env.env.env.gravity == 4.0
    assert config.build(config.describe_run(*built)).env == built.env
    assert built.env.env.limit == 0.5


@pytest.mark.parametrize(
    ("name", "limit", "message"),
    [
        ("CartPole-v1", 1.0, "without a Box; leave it out"),
        ("gymnasium/Pendulum-v1", 1.0, r"wrap it in gymnasium\.wrappers\.ClipAction"),
    ],
)
def test_environments_without_are_refused(name, limit, message):
    with pytest.raises(ppax.ConfigError, match=message):
        ppax.make(name, 2, clip_actions=limit)
    with pytest.raises(ppax.ConfigError, match=r"clip_actions = 0\.0: must be above 0"):
        config.resolve({"clip_actions": 0.0})
