"""Streams and next-step autoreset."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppax.envs import VectorEnv
from support.worlds import Counter, Team


def play(env, num_steps, seed=0):
    key, reset_key = jax.random.split(jax.random.key(seed))
    state, obs, _ = env.reset(reset_key)
    rows = []
    step = jax.jit(env.step)
    for step_key in jax.random.split(key, num_steps):
        out = step(state, jnp.zeros(env.num_streams, jnp.int32), step_key)
        rows.append((obs, out))
        state, obs = out.state, out.obs
    return rows


@pytest.mark.parametrize("terminates", [True, False])
def test_the_final_observation_is_the_next_one_and_the_reset_step_is_invalid(terminates):
    rows = play(VectorEnv(Counter(3, terminates), 2), 9)
    times = [float(obs[0, 0]) for obs, _ in rows]
    # three steps, then an invalid row with the final observation
    assert times == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert [bool(out.valid[0]) for _, out in rows] == [True, True, True, False] * 2 + [True]
    assert [bool(out.first[0]) for _, out in rows] == [False, False, False, True] * 2 + [False]
    ended = [bool((out.terminated if terminates else out.truncated)[0]) for _, out in rows]
    assert ended == [False, False, True, False] * 2 + [False]
    assert not any(bool((out.truncated if terminates else out.terminated).any()) for _, out in rows)
    assert [float(out.reward[0]) for _, out in rows] == [1, 2, 3, 0] * 2 + [1]


def test_every_reset_is_fresh():
    rows = play(VectorEnv(Counter(1), 4), 40)
    draws = {float(obs[i, 1]) for obs, out in rows for i in range(4)}
    assert len(draws) >= 4 * 20  # a new number in each of the 20 episodes of each environment


def test_environments_reset_independently():
    env = VectorEnv(Counter(3), 2)
    state, _, _ = env.reset(jax.random.key(0))
    state = state._replace(env=state.env._replace(time=jnp.array([2, 0], jnp.int32)))
    out = env.step(state, jnp.zeros(2, jnp.int32), jax.random.key(1))
    assert out.terminated.tolist() == [True, False]
    out = env.step(out.state, jnp.zeros(2, jnp.int32), jax.random.key(2))
    assert out.obs[:, 0].tolist() == [0.0, 2.0]
    assert out.valid.tolist() == [False, True]


def test_an_agent_that_ended_is_absent_until_the_environment_resets():
    rows = play(VectorEnv(Team(), 2), 7)
    valid = np.array([np.asarray(out.valid).reshape(2, 3)[0] for _, out in rows])
    # agent i acts for 2 + i steps, at most 4, then one reset row for all
    assert valid.T.tolist() == [
        [True, True, False, False, False, True, True],
        [True, True, True, False, False, True, True],
        [True, True, True, True, False, True, True],
    ]
    reward = np.array([np.asarray(out.reward).reshape(2, 3)[0] for _, out in rows])
    assert (reward == valid).all()  # rewards are 0 while absent
    first = np.array([np.asarray(out.first).reshape(2, 3)[0] for _, out in rows])
    assert first.any(axis=1).tolist() == [False] * 4 + [True, False, False]
    ended = np.array([np.asarray(out.terminated | out.truncated).reshape(2, 3)[0] for _, out in rows])
    assert ended.sum(axis=0).tolist() == [2, 1, 1]  # each end is reported once


def test_agents_are_flattened_in_order():
    env = VectorEnv(Team(), 2)
    _, obs, _ = env.reset(jax.random.key(0))
    assert env.num_streams == 6
    assert obs[:, 1].tolist() == [0, 1, 2, 0, 1, 2]
