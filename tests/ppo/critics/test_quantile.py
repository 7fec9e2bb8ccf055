"""Quantile critic: loss and slopes by hand, quantiles of a known distribution, refused options."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ppax
from ppax import config
from ppax.ppo.critics import Quantile


def test_loss_and_gradient_by_hand():
    # tau = 1/4, 3/4; R = 1, q = (0.5, 3): u = (.5, -2), kappa 1: weights 1/4 and 1 - 3/4
    # losses .25 * .125 and .25 * 1.5, over 2; slopes by q -.25 * .5 / 2 and .25 / 2
    critic, outputs = Quantile(2), jnp.array([0.5, 3.0])
    loss, slope = jax.value_and_grad(critic.error, argnums=1)((), outputs, jnp.float32(1.0), jnp.float32(9.0))
    np.testing.assert_allclose(loss, (0.03125 + 0.375) / 2, rtol=1e-6)
    np.testing.assert_allclose(slope, [-0.0625, 0.125], rtol=1e-6)
    assert critic.value((), outputs) == 1.75
    # kappa .25: .5 is beyond it, (.5 - .125); none: .5 and 2 themselves
    np.testing.assert_allclose(Quantile(2, 0.25).error((), outputs, 1.0, 0.0), (0.25 * 0.375 + 0.25 * 1.875) / 2)
    np.testing.assert_allclose(Quantile(2, None).error((), outputs, 1.0, 0.0), (0.125 + 0.5) / 2)


def test_quantiles_of_a_skewed_distribution_are_learned():
    """Of an exponential distribution the quantile at tau is -log(1 - tau); without Huber they are exact."""
    critic, targets = Quantile(5, None), jnp.float32(stats.expon.ppf((np.arange(4000) + 0.5) / 4000))

    @jax.jit
    def fitted(outputs):
        def step(i, q):
            loss = lambda q: jax.vmap(critic.error, (None, None, 0, None))((), q, targets, 0.0).mean()  # noqa: E731
            return q - 2.0 / (1.0 + 0.02 * i) * jax.grad(loss)(q)

        return jax.lax.fori_loop(0, 3000, step, outputs)

    tau = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    np.testing.assert_allclose(fitted(jnp.zeros(5)), -np.log(1.0 - tau), atol=0.02)


def test_a_run_file_chooses_it_and_its_numbers_are_checked():
    agent = config.build({"agent": {"critic": {"part": "quantile", "num_quantiles": 7, "kappa": "none"}}}).agent
    assert agent.critic == Quantile(7, None)
    assert config.build({"agent": config.describe(agent)}).agent == agent
    for option, message in (({"kappa": 0.0}, "must be above 0"), ({"num_quantiles": 0}, "must be at least 1")):
        with pytest.raises(ppax.ConfigError, match=message):
            config.resolve({"agent": {"critic": {"part": "quantile"} | option}})
