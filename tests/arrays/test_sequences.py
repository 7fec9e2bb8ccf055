"""Sequences of a rollout, masked means, discounted sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppax.arrays.sequences import (
    discounted_sum,
    masked_mean,
    masked_std,
    to_pairs,
    to_rows,
    to_sequences,
    where_rows,
    zero_rows,
)
from ppax.devices import platforms


@pytest.mark.parametrize("seq_len", [1, 2, 3, 6])
def test_to_sequences_is_slicing(seq_len):
    num_steps, streams = 6, 5
    x = np.arange(num_steps * streams * 2).reshape(num_steps, streams, 2)
    tree = to_sequences({"wide": jnp.asarray(x), "flat": jnp.asarray(x[..., 0]), "nothing": ()}, seq_len)
    expected = np.stack(
        [x[p * seq_len : (p + 1) * seq_len, b] for b in range(streams) for p in range(num_steps // seq_len)]
    )
    np.testing.assert_array_equal(tree["wide"], expected)
    np.testing.assert_array_equal(tree["flat"], expected[..., 0])
    assert tree["nothing"] == ()


def test_rows_and_pairs_are_inverses():
    x = jnp.arange(24).reshape(4, 3, 2)
    rows = to_rows(x)
    assert rows.shape == (12, 2)
    np.testing.assert_array_equal(rows[4], x[1, 1])
    np.testing.assert_array_equal(to_pairs(rows, 3), x)


def test_masked_mean_and_std_equal_numpy_over_valid_rows():
    rng = np.random.default_rng(0)
    mean_and_std = jax.jit(lambda x, valid: (masked_mean(x, valid), masked_std(x, valid)))
    for share in (0.0, 0.02, 0.3, 0.9, 1.0) * 4:
        x = rng.normal(100.0, 3.0, (7, 9)).astype(np.float32)
        valid = rng.random((7, 9)) < share
        poisoned = np.where(valid, x, np.nan)
        mean, std = mean_and_std(poisoned, valid)
        kept = x[valid].astype(np.float64)
        np.testing.assert_allclose(mean, kept.mean() if len(kept) else 0.0, rtol=1e-6)
        # population std (ddof 0); E[x^2] - E[x]^2 would be wrong by 1e-3 here
        np.testing.assert_allclose(std, kept.std() if len(kept) else 0.0, rtol=1e-5, atol=1e-5)


def test_masked_mean_of_flags():
    np.testing.assert_allclose(masked_mean(jnp.array([True, False, True]), jnp.array([True, True, False])), 0.5)


@pytest.mark.parametrize("parallel", [False, True])
def test_discounted_sum_by_hand_and_by_loop(monkeypatch, parallel):
    monkeypatch.setitem(platforms.RULES, "cpu", platforms.CPU._replace(parallel_scans=parallel))
    # discount .5: y_2 = 4; y_1 = 2 + .5 * 4 = 4, an end at 1 cuts it to 2; y_0 = 1 + .5 y_1
    x = jnp.array([1.0, 2.0, 4.0])
    np.testing.assert_allclose(discounted_sum(x, 0.5, jnp.zeros(3, bool)), [3.0, 4.0, 4.0])
    np.testing.assert_allclose(discounted_sum(x, 0.5, jnp.array([False, True, False])), [2.0, 2.0, 4.0])
    np.testing.assert_allclose(discounted_sum(x, 0.5, jnp.array([True, True, True])), x)
    poisoned = jnp.array([1.0, 2.0, jnp.nan])
    np.testing.assert_allclose(discounted_sum(poisoned, 0.5, jnp.array([False, True, False]))[:2], [2.0, 2.0])
    rng = np.random.default_rng(1)
    x, ended = rng.normal(size=50).astype(np.float32), rng.random(50) < 0.2
    for discount in (0.9, rng.uniform(size=50).astype(np.float32)):
        y, expected, discounts = 0.0, [], np.broadcast_to(discount, 50)
        for t in reversed(range(50)):
            y = x[t] + discounts[t] * (0.0 if ended[t] else y)
            expected.insert(0, y)
        np.testing.assert_allclose(discounted_sum(jnp.asarray(x), discount, jnp.asarray(ended)), expected, atol=1e-5)


def test_zero_rows_replaces_nan_for_every_shape_and_dtype():
    valid = jnp.array([[True, False], [False, True]])
    tree = {
        "wide": jnp.full((2, 2, 3), jnp.nan).at[0, 0].set(1.0),
        "flat": jnp.array([[5.0, jnp.inf], [jnp.nan, 6.0]]),
        "mask": jnp.ones((2, 2, 4), bool),
        "action": jnp.full((2, 2), 7, jnp.int32),
        "nothing": (),
    }
    got = zero_rows(valid, tree)
    np.testing.assert_array_equal(got["flat"], [[5.0, 0.0], [0.0, 6.0]])
    np.testing.assert_array_equal(got["wide"][0], [[1.0] * 3, [0.0] * 3])
    np.testing.assert_array_equal(got["wide"][1, 0], [0.0] * 3)
    np.testing.assert_array_equal(got["action"], [[7, 0], [0, 7]])
    np.testing.assert_array_equal(got["mask"].any(-1), valid)
    assert {k: v.dtype for k, v in got.items() if k != "nothing"} == {
        k: v.dtype for k, v in tree.items() if k != "nothing"
    }


def test_where_rows_chooses_whole_rows():
    mask = jnp.array([True, False])
    got = where_rows(mask, (jnp.ones((2, 3)), jnp.ones(2)), (jnp.zeros((2, 3)), jnp.full(2, jnp.nan)))
    np.testing.assert_array_equal(got[0], [[1.0] * 3, [0.0] * 3])
    np.testing.assert_array_equal(got[1], [1.0, np.nan])
