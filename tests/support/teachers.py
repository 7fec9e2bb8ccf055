"""A policy of CartPole by hand: it pushes towards the side to which the pole falls, and balances it for 500 steps."""

import jax
import numpy as np

import ppax
from ppax.policy.spec import spec_of

WEIGHTS = np.array([0.1, 0.3, 3.0, 1.0], np.float32)  # of position, velocity, angle, angular velocity


def teacher_of(env, weights=WEIGHTS, **options) -> ppax.Policy:
    """Policy with one hidden layer, so small that tanh is linear, whose logits are -+ 20 * weights . observation."""
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(4,), **options))
    learner = jax.device_get(agent.init(env.observation_space, jax.random.key(0)))
    params = learner.params
    params["actor"]["0"] = {"kernel": 0.01 * np.eye(4, dtype=np.float32), "bias": np.zeros(4, np.float32)}
    kernel = 2000.0 * np.stack([-np.asarray(weights), weights], axis=1).astype(np.float32)
    params["policy"] = {"kernel": kernel, "bias": np.zeros(2, np.float32)}
    return ppax.Policy(agent, learner._replace(params=params), spec_of(agent, env, None, {}))
