"""Reparameterised sampling: actions from noise drawn in advance for a whole rollout, for policies run in NumPy."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ppax.core.protocols import Distribution
from ppax.core.types import PyTree
from ppax.distributions import BallNormal, Categorical, Factorised, Joint, Normal, SquashedNormal

NORMAL = (Normal, SquashedNormal, BallNormal)


def action_from_noise(distribution: Distribution, noise: PyTree) -> PyTree:
    """Return the action for `noise` from `noise_for`, distributed like `distribution.sample`.

    Raises TypeError for distributions that have no reparameterisation here.
    """
    if isinstance(distribution, Categorical):
        # Gumbel-max trick: Maddison et al. 2014, https://arxiv.org/abs/1411.0030
        return jnp.argmax(distribution.logits + noise, axis=-1).astype(jnp.int32)
    if isinstance(distribution, Factorised):
        return action_from_noise(distribution.component, noise)
    if isinstance(distribution, NORMAL):
        return distribution.from_noise(noise)
    if isinstance(distribution, Joint):
        return distribution._each(action_from_noise, noise)
    raise TypeError(f"no noise for {type(distribution).__name__}")


def noise_for(distribution: Distribution, num_steps: int, rng: np.random.Generator) -> PyTree:
    """Draw noise [T, ...] for `num_steps` steps of `distribution`, of which only shapes are read.

    Raises TypeError for distributions that have no reparameterisation here.
    """
    if isinstance(distribution, Categorical):
        return rng.gumbel(size=(num_steps, *distribution.logits.shape)).astype(np.float32)
    if isinstance(distribution, Factorised):
        return noise_for(distribution.component, num_steps, rng)
    if isinstance(distribution, NORMAL):
        return rng.standard_normal((num_steps, *distribution.mean.shape), np.float32)
    if isinstance(distribution, Joint):
        parts = distribution.components
        if isinstance(parts, dict):
            return {name: noise_for(parts[name], num_steps, rng) for name in sorted(parts)}
        return tuple(noise_for(part, num_steps, rng) for part in parts)
    raise TypeError(f"no noise for {type(distribution).__name__}")
