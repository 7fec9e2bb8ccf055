"""Rollouts of a deterministic policy."""

import jax
import numpy as np
import pytest
from worlds import QUICK

import ppax
from ppax.collection import start_actor


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_a_deterministic_rollout_has_the_modes(name):
    env = ppax.make(name, 4)
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(6,)))
    learner = agent.init(env.observation_space, jax.random.key(0))
    collect = jax.jit(ppax.collect, static_argnums=(4, 6), compiler_options=QUICK)
    actor = start_actor(agent, env, jax.random.key(1))
    rollout = collect(agent, env, learner, actor, 6, jax.random.key(2), True).rollout
    other = collect(agent, env, learner, actor, 6, jax.random.key(3), True).rollout
    sampled = collect(agent, env, learner, actor, 6, jax.random.key(2), False).rollout
    for t in range(6):
        policy = agent.policy(learner, (), rollout.steps.obs[t], rollout.steps.first[t], None)
        np.testing.assert_allclose(rollout.steps.action[t], policy.distribution.mode(), rtol=1e-5, atol=1e-6)
        log_prob = policy.distribution.log_prob(rollout.steps.action[t])
        np.testing.assert_allclose(rollout.steps.log_prob[t], log_prob, rtol=1e-5)
    np.testing.assert_array_equal(rollout.steps.action, other.steps.action)
    assert (np.asarray(sampled.steps.action) != np.asarray(rollout.steps.action)).any()


def test_another_number_of_environments():
    env, many = ppax.make("CartPole-v1", 4), ppax.make("CartPole-v1", 9)
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(6,)))
    learner = agent.init(env.observation_space, jax.random.key(0))
    actor = start_actor(agent, many, jax.random.key(1))
    assert ppax.collect(agent, many, learner, actor, 3, jax.random.key(2)).rollout.steps.reward.shape == (3, 9)
