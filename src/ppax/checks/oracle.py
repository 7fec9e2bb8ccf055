"""Advantages in float64 NumPy, as sums forward from each step: a second way to the estimators' results.

All of them are sums of one-step errors delta_u = rho (r_u + gamma V'_u - V_u) with weights (gamma c)^(u - t), up to the
end of an episode: lambda-returns in every form (Schulman et al. 2016, https://arxiv.org/abs/1506.02438, eq. 11 and 12).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppax.advantages import GAE, CanonicalVTrace, MonteCarlo, TDLambda, VTrace


class Weights(NamedTuple):
    """What an estimator is, on the policy that acted."""

    trace: float  # c
    step: float = 1.0  # rho
    canonical: bool = False  # the advantage looks one step ahead, to the next target


def weights_of(part: Any) -> Weights | None:
    """The weights of one of ppax's estimators; None for any other."""
    if type(part) is GAE:
        return Weights(float(part.gae_lambda))
    if type(part) is TDLambda:
        return Weights(float(part.td_lambda))
    if type(part) is MonteCarlo:
        return Weights(1.0)
    if type(part) is VTrace:
        return Weights(float(part.gae_lambda) * min(1.0, float(part.c_clip)), min(1.0, float(part.rho_clip)))
    if type(part) is CanonicalVTrace:
        trace = float(part.trace_lambda) * min(1.0, float(part.c_clip))
        return Weights(trace, min(1.0, float(part.rho_clip)), canonical=True)
    return None


def targets(weights: Weights, steps: Any, next_value: Any, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Advantages and value targets [T, B] from steps and the value after each."""
    reward, value, beyond = (np.asarray(x, np.float64) for x in (steps.reward, steps.value, next_value))
    terminated, truncated = np.asarray(steps.terminated), np.asarray(steps.truncated)
    ended = terminated | truncated
    beyond = np.where(terminated, 0.0, beyond)
    delta = weights.step * (reward + gamma * beyond - value)
    total = np.zeros_like(delta)
    for t in range(len(delta)):
        weight, goes_on = 1.0, np.ones(delta.shape[1], bool)
        for u in range(t, len(delta)):
            total[t] += np.where(goes_on, weight * delta[u], 0.0)
            weight, goes_on = weight * gamma * weights.trace, goes_on & ~ended[u]
    target = value + total
    if not weights.canonical:
        return total, target
    following = np.where(ended, beyond, np.concatenate([target[1:], beyond[-1:]]))
    return weights.step * (reward + gamma * following - value), target
