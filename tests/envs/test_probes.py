"""Probes: documented values against rollouts."""

import jax
import numpy as np
import pytest

from ppax.envs import builtin

PROBES = [
    builtin.ConstantProbe(),
    builtin.ObsProbe(),
    builtin.DiscountProbe(),
    builtin.ActionProbe(),
    builtin.ObsActionProbe(),
    builtin.InfiniteProbe(),
    builtin.FiniteProbe(),
]


def name(env):
    return type(env).__name__


@jax.jit
def step(env, state, action, key):
    return env.step(state, action, key)


def best_rollout(env, truth, seed, flip=False):
    """Return visited rows of `truth`, rewards, and whether the episode terminated, for the best or worst actions."""
    state, obs = env.reset(jax.random.key(seed))[:2]
    rows, rewards, terminated = [], [], False
    while not terminated and len(rewards) < 30:  # 0.5^30 is below the tolerance
        (row,) = np.flatnonzero(np.isclose(truth.obs[:, 0], obs[0]))
        action = 1 if truth.best_action is None else int(truth.best_action[row])
        state, obs, reward, terminated, truncated = step(env, state, action ^ flip, jax.random.key(0))[:5]
        assert not truncated
        rows.append(int(row))
        rewards.append(float(reward))
    return rows, rewards, bool(terminated)


@pytest.mark.parametrize("env", PROBES, ids=name)
def test_probe_values_equal_the_returns_of_rollouts(env):
    gamma, truth = 0.5, env.exact_values(0.5)
    seen = set()
    for seed in range(8):
        rows, rewards, terminated = best_rollout(env, truth, seed)
        assert terminated == (not isinstance(env, builtin.InfiniteProbe))
        returns = [sum(gamma**k * r for k, r in enumerate(rewards[t:])) for t in range(len(rows))]
        checked = len(rows) if terminated else 1  # without an end, only the first return is complete
        np.testing.assert_allclose(returns[:checked], truth.value[np.array(rows[:checked])], rtol=1e-5)
        seen |= set(rows)
    assert seen == set(range(len(truth.obs)))  # every documented observation occurs


@pytest.mark.parametrize("env", PROBES, ids=name)
def test_probe_actions_matter_only_where_values_differ(env):
    truth = env.exact_values(0.5)
    for seed in range(8):
        best = sum(best_rollout(env, truth, seed)[1])
        worst = sum(best_rollout(env, truth, seed, flip=True)[1])
        assert worst == (best if truth.best_action is None else -best)


def test_finite_probe_has_its_horizon():
    truth = builtin.FiniteProbe(horizon=3).exact_values(0.5)
    np.testing.assert_allclose(truth.obs[:, 0], [0, 1 / 3, 2 / 3])
    np.testing.assert_allclose(truth.value, [1.75, 1.5, 1.0])
