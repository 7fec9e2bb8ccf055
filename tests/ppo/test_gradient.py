"""Gradient accumulation: same gradient, metrics and update as without chunks, up to rounding."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.arrays.metrics import reduced
from ppax.arrays.sequences import masked_mean
from ppax.core.types import LossOutput
from ppax.devices.layout import Program
from ppax.envs import TimeLimit, VectorEnv, builtin
from ppax.networks import mlp
from ppax.ppo.gradients import chunk_sizes, mean_gradient
from ppax.ppo.minibatches import Shuffle
from ppax.training.collection import collect
from support.worlds import QUICK, Leaky


def test_accumulated_gradient_of_a_mean_by_hand():
    # d/dw of the mean over valid rows of w x: the mean of the valid x, (1 + 2 + 4) / 3
    data, valid = jnp.array([1.0, 2.0, 100.0, 4.0]), jnp.array([True, True, False, True])

    def loss(w, x, ok):
        ok = ok[:, 0]
        extremes = reduced("max", {"x_max": x.max()}) | reduced("min", {"x_min": x.min()})
        return LossOutput(masked_mean(w * x, ok), {"mean": masked_mean(x, ok)} | extremes)

    for rows in (4, 3, 2, 1):  # in four pieces there is one without a valid row; of three the second piece is padded
        out = mean_gradient(loss, jnp.float32(3.0), data, valid[:, None], rows)
        np.testing.assert_allclose(out.vector, [7 / 3], rtol=1e-6)
        np.testing.assert_allclose([out.metrics[k] for k in ("mean", "x_max", "x_min")], [7 / 3, 100, 1], rtol=1e-6)


@pytest.mark.parametrize("memory", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_an_update_does_not_depend_on_gradient_accumulation(memory):
    env = VectorEnv(TimeLimit(builtin.CartPole(), 9), 6)
    network = mlp(env, hidden=(16,))
    agent = ppax.PPO(
        Leaky(network) if memory else network,
        ent_coef=0.01,
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
    # 72 rows in 2 and 6 chunks; 6 of 13 places, 6 of which are empty; one by one, as a chunk has a sequence at least
    for rows in (36, 12, 3 if memory else 13):
        pieces = update(rows)
        for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(pieces), strict=True):
            np.testing.assert_allclose(one, other, atol=2e-5, rtol=1e-4)
    before, after = (jax.tree.leaves(learner.params) for learner in (state.learner, whole.learner))
    assert max(np.abs(a - b).max() for a, b in zip(before, after, strict=True)) > 1e-2  # or agreement would mean little


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 7, 11, 100])
@pytest.mark.parametrize("length", [1, 3])
def test_every_chunk_size_gives_the_gradient_without_chunks(rows, length):
    """A prime number of sequences with some invalid rows, against the mean in float64."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(11, length)).astype(np.float32)
    valid = rng.random((11, length)) < 0.7
    shapes = []

    def loss(w, x, ok):
        shapes.append(x.shape)
        return LossOutput(
            masked_mean(w * x, ok), reduced("max", {"x_max": x.max()}) | reduced("min", {"x_min": x.min()})
        )

    out = mean_gradient(loss, jnp.float32(2.0), jnp.asarray(x), jnp.asarray(valid), rows)
    np.testing.assert_allclose(out.vector, [x[valid].astype(np.float64).mean()], rtol=1e-6)
    np.testing.assert_array_equal([out.metrics["x_max"], out.metrics["x_min"]], [x.max(), x.min()])
    # as many rows at once as asked for, or one sequence
    assert {n * m for n, m in shapes} == {chunk_sizes(11, length, rows).size * length}
    assert max(n * m for n, m in shapes) <= max(rows, length)


def test_chunks_are_at_most_chunk_rows_and_hardly_smaller():
    assert chunk_sizes(8192, 1, 8192) == (1, 8192)
    assert chunk_sizes(2**19, 1, 8192) == (64, 8192)
    assert chunk_sizes(64, 128, 8192) == (1, 64)
    assert chunk_sizes(128, 128, 8192) == (2, 64)
    assert chunk_sizes(3 * 8192 + 3, 1, 8192) == (9, 2731)  # 24 579 = 3 * 3 * 2731: 4 does not divide, 9 is the next
    assert chunk_sizes(100_003, 1, 8192) == (13, 7693)  # a prime number of rows: 6 places of the last chunk are empty
    assert chunk_sizes(8191, 1, 512) == (16, 512)
    assert chunk_sizes(64, 128, 100) == (64, 1)  # a chunk is never less than a sequence
    for sequences in range(1, 60):
        for length, rows in ((1, 7), (3, 7), (5, 4)):
            number, size = chunk_sizes(sequences, length, rows)
            assert (number - 1) * size < sequences <= number * size
            assert size == 1 or size * length <= rows
