"""Values of a network in bfloat16 beside float64 with rounded factors.

For tests/system/test_precision.py, and for benchmarks/accelerator.py on machines without pytest.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import ppax
from ppax.networks import mlp


def near(x):
    """Return `x` rounded to bfloat16, in float64."""
    return np.asarray(jnp.asarray(x, jnp.bfloat16), np.float64)


def looked(hidden, obs, actions=2):
    """Return V of observations [n, k] by ppax in bfloat16, and the parameters in float64."""
    env = spaces_of(spaces.Box(-np.inf, np.inf, (obs.shape[1],), np.float32), actions)
    agent = ppax.PPO(mlp(env, hidden=hidden), compute_dtype="bfloat16")
    learner = agent.init(env.observation_space, jax.random.key(0))
    first = jnp.ones(len(obs), bool)
    value = jax.jit(agent.policy)(learner, (), jnp.asarray(obs, jnp.float32), first, None).value
    return np.asarray(value), jax.tree.map(np.float64, learner.params)


def spaces_of(observation_space, actions=2):
    return SimpleNamespace(observation_space=observation_space, action_space=spaces.Discrete(actions))


def values(inputs, width):
    """Return V of 8 observations by ppax in bfloat16, and in float64 with the factors that it rounds rounded.

    The first layer reads observations and is not rounded; the second has a kernel [inputs, width].
    """
    obs = np.random.default_rng(0).normal(size=(8, inputs)).astype(np.float32)
    value, params = looked((inputs, width), obs)
    first, layer, head = params["critic"]["0"], params["critic"]["1"], params["value"]
    rounding = near if min(inputs, width) >= 16 else np.float64
    features = np.tanh(obs.astype(np.float64) @ first["kernel"] + first["bias"])
    hidden = np.tanh(rounding(features) @ rounding(layer["kernel"]) + layer["bias"])
    exact = hidden @ head["kernel"] + head["bias"]
    return value, exact[:, 0]
