"""Inverse of the map from samples to actions: back and forth gives the same action."""

import jax.numpy as jnp
import numpy as np
import pytest

from ppax.core.types import ConfigError
from ppax.distributions import BallNormal, Beta, Categorical, Factorised, Joint, Normal, SquashedNormal
from ppax.extensions.imitation.cloning import as_sampled

ROWS = jnp.zeros((3, 2))
BOX = {"low": (-1.0, 0.0), "high": (3.0, 10.0), "shape": (2, 1)}
VECTORS = jnp.array([[[-0.5], [1.0]], [[2.5], [9.0]], [[1.0], [5.0]]])
CHOICES = jnp.array([3, 4, 3])


@pytest.mark.parametrize(
    ("distribution", "action"),
    [
        (Categorical(ROWS, 3), CHOICES),
        (Factorised(Categorical(jnp.zeros((3, 2, 4))), (1, 0), (1, 2)), jnp.array([[[1, 3]], [[4, 0]], [[2, 2]]])),
        (Normal(ROWS, ROWS, **BOX), VECTORS),
        (SquashedNormal(ROWS, ROWS, **BOX), VECTORS),
        (Beta(ROWS + 2.0, ROWS + 2.0, **BOX), VECTORS),
        (Joint({"a": Categorical(ROWS, 3), "b": Normal(ROWS, ROWS, **BOX)}), {"a": CHOICES, "b": VECTORS}),
        (Joint((Categorical(ROWS, 3), Beta(ROWS + 2.0, ROWS + 2.0, **BOX))), (CHOICES, VECTORS)),
    ],
)
def test_back_and_forth(distribution, action):
    sampled = as_sampled(distribution, action)
    assert distribution.log_prob(sampled).shape == (3,)
    back = distribution.env_action(sampled)
    for x, y in zip(*map(_leaves, (back, action)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def _leaves(x):
    return list(x.values()) if isinstance(x, dict) else list(x) if isinstance(x, tuple) else [x]


def test_actions_at_the_bounds_are_finite():
    edges = jnp.array([[[-1.0], [0.0]], [[3.0], [10.0]], [[3.0], [0.0]]])
    for distribution in (SquashedNormal(ROWS, ROWS, **BOX), Beta(ROWS + 2.0, ROWS + 2.0, **BOX)):
        assert np.isfinite(distribution.log_prob(as_sampled(distribution, edges))).all()


def test_a_distribution_without_inverse_is_refused():
    ball = BallNormal(ROWS, ROWS, low=(-1.0, -1.0), high=(1.0, 1.0), shape=(2,), dtype="float32", radius=1.0)
    with pytest.raises(ConfigError, match="BallNormal; must be one of Beta, Categorical"):
        as_sampled(ball, ROWS)
