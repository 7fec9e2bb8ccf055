"""Heads: from a network's numbers to a distribution over an action space."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.distributions import Categorical, Normal
from ppax.types import ConfigError, part, static


@part
class CategoricalHead:
    """One number for each action of a Discrete space."""

    size: int = static()  # numbers it takes from the network
    start: int = static(default=0)
    log_std_size: int = static(default=0)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: Array | None) -> Categorical:
        """Distribution from `outputs` [size]."""
        return Categorical.masked(outputs, action_mask, self.start)


@part
class NormalHead:
    """One mean for each element of a Box, and a log standard deviation that does not depend on the state."""

    size: int = static()
    low: tuple[float, ...] = static()
    high: tuple[float, ...] = static()
    shape: tuple[int, ...] = static()

    @property
    def log_std_size(self) -> int:
        """Free parameters beside the network's outputs."""
        return self.size

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: Array | None) -> Normal:
        """Distribution from `outputs` [size] and `log_std` [size]."""
        assert log_std is not None
        return Normal(outputs, log_std, self.low, self.high, self.shape)


Head = CategoricalHead | NormalHead


def head_for(space: spaces.Space) -> Head:
    """The head that fits an action space."""
    if isinstance(space, spaces.Discrete):
        return CategoricalHead(size=int(space.n), start=int(space.start))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = (tuple(float(x) for x in np.ravel(bound)) for bound in (space.low, space.high))
        return NormalHead(size=len(low), low=low, high=high, shape=tuple(space.shape))
    raise ConfigError(
        f"action space {space}: supported are Discrete and Box of floats; "
        "for another space write a network whose `decide` returns your own distribution"
    )
