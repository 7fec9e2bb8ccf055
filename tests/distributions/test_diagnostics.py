"""Metrics of distributions: `policy_std` equals the spread of samples; discrete distributions have none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppax.distributions import BallNormal, Beta, Categorical, Factorised, Joint, Normal, SquashedNormal

MEAN, LOG_STD = jnp.array([[0.3, -1.0], [2.0, 0.0]]), jnp.array([[-1.0, 0.5], [0.0, -2.0]])
BOX = {"low": (-1.0, -1.0), "high": (1.0, 1.0), "shape": (2,), "dtype": "float32"}
CONTINUOUS = {
    "normal": Normal(MEAN, LOG_STD, **BOX),
    "squashed": SquashedNormal(MEAN, LOG_STD, **BOX),
    "ball": BallNormal(MEAN, LOG_STD, **BOX, radius=1.0),
    "beta": Beta(jnp.array([[1.5, 4.0], [30.0, 2.0]]), jnp.array([[2.5, 4.0], [2.0, 9.0]]), **BOX),
}
DISCRETE = Categorical(jnp.zeros((2, 3)))
PRODUCT = Factorised(Categorical(jnp.zeros((2, 4, 3))), (0,) * 4, (4,))


@pytest.mark.parametrize("kind", CONTINUOUS)
def test_policy_std_is_the_mean_spread_of_the_dimensions(kind):
    one = CONTINUOUS[kind]
    samples = jax.vmap(one.sample)(jax.random.split(jax.random.key(0), 20_000))
    spread = np.asarray(samples, np.float64).std(axis=0).mean(axis=-1)
    np.testing.assert_allclose(one.metrics()["policy_std"], spread, rtol=0.02)


def test_discrete_distributions_have_no_metrics():
    assert DISCRETE.metrics() == PRODUCT.metrics() == {}


@pytest.mark.parametrize("kind", [dict, tuple])
def test_a_joint_distribution_has_the_mean_of_its_continuous_components(kind):
    parts = {"a": CONTINUOUS["normal"], "b": DISCRETE, "c": CONTINUOUS["beta"]}
    joint = Joint(parts if kind is dict else tuple(parts.values()))
    own = [parts[name].metrics()["policy_std"] for name in "ac"]
    np.testing.assert_allclose(joint.metrics()["policy_std"], (own[0] + own[1]) / 2.0)
