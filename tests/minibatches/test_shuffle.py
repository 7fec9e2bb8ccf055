"""Shuffle: every sequence exactly once an epoch, in an order of its own."""

import jax
import jax.numpy as jnp
import numpy as np

from ppax.minibatches import Shuffle
from ppax.types import Batch, Transition


def indices(num_minibatches, sequences, seed, seq_len=2):
    valid = jnp.ones((sequences, seq_len), bool)
    steps = Transition(None, None, None, None, None, None, None, None, valid, ())
    return np.asarray(Shuffle(num_minibatches)(Batch(steps, None), jax.random.key(seed)))


def test_every_sequence_exactly_once():
    for parts, sequences in ((1, 6), (4, 24), (5, 65), (12, 12)):
        index = indices(parts, sequences, 0)
        assert index.shape == (parts, sequences // parts)
        np.testing.assert_array_equal(np.sort(index.ravel()), np.arange(sequences))


def test_two_keys_differ_and_one_key_repeats():
    a, b, again = (indices(4, 24, seed) for seed in (0, 1, 0))
    assert (a != b).any()
    np.testing.assert_array_equal(a, again)
    assert (a.ravel() != np.arange(24)).any()


def test_every_sequence_is_as_likely_in_every_minibatch():
    # 3000 keys, 6 sequences in 3 minibatches: a sequence is in the first one 1000 times, std sqrt(3000 2/9) = 26
    valid = jnp.ones((6, 1), bool)
    batch = Batch(Transition(None, None, None, None, None, None, None, None, valid, ()), None)
    index = jax.jit(jax.vmap(lambda key: Shuffle(3)(batch, key)))(jax.random.split(jax.random.key(0), 3000))
    counts = np.bincount(np.asarray(index)[:, 0].ravel(), minlength=6)
    assert (np.abs(counts - 1000) < 5 * 26).all()
