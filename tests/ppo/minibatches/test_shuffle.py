"""Shuffle: every sequence exactly once per epoch, in a new order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppax import ConfigError
from ppax.core.types import Batch, Transition
from ppax.ppo.minibatches import SORT_BELOW, Shuffle, ShuffleRows, permutation


def batch(sequences, seq_len=2):
    valid = jnp.ones((sequences, seq_len), bool)
    return Batch(Transition(None, None, None, None, None, None, None, None, valid, ()), None)


def indices(num_minibatches, sequences, seed, remainder="error"):
    drawn = Shuffle(num_minibatches, remainder)(batch(sequences), jax.random.key(seed))
    assert drawn.weight is None
    return np.asarray(drawn.index)


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


def test_every_sequence_is_equally_likely_in_every_minibatch():
    # 3000 keys, 6 sequences in 3 minibatches: a sequence is in the first one 1000 times, std sqrt(3000 2/9) = 26
    index = jax.jit(jax.vmap(lambda key: Shuffle(3)(batch(6), key).index))(jax.random.split(jax.random.key(0), 3000))
    counts = np.bincount(np.asarray(index)[:, 0].ravel(), minlength=6)
    assert (np.abs(counts - 1000) < 5 * 26).all()


def test_large_permutations_are_permutations():
    for size in (SORT_BELOW - 1, SORT_BELOW, 257, 500, 3000, 4096, 8191, 8193, 65536, 100_003):
        order = np.asarray(permutation(jax.random.key(size), size))
        assert order.dtype == np.int32
        np.testing.assert_array_equal(np.sort(order), np.arange(size))


@pytest.mark.parametrize(("size", "draws"), [(260, 8000), (510, 4000), (2500, 800), (4100, 500)])
def test_large_permutations_look_random(size, draws):
    orders = np.asarray(
        jax.jit(jax.vmap(lambda key: permutation(key, size)))(jax.random.split(jax.random.key(0), draws))
    )
    # moves from ten blocks to ten blocks: draws * size / 100 elements each, variance at most 0.81 of that
    blocks, tenth, expected = np.zeros((10, 10)), size // 10, draws * size / 100
    np.add.at(blocks, (np.broadcast_to(np.arange(size) // tenth, orders.shape), orders // tenth), 1)
    assert np.abs(blocks - expected).max() < 5 * np.sqrt(expected * 0.81)
    # fixed points: mean 1, variance 1 in each draw
    assert abs((orders == np.arange(size)).sum(axis=1).mean() - 1.0) < 5 / np.sqrt(draws)
    # any two neighbours are in the same quarter with probability 1/4
    same = (orders[:, 1:] * 4 // size == orders[:, :-1] * 4 // size).mean()
    assert abs(same - (size / 4 - 1) / (size - 1)) < 5 * np.sqrt(0.1875 / (draws * size))
    # half of all pairs ascend; two draws agree in one place on average
    assert abs((orders[:, 1:] > orders[:, :-1]).mean() - 0.5) < 5 * np.sqrt(1 / 12 / (draws * size))
    assert abs((orders[1:] == orders[:-1]).sum(axis=1).mean() - 1.0) < 5 / np.sqrt(draws)


@pytest.mark.parametrize("size", [SORT_BELOW, 300, 512])
def test_small_bijections_reach_every_place_and_pair_equally_often(size):
    draws = 20_000
    orders = np.asarray(
        jax.jit(jax.vmap(lambda key: permutation(key, size)))(jax.random.split(jax.random.key(1), draws))
    )

    def statistic(counts):  # chi squared, as standard deviations from its mean
        df, expected = counts.size - 1, counts.mean()
        return (((counts - expected) ** 2).sum() / expected - df) / np.sqrt(2 * df)

    places = np.stack([np.bincount(column, minlength=size) for column in orders.T])
    assert abs(statistic(places)) < 5
    # differences of two places, whose indices differ in one bit or in many: never 0, the others equally often
    for i, j in ((0, 1), (0, 16), (5, 7), (3, 3 + size // 2), (0, size - 1), (size // 3, size // 2)):
        differences = np.bincount((orders[:, i] - orders[:, j]) % size, minlength=size)
        assert differences[0] == 0
        assert abs(statistic(differences[1:])) < 5
    # sequences of the first quarter in the first of four minibatches: hypergeometric
    quarter = size // 4
    share = quarter / size
    variance = quarter * share * (1 - share) * (size - quarter) / (size - 1)
    together = (orders[:, :quarter] < quarter).sum(axis=1)
    assert abs(together.var() / variance - 1) < 5 * np.sqrt(2 / draws)


def test_padding_uses_every_sequence_once_with_at_most_one_padding_index_per_minibatch():
    for parts, sequences in ((4, 91), (4, 5), (3, 8), (7, 7), (6, 24), (5, 6), (4, 4099)):
        index = indices(parts, sequences, 0, "pad")
        assert index.shape == (parts, -(-sequences // parts)) == (parts, Shuffle(parts, "pad").size(sequences))
        real = index < sequences
        np.testing.assert_array_equal(np.sort(index[real]), np.arange(sequences))
        assert (index[~real] == sequences).all()
        # minibatch sizes differ by one at most, and none is empty
        assert set(real.sum(axis=1)) <= {sequences // parts, -(-sequences // parts)}
        assert real.sum(axis=1).min() >= 1
    assert (indices(4, 91, 0, "pad") != indices(4, 91, 1, "pad")).any()


def test_padding_has_no_effect_if_sizes_divide():
    np.testing.assert_array_equal(indices(4, 24, 3, "pad"), indices(4, 24, 3))


def test_every_sequence_is_equally_likely_in_a_padded_minibatch():
    # 5 sequences in 3 minibatches of 2, 2 and 1: each is in the last one 600 of 3000 times, std sqrt(3000 4/25) = 22
    part, keys = Shuffle(3, "pad"), jax.random.split(jax.random.key(0), 3000)
    index = np.asarray(jax.jit(jax.vmap(lambda key: part(batch(5), key).index))(keys))
    counts = np.bincount(index[:, 2].ravel(), minlength=6)
    assert counts[5] == 3000
    assert (np.abs(counts[:5] - 600) < 5 * 22).all()


def test_sizes_that_do_not_divide_are_refused_with_the_nearest_that_do():
    with pytest.raises(
        ConfigError, match=r"num_minibatches = 4 .* 91 sequences .* do: 1, 7, 13; .*remainder = \"pad\""
    ):
        Shuffle(4).size(91)
    with pytest.raises(ConfigError, match=r"num_minibatches = 8 .* 6 sequences .* nearest that do: 2, 3, 6$"):
        Shuffle(8, "pad").size(6)


def test_without_shuffling_sequences_stay_in_order():
    index = Shuffle(3, shuffle=False)(batch(6), jax.random.key(0)).index
    np.testing.assert_array_equal(index, [[0, 1], [2, 3], [4, 5]])
    padded = Shuffle(3, "pad", shuffle=False)(batch(7), jax.random.key(0)).index
    np.testing.assert_array_equal(np.asarray(padded)[0], [0, 1, 2])
    assert np.sort(np.asarray(padded).ravel()).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 7]


def test_a_size_in_rows_draws_as_the_number_of_minibatches_with_so_many_rows():
    """24 sequences of 2 steps are 48 rows: 12 rows are 4 minibatches of 6 sequences."""
    for options in ({}, {"shuffle": False}):
        by_rows = ShuffleRows(12, **options)(batch(24), jax.random.key(0)).index
        np.testing.assert_array_equal(by_rows, Shuffle(4, **options)(batch(24), jax.random.key(0)).index)
    assert ShuffleRows(12).size(24, 2) == by_rows.shape[1] == 6


@pytest.mark.parametrize(
    ("rows", "sequences", "length", "message"),
    [
        (100, 2048, 1, r"rows = 100 does not divide the 2048 rows of a rollout; nearest that do: 32, 64, 128"),
        (9, 24, 2, r"rows = 9 does not divide the 48 rows of a rollout, of whole sequences of 2 steps; .*: 6, 8, 12"),
        (3, 24, 2, r"rows = 3 does not divide the 48 rows .* nearest that do: 2, 4, 6"),
        (4096, 2048, 1, r"rows = 4096 does not divide the 2048 rows .* nearest that do: 512, 1024, 2048"),
    ],
)
def test_rows_that_do_not_divide_a_rollout_are_refused_with_the_nearest_that_do(rows, sequences, length, message):
    with pytest.raises(ConfigError, match=message):
        ShuffleRows(rows).size(sequences, length)
    with pytest.raises(ConfigError, match=message):
        ShuffleRows(rows)(batch(sequences, length), jax.random.key(0))
