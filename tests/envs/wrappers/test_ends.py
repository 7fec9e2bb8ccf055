"""Episodes at the ends of ranges: their share, their numbers, and what they add to the buffers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.core.types import EnvReset, EnvStep
from ppax.envs import ActionRepeat, AdaptiveRanges, TimeLimit, VectorEnv, other_params, with_schedule
from ppax.envs.wrappers.boundary_sampling import count_name, total_name
from ppax.envs.wrappers.wrapper import render

RULE = AdaptiveRanges(("env.x", "env.y"), (-9.0, -9.0), (9.0, 9.0), widen_at=1.0, narrow_at=0.0, share=0.4)


@ppax.part
class Two:
    """Two agents, whose rewards are 1 and 3 in each step."""

    x: float = ppax.number("first number", default=0.0)
    y: float = ppax.number("second number", default=0.0)
    num_agents = 2

    observation_space = spaces.Box(-9.0, 9.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, key):
        return EnvReset(jnp.zeros(()), self._obs())

    def step(self, state, action, key):
        none = jnp.zeros(2, bool)
        return EnvStep(state, self._obs(), jnp.array([1.0, 3.0]), none, none)

    def _obs(self):
        return jnp.broadcast_to(jnp.stack([jnp.float32(self.x), jnp.float32(self.y)]), (2, 2))

    def render(self, state):
        return np.full((2, 2, 3), int(self.x + 5), np.uint8)


def two(num_envs, around=lambda env: env):
    env = other_params(VectorEnv(TimeLimit(Two(), 4), num_envs), {"x": {"low": -2.0, "high": 1.0}})
    env = with_schedule(other_params(env, {"y": {"low": 3.0, "high": 5.0}}), RULE)
    return dataclasses.replace(env, env=around(env.env))


def test_a_share_of_episodes_is_drawn_at_each_end_and_the_others_between():
    env = two(4000)
    state, obs, _ = env.reset(jax.random.key(0))
    x, y = np.asarray(obs).reshape(4000, 2, 2)[:, 0].T
    at = [x == -2.0, x == 1.0, y == 3.0, y == 5.0]
    # a share of 0.4 for four ends, 400 of 4000 each, with a standard deviation of 19
    np.testing.assert_allclose([one.sum() for one in at], 400, atol=76)
    assert np.sum(at, axis=0).max() == 1  # the other number is drawn from its whole range
    np.testing.assert_array_equal(np.asarray(state.env.end), np.where(np.any(at, axis=0), np.argmax(at, axis=0), 4))
    between = x[~(at[0] | at[1])]
    np.testing.assert_allclose([between.min(), between.mean(), between.max()], [-2.0, -0.5, 1.0], atol=0.06)


@pytest.mark.parametrize("repeats", [1, 2])
def test_the_return_of_each_agent_counts_at_the_end_of_its_episode_alone(repeats):
    env = two(64, lambda env: ActionRepeat(env, 2) if repeats == 2 else env)
    state, _, _ = env.reset(jax.random.key(0))
    inner = state.env.inner if repeats == 2 else state.env
    for step in range(4 // repeats):
        out = jax.jit(env.step)(state, jnp.zeros(128, jnp.int32), jax.random.key(step))
        state = out.state
    assert np.asarray(out.truncated).all()
    for end in range(4):
        here = np.repeat(np.asarray(inner.end) == end, 2)
        assert 0 < here.sum() < 128
        np.testing.assert_array_equal(out.metrics[count_name(end)], here)
        np.testing.assert_array_equal(out.metrics[total_name(end)], here * np.tile([4.0, 12.0], 64))


def test_ends_of_whole_numbers_between_two_of_them_are_rounded_and_counted():
    rule = AdaptiveRanges(("env.length",), (1.0,), (9.0,), widen_at=1.0, narrow_at=0.0, share=0.5)
    env = ppax.make("CueCorridor-10", 4000, env_params={"length": {"low": 3, "high": 5}}, schedule=rule)
    moved = dataclasses.replace(env.env.env, low={"length": 2.6}, high={"length": 5.3})
    env = dataclasses.replace(env, env=dataclasses.replace(env.env, env=moved))  # from 3 to 5
    state, _, _ = env.reset(jax.random.key(0))
    lengths = np.asarray(state.env.inner.numbers["length"])
    # a quarter of the episodes at each end on purpose, and a third of the other half
    shares = [(lengths == length).mean() for length in (3, 4, 5)]
    np.testing.assert_allclose(shares, [5 / 12, 1 / 6, 5 / 12], atol=0.04)
    out = jax.jit(env.step)(state, jnp.zeros(4000, jnp.int32), jax.random.key(1))
    for end in (0, 1):
        np.testing.assert_array_equal(out.metrics[count_name(end)], np.asarray(state.env.end) == end)
        assert 900 < out.metrics[count_name(end)].sum() < 1100


def test_an_episode_from_before_the_move_of_its_end_counts_nowhere():
    env = two(64)
    state, _, _ = env.reset(jax.random.key(0))
    randomised = env.env.env
    moved = dataclasses.replace(randomised, low={"x": -2.5, "y": 3.0})
    out = dataclasses.replace(env, env=dataclasses.replace(env.env, env=moved)).step(
        state, jnp.zeros(128, jnp.int32), jax.random.key(1)
    )
    at = np.asarray(state.env.end)
    assert (at == 0).any()
    assert not np.asarray(out.metrics[count_name(0)]).any()
    np.testing.assert_array_equal(out.metrics[count_name(2)], np.repeat(at == 2, 2))


def test_it_is_drawn_with_the_numbers_of_the_episode():
    env = two(8)
    state, obs, _ = env.reset(jax.random.key(0))
    picture = render(env.env, jax.tree.map(lambda x: x[3], state.env))
    assert picture[0, 0, 0] == int(float(obs[6, 0]) + 5)
