"""TD(lambda): the lambda-return as value target. Sutton 1988, https://doi.org/10.1007/BF00115009

Eq. 12.2 of Sutton and Barto 2018, in its backward form: G_t = r_t + gamma ((1 - lambda) V'_t + lambda G_{t+1}).

If V'_t = V_{t+1}, as in PPO, this equals GAE with the same lambda, up to rounding. They differ if the next values are
not the values of the next rows, for example with a target network.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import discounted_sum
from ppax.core.types import Scalar, Targets, Transition, number, part


@part
class TDLambda:
    """TD(lambda): value targets are lambda-returns; advantages are lambda-returns minus V.

    The lambda-return is the mean of the n-step returns with weights (1 - lambda) lambda^(n-1). Sutton 1988,
    https://doi.org/10.1007/BF00115009
    """

    td_lambda: Scalar = number("TD lambda: 0: one-step target; 1: full return", default=0.95, low=0.0, high=1.0)

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Targets [T] of one stream; `ratio` is unused."""
        last = steps.ended.at[-1].set(True)  # the longest n-step return ends here and has all remaining weight
        share = jnp.where(last, 1.0, 1.0 - self.td_lambda)
        bootstrap = jnp.where(steps.terminated, 0.0, share * next_value)
        value = discounted_sum(steps.reward + gamma * bootstrap, gamma * self.td_lambda, steps.ended)
        return Targets(value - steps.value, value)
