"""A minibatch in chunks is the minibatch: same gradient, same metrics, same update, but for rounding."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.accumulate import chunk_count, mean_gradient
from ppax.collect import collect
from ppax.envs import TimeLimit, VectorEnv, builtin
from ppax.losses import ClippedSurrogate
from ppax.metrics import reduced
from ppax.minibatches import Shuffle
from ppax.networks import mlp
from ppax.program import Program
from ppax.sequences import masked_mean
from ppax.types import LossOutput
from worlds import QUICK, Leaky


def test_a_mean_by_hand():
    # d/dw of the mean over valid rows of w x: the mean of the valid x, (1 + 2 + 4) / 3
    data, valid = jnp.array([1.0, 2.0, 100.0, 4.0]), jnp.array([True, True, False, True])

    def loss(w, rows):
        x, ok = rows
        extremes = reduced("max", {"x_max": x.max()}) | reduced("min", {"x_min": x.min()})
        return LossOutput(masked_mean(w * x, ok), {"mean": masked_mean(x, ok)} | extremes)

    for rows in (4, 2, 1):  # in four pieces there is one without a valid row
        out = mean_gradient(loss, jnp.float32(3.0), (data, valid), valid[:, None], rows)
        np.testing.assert_allclose(out.vector, [7 / 3], rtol=1e-6)
        np.testing.assert_allclose([out.metrics[k] for k in ("mean", "x_max", "x_min")], [7 / 3, 100, 1], rtol=1e-6)


@pytest.mark.parametrize("memory", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_whole_update_in_chunks(memory):
    env = VectorEnv(TimeLimit(builtin.CartPole(), 9), 6)
    network = mlp(env, hidden=(16,))
    agent = ppax.PPO(
        Leaky(network) if memory else network,
        loss=ClippedSurrogate(ent_coef=0.01),
        minibatch=Shuffle(2),
        learning_rate=0.01,
        seq_len=4 if memory else None,
    )
    state = ppax.start(agent, env, 24, jax.random.key(0))
    rollout = jax.jit(collect, static_argnums=4)(agent, env, state.learner, state.actor, 24, jax.random.key(1)).rollout
    assert not rollout.steps.valid.all()

    def update(rows):
        pieces = dataclasses.replace(agent, program=Program(chunk_rows=rows))
        run = jax.jit(pieces.update, compiler_options=QUICK)
        return run(state.learner, rollout, jax.random.key(2))

    whole = update(10**6)
    for rows in (36, 12):  # 72 rows in 2 and in 6 chunks
        pieces = update(rows)
        for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(pieces), strict=True):
            np.testing.assert_allclose(one, other, atol=2e-5, rtol=1e-4)
    before, after = (jax.tree.leaves(learner.params) for learner in (state.learner, whole.learner))
    assert max(np.abs(a - b).max() for a, b in zip(before, after, strict=True)) > 1e-2  # or agreement would mean little


def test_chunks_divide_and_are_large():
    assert chunk_count(8192, 1, 8192) == 1
    assert chunk_count(2**19, 1, 8192) == 64
    assert chunk_count(64, 128, 8192) == 1
    assert chunk_count(128, 128, 8192) == 2
    assert chunk_count(3 * 8192 + 3, 1, 8192) == 9  # 24 579 = 3 * 3 * 2731: 4 does not divide, 9 is the next
    assert chunk_count(100_003, 1, 8192) == 1  # a prime number of rows: in one piece rather than one by one
