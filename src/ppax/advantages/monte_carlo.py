"""Monte-Carlo returns. Sutton and Barto 2018, chapter 5, http://incompleteideas.net/book/the-book-2nd.html

Eq. 3.8 and 3.9 there. Where an episode is cut, by a time limit or by the rollout's end, the critic stands for the rest.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import discounted_sum
from ppax.types import Scalar, Targets, Transition, part


@part
class MonteCarlo:
    """The discounted return to the episode's end, less V: no bias within an episode, much variance."""

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Targets [T] of one stream; `ratio` plays no role."""
        last = steps.ended.at[-1].set(True)  # the rollout knows no reward after these steps
        bootstrap = last & ~steps.terminated
        value = discounted_sum(steps.reward + jnp.where(bootstrap, gamma * next_value, 0.0), gamma, steps.ended)
        return Targets(value - steps.value, value)
