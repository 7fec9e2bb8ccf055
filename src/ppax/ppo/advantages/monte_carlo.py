"""Monte-Carlo returns. Sutton and Barto 2018, chapter 5, http://incompleteideas.net/book/the-book-2nd.html

Eq. 3.8 and 3.9. If a time limit or the rollout's end cuts an episode, the return is bootstrapped from V.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import discounted_sum
from ppax.core.types import Scalar, Targets, Transition, part


@part
class MonteCarlo:
    """Monte-Carlo advantage: discounted return to the episode's end, minus V; high variance, no bias within an episode.

    Sutton and Barto 2018, chapter 5, http://incompleteideas.net/book/the-book-2nd.html
    """

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Targets [T] of one stream; `ratio` is unused."""
        last = steps.ended.at[-1].set(True)  # the rollout has no rewards after its last step
        bootstrap = last & ~steps.terminated
        value = discounted_sum(steps.reward + jnp.where(bootstrap, gamma * next_value, 0.0), gamma, steps.ended)
        return Targets(value - steps.value, value)
