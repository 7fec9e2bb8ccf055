"""TD(lambda): the lambda-return as the target. Sutton 1988, https://doi.org/10.1007/BF00115009

Eq. 12.2 of Sutton and Barto 2018, in its backward form: G_t = r_t + gamma ((1 - lambda) V'_t + lambda G_{t+1}).

Where V'_t is V_{t+1}, and in PPO it is, this is GAE with the same lambda, but for rounding. They part where the next
values are not those of the next rows, as with a target network.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import discounted_sum
from ppax.types import Scalar, Targets, Transition, number, part


@part
class TDLambda:
    """Targets: the n-step returns, weighted with (1 - lambda) lambda^(n-1); advantages are those less V."""

    td_lambda: Scalar = number("0: one-step target; 1: return to the episode's end", default=0.95, low=0.0, high=1.0)

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Targets [T] of one stream; `ratio` plays no role."""
        last = steps.ended.at[-1].set(True)  # no longer return than to here, so the last one has all weight left
        share = jnp.where(last, 1.0, 1.0 - self.td_lambda)
        beyond = jnp.where(steps.terminated, 0.0, share * next_value)
        value = discounted_sum(steps.reward + gamma * beyond, gamma * self.td_lambda, steps.ended)
        return Targets(value - steps.value, value)
