"""Shuffle: every sequence exactly once an epoch, in an order of its own."""

import jax
import jax.numpy as jnp
import numpy as np

from ppax.minibatches import Shuffle
from ppax.minibatches.shuffle import SORT_BELOW, permutation
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


def test_large_permutations_are_permutations():
    for size in (SORT_BELOW - 1, SORT_BELOW, 3000, 4096, 8191, 8193, 65536, 100_003):
        order = np.asarray(permutation(jax.random.key(size), size))
        assert order.dtype == np.int32
        np.testing.assert_array_equal(np.sort(order), np.arange(size))


def test_large_permutations_look_random():
    size, draws = 2500, 800
    orders = np.asarray(
        jax.jit(jax.vmap(lambda key: permutation(key, size)))(jax.random.split(jax.random.key(0), draws))
    )
    # where does an element go? Ten blocks of 250 for ten blocks of 250: 800 * 250 * 250 / 2500 = 20 000 each, std 134
    blocks = np.zeros((10, 10))
    np.add.at(blocks, (np.broadcast_to(np.arange(size) // 250, orders.shape), orders // 250), 1)
    assert np.abs(blocks - draws * 25).max() < 5 * np.sqrt(draws * 25 * 0.81)
    # fixed points: mean 1, variance 1 in each draw
    assert abs((orders == np.arange(size)).sum(axis=1).mean() - 1.0) < 5 / np.sqrt(draws)
    # neighbours land in the same quarter one time in four, whichever neighbours
    same = (orders[:, 1:] * 4 // size == orders[:, :-1] * 4 // size).mean()
    assert abs(same - (size / 4 - 1) / (size - 1)) < 5 * np.sqrt(0.1875 / (draws * size))
    # ascents: one half of all pairs; two draws agree in one place on average
    assert abs((orders[:, 1:] > orders[:, :-1]).mean() - 0.5) < 5 * np.sqrt(1 / 12 / (draws * size))
    assert abs((orders[1:] == orders[:-1]).sum(axis=1).mean() - 1.0) < 5 / np.sqrt(draws)
