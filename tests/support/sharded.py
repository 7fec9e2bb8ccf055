"""Training on several devices beside training on one.

For tests/devices/test_sharding.py, and for benchmarks/accelerator.py on machines without pytest.
"""

import dataclasses

import jax
import numpy as np

import ppax
from ppax.devices.layout import Program
from ppax.devices.platforms import rules
from ppax.envs import VectorEnv
from ppax.extensions import CAPS, L2C2, ActionRate
from ppax.networks import mlp
from ppax.ppo.critics import PopArt, Regression, TwoHot
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.normalization import FloatPair
from support.worlds import Leaky, Team


def make(case):
    if case == "agents":
        env = VectorEnv(Team(), 4)
    else:
        env = ppax.make("Pendulum-v1" if case in ("continuous", "smooth") else "CartPole-v1", 4)
    network = mlp(env, hidden=(16,))
    normalized = {"normalize_obs": True, "normalize_reward": True, "normalize_advantage": "rollout"}
    critics = {"continuous": PopArt(), "memory": TwoHot()}
    agent = ppax.PPO(
        Leaky(network) if case == "memory" else network,
        minibatch=Shuffle(2),
        learning_rate=1e-3,
        seq_len=8 if case == "memory" else None,
        critic=critics.get(case, Regression()),
        extensions=(CAPS(0.5, 0.5), L2C2(0.5, 0.5), ActionRate()) if case == "smooth" else (),
        **(normalized if case == "continuous" else {}),
    )
    return agent, env


def require_same(case, devices):
    """Raise AssertionError unless 3 iterations on `devices` devices equal those on one, but for rounding."""
    agent, env = make(case)

    def run(devices):
        laid_out = dataclasses.replace(agent, program=Program(devices=devices, chunk_rows=12))
        state = jax.jit(ppax.start, static_argnames="num_steps")(laid_out, env, 16, jax.random.key(0))
        return jax.jit(ppax.train, compiler_options=rules().run_once_options)(laid_out, env, state, 3)

    one, several = run(1), run(devices)
    assert len(several.state.actor.first.sharding.device_set) == devices
    fresh = ppax.start(agent, env, 16, jax.random.key(0))
    moved = [np.abs(a - b).max() for a, b in pairs(fresh.learner.params, one.state.learner.params)]
    assert max(moved) > 1e-3  # the parameters changed
    for a, b in pairs(*(numbers_of(trained.state) for trained in (one, several))):
        np.testing.assert_allclose(a, b, atol=2e-5, rtol=1e-4)
    assert set(one.metrics) == set(several.metrics)
    for name in one.metrics:
        np.testing.assert_allclose(one.metrics[name], several.metrics[name], rtol=2e-4, atol=2e-5, err_msg=name)


def pairs(one, other):
    return zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)


def numbers_of(tree):
    """Leaves in float64; of a number of two words their sum: the low word is a rounding error."""
    return jax.tree.map(as_numbers, tree, is_leaf=lambda x: isinstance(x, FloatPair))


def as_numbers(x):
    if isinstance(x, FloatPair):
        return as_numbers(x.high) + as_numbers(x.low)
    x = jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    return np.asarray(x, np.float64)
