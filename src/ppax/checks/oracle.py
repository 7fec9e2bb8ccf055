"""Advantages in float64 NumPy, as forward sums from each step: an independent computation for the estimators.

Every estimator is a sum of one-step errors delta_u = rho (r_u + gamma V'_u - V_u) with weights (gamma c)^(u - t), up to
the end of an episode: lambda-returns in all their forms (Schulman et al. 2016, https://arxiv.org/abs/1506.02438, eq. 11
and 12).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppax.advantages import GAE, CanonicalVTrace, MonteCarlo, TDLambda, VTrace


class Weights(NamedTuple):
    """Coefficients of an estimator where all ratios are 1."""

    trace: float  # c
    step: float = 1.0  # rho
    canonical: bool = False  # the advantage is one-step, with the next target as next value


def weights_of(part: Any) -> Weights | None:
    """Coefficients of an estimator of ppax; None for any other."""
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
    reward, value, next_v = (np.asarray(x, np.float64) for x in (steps.reward, steps.value, next_value))
    terminated, truncated = np.asarray(steps.terminated), np.asarray(steps.truncated)
    ended = terminated | truncated
    next_v = np.where(terminated, 0.0, next_v)
    delta = weights.step * (reward + gamma * next_v - value)
    total = np.zeros_like(delta)
    for t in range(len(delta)):
        weight, in_episode = 1.0, np.ones(delta.shape[1], bool)
        for u in range(t, len(delta)):
            total[t] += np.where(in_episode, weight * delta[u], 0.0)
            weight, in_episode = weight * gamma * weights.trace, in_episode & ~ended[u]
    target = value + total
    if not weights.canonical:
        return total, target
    following = np.where(ended, next_v, np.concatenate([target[1:], next_v[-1:]]))
    return weights.step * (reward + gamma * following - value), target
