"""Memory tasks: observations and rewards by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.envs import PartialView, TimeLimit, builtin


@pytest.mark.parametrize("turn", [0, 1])
def test_the_cue_is_shown_once_and_decides_at_the_fork(turn):
    env = builtin.CueCorridor(length=3)
    for seed in range(4):
        state, obs = env.reset(jax.random.key(seed))[:2]
        seen, rewards, ends = [np.asarray(obs)], [], []
        for t in range(4):
            out = env.step(state, jnp.int32(turn if t == 3 else 1 - turn), jax.random.key(9))
            state, seen = out.state, [*seen, np.asarray(out.obs)]
            rewards.append(float(out.reward))
            ends.append(bool(out.terminated))
        side = 1 if seen[0][0] > 0 else 0
        np.testing.assert_array_equal(seen[:4], [[2 * side - 1, 0], [0, 0], [0, 0], [0, 1]])
        assert rewards == [0, 0, 0, 1 if turn == side else -1]
        assert ends == [False, False, False, True]


def test_cues_are_fair():
    cues = jax.vmap(lambda key: builtin.CueCorridor().reset(key).obs[0])(jax.random.split(jax.random.key(0), 4000))
    assert set(np.unique(cues)) == {-1, 1}
    assert abs(cues.mean()) < 4 / np.sqrt(4000)


def test_a_partial_view_changes_observations_only():
    whole = TimeLimit(builtin.CartPole(), 500)
    part = PartialView(whole, (0, 2))
    assert part.observation_space.shape == (2,)
    np.testing.assert_array_equal(part.observation_space.high, whole.observation_space.high[[0, 2]])
    (state, obs), (other, all_of_it) = (env.reset(jax.random.key(0))[:2] for env in (part, whole))
    for action in (0, 1, 1):
        np.testing.assert_array_equal(obs, all_of_it[jnp.array([0, 2])])
        out, full = (env.step(s, action, jax.random.key(1)) for env, s in ((part, state), (whole, other)))
        (state, obs), (other, all_of_it) = out[:2], full[:2]
        assert (out.reward, out.terminated) == (full.reward, full.terminated)


def test_memory_tasks_can_be_made_by_name():
    assert ppax.make("CartPole-v1-masked").observation_space.shape == (2,)
    assert ppax.make("CueCorridor-40").env.length == 40
