"""Rooms of XLand-MiniGrid against scripted walks; needs the extra xminigrid."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.envs.suites import registry

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # the library's own
    pytest.mark.usefixtures("lenient"),
    pytest.mark.skipif(not registry.installed("xminigrid"), reason='pip install "ppax[xminigrid]"'),
]
FORWARD, RIGHT = 0, 1
EMPTY, FLOOR, WALL, GOAL = 0, 1, 2, 6  # tiles
GREEN = 2


@pytest.fixture
def lenient():
    with jax.debug_key_reuse(False), jax.numpy_rank_promotion("allow"):
        yield


def walk(env, actions):
    now, step, seen = jax.jit(env.reset)(jax.random.key(0)), jax.jit(env.step), []
    for action in actions:
        now = step(now.state, action, jax.random.key(1))
        seen.append(now)
    return seen


def test_the_goal_terminates_with_its_reward_and_the_limit_truncates():
    env = ppax.make("xminigrid/MiniGrid-Empty-5x5", 1).env
    goal = walk(env, [FORWARD, FORWARD, RIGHT, FORWARD, FORWARD])
    assert [bool(x.terminated) for x in goal] == [False] * 4 + [True]
    assert not any(bool(x.truncated) for x in goal)
    np.testing.assert_allclose(goal[-1].reward, 1.0 - 0.9 * 5 / 100)  # 4 * 5 * 5 steps at most
    cut = walk(ppax.make("xminigrid/MiniGrid-Empty-5x5", 1, env_params={"max_steps": 3}).env, [RIGHT] * 3)
    assert [bool(x.truncated) for x in cut] == [False, False, True]
    assert not any(bool(x.terminated) for x in cut)


def test_planes_are_the_tiles_and_colours_of_the_view():
    """In an empty room of 5 x 5 the agent in the corner looks to the right: the goal is 2 ahead and 2 to its right."""
    env = ppax.make("xminigrid/MiniGrid-Empty-5x5", 1).env
    obs = np.asarray(jax.jit(env.reset)(jax.random.key(0)).obs)
    assert obs.dtype == np.uint8
    assert obs.shape == env.observation_space.shape == (7, 7, 13 + 12)
    assert (obs[..., :13].sum(-1) == 1).all()
    assert (obs[..., 13:].sum(-1) == 1).all()
    tiles, colours = obs[..., :13].argmax(-1), obs[..., 13:].argmax(-1)
    expected = np.full((7, 7), EMPTY)
    expected[3:, 2:] = WALL  # the agent is at the bottom, in the middle
    expected[4:, 3:6] = FLOOR
    expected[4, 5] = GOAL
    np.testing.assert_array_equal(tiles, expected)
    assert colours[4, 5] == GREEN


def test_rules_are_drawn_at_every_reset(monkeypatch):
    """Two sets of rules with different first tiles: each reset has the tiles of one of them."""
    module = importlib.import_module("xminigrid.benchmarks")
    tiles = jnp.array([[[3, 1], [0, 0]], [[4, 2], [0, 0]]], jnp.uint8)  # a red ball; a green square
    encoded = importlib.import_module("xminigrid.core.goals").EmptyGoal().encode()
    rule = importlib.import_module("xminigrid.core.rules").EmptyRule().encode()[None]
    both = module.Benchmark(
        goals=jnp.stack([encoded] * 2), rules=jnp.stack([rule] * 2), init_tiles=tiles, num_rules=jnp.ones(2, jnp.uint8)
    )
    monkeypatch.setattr(importlib.import_module("xminigrid"), "load_benchmark", lambda name: both)
    env = ppax.make("xminigrid/XLand-MiniGrid-R1-9x9", 1, env_params={"benchmark": "trivial-21k"}).env
    reset = jax.jit(env.reset)
    found = [np.unique(np.asarray(reset(jax.random.key(i)).state.state.grid)[..., 0]).tolist() for i in range(12)]
    assert sorted({tuple(x) for x in found}) == [(FLOOR, WALL, 3), (FLOOR, WALL, 4)]


def test_wrong_parameters_are_refused():
    with pytest.raises(ppax.ConfigError, match=r"foo.*height, max_steps, view_size, width"):
        ppax.make("xminigrid/MiniGrid-Empty-5x5", 1, env_params={"foo": 1})
    with pytest.raises(ppax.ConfigError, match=r"env_params.benchmark: must be one of trivial-21k"):
        ppax.make("xminigrid/XLand-MiniGrid-R1-9x9", 1).env.reset(jax.random.key(0))
    with pytest.raises(ppax.ConfigError, match=r"benchmark = 'x': must be one of trivial-21k"):
        ppax.make("xminigrid/XLand-MiniGrid-R1-9x9", 1, env_params={"benchmark": "x"})
    with pytest.raises(ppax.ConfigError, match=r"benchmark = 'trivial-21k': .* has a goal of its own; leave it out"):
        ppax.make("xminigrid/MiniGrid-Empty-5x5", 1, env_params={"benchmark": "trivial-21k"})
