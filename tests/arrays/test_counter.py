"""64-bit counts on devices without 64-bit integers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppax.arrays import counter


def of(number):
    return jnp.array([number % 2**32, number // 2**32], jnp.uint32)


@pytest.mark.parametrize(
    ("before", "amount"),
    [
        (0, 0),
        (0, 7),
        (2**31 - 1, 1),  # where int32 wraps
        (2**31, 5),
        (2**32 - 1, 1),  # where uint32 wraps
        (2**32 - 1, 2**32 - 1),
        (2**32, 0),
        (2**33 - 10, 25),
        (10**12, 2**31),
    ],
)
def test_add_is_exact(before, amount):
    after = counter.add(of(before), jnp.uint32(amount))
    assert counter.to_int(after) == before + amount
    np.testing.assert_allclose(counter.to_float(after), before + amount, rtol=2e-7)
    assert after.dtype == jnp.uint32


def test_zero_is_the_count_0():
    assert counter.to_int(counter.zero()) == 0


def test_crossing_both_limits_in_many_small_steps():
    # from 2^31 - 50 000 in 100 000 steps of 1; from 2^32 - 35 000 in 100 000 of 7: float32 could not count these
    count = jax.jit(lambda start, amount: jax.lax.fori_loop(0, 100_000, lambda _, c: counter.add(c, amount), start))
    assert counter.to_int(count(of(2**31 - 50_000), jnp.int32(1))) == 2**31 + 50_000
    assert counter.to_int(count(of(2**32 - 350_000), jnp.int32(7))) == 2**32 + 350_000
