"""Actions of an environment as a distribution samples them: the inverse of `env_action`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.types import ConfigError, PyTree
from ppax.distributions import Beta, Categorical, Factorised, Joint, Normal, SquashedNormal
from ppax.distributions.boxes import along, centre_and_half

KNOWN = (Beta, Categorical, Factorised, Joint, Normal, SquashedNormal)
EDGE = 1e-6  # share of the half width by which actions at the bounds are moved inside: there tanh has no inverse


def as_sampled(distribution: Any, action: PyTree) -> PyTree:
    """Return actions [N, ...] of the environment as `distribution` samples them; ConfigError without inverse."""
    if type(distribution) is Joint:
        parts = distribution.components
        if isinstance(parts, dict):
            return {name: as_sampled(one, action[name]) for name, one in parts.items()}
        return tuple(map(as_sampled, parts, action))
    if type(distribution) is Categorical:
        return action - distribution.start
    if type(distribution) is Factorised:
        return action.reshape(len(action), -1) - np.asarray(distribution.start, action.dtype)[None]
    if type(distribution) in (Normal, SquashedNormal, Beta):
        return _in_box(distribution, action.reshape(len(action), -1).astype(jnp.float32))
    raise ConfigError(
        f"behaviour cloning needs a distribution whose map to actions has an inverse, not "
        f"{type(distribution).__name__}; must be one of {', '.join(known.__name__ for known in KNOWN)}"
    )


def _in_box(distribution: Any, x: Array) -> Array:
    """Return vectors [N, d] of a Box as they are sampled."""
    if type(distribution) is Normal:
        return x
    if type(distribution) is Beta:
        low, high = (along(bound, x.ndim) for bound in (distribution.low, distribution.high))
        return (x - low) / (high - low)  # its density keeps away from 0 and 1
    centre, half = (along(bound, x.ndim) for bound in centre_and_half(distribution.low, distribution.high))
    return jnp.arctanh(jnp.clip((x - centre) / half, -1.0 + EDGE, 1.0 - EDGE))
