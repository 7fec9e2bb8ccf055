"""Advantages in float64 NumPy, as forward sums from each step: an independent computation for the estimators.

Every estimator is a sum of one-step errors delta_u = rho (r_u + gamma V'_u - V_u) with weights (gamma c)^(u - t), up to
the end of an episode: lambda-returns in all their forms (Schulman et al. 2016, https://arxiv.org/abs/1506.02438, eq. 11
and 12).

The score test checks that log_prob is the density of the samples: its mean derivative by any parameter is then 0.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.types import Key, LearnerState, PyTree
from ppax.devices.layout import product_dtype
from ppax.ppo.advantages import GAE, CanonicalVTrace, MonteCarlo, TDLambda, VTrace
from ppax.ppo.forward import cast, in_float32
from ppax.ppo.ppo import PPO


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


# Score test

NOISE = 0.2  # standard deviation of the noise added to weights, so that the distribution is not uniform
DRAWS, TURNS = 64, 64  # samples per batch, and number of batches
DIRECTIONS, SPREAD = 64, 3.0  # random directions, and the deviation of their leaves' log magnitudes
SIGMAS = 6.0  # allowed deviation of a mean score, in standard errors


def scores(agent: PPO, learner: LearnerState, rows: PyTree, key: Key) -> tuple[Array, Array]:
    """Sums over samples of d log p / d direction and of its square, [DIRECTIONS, rows].

    Directions are random changes of the parameters and features that `decide` reads. Along the distribution's own
    fields the mean score need not be 0: they may depend on each other, as log-probabilities that sum to 1.
    """
    action_mask, count = rows[-1], rows[-2].shape[0]
    features = agent.policy(learner, *rows).features

    def fields(inputs: tuple[PyTree, PyTree]) -> list[Array]:
        """Return the floating-point fields of the distributions, [rows, ...]."""
        return list(filter(_smooth, jax.tree.leaves(_decided(agent, inputs[0], inputs[1], action_mask))))

    params = cast(learner.params, jnp.dtype(product_dtype(agent.compute_dtype)))
    inputs = (params, features)
    distribution = _decided(agent, params, features, action_mask)
    leaves, structure = jax.tree.flatten(distribution)
    directions_key, samples_key = jax.random.split(key)
    tangents = jax.lax.map(
        lambda key: _unit(jax.jvp(fields, (inputs,), (_direction(inputs, key),))[1]),
        jax.random.split(directions_key, DIRECTIONS),
    )

    def log_prob(own: list[Array], action: PyTree) -> Array:
        parameters = iter(own)
        merged = [next(parameters) if _smooth(x) else x for x in leaves]
        total: Array = jax.tree.unflatten(structure, merged).log_prob(action).sum()
        return total

    def turn(sums: tuple[Array, Array], key: Key) -> tuple[tuple[Array, Array], None]:
        actions = jax.vmap(distribution.sample)(jax.random.split(key, DRAWS))
        gradients = jax.vmap(jax.grad(log_prob), (None, 0))(list(filter(_smooth, leaves)), actions)
        pairs = zip(tangents, gradients, strict=True)
        scores = sum((jnp.einsum("knf,snf->skn", _flat(t, 2), _flat(g, 2)) for t, g in pairs), jnp.float32(0.0))
        return (sums[0] + scores.sum(0), sums[1] + (scores**2).sum(0)), None

    zeros = jnp.zeros((DIRECTIONS, count))
    sums: tuple[Array, Array] = jax.lax.scan(turn, (zeros, zeros), jax.random.split(samples_key, TURNS))[0]
    return sums


def _decided(agent: PPO, params: PyTree, features: PyTree, action_mask: PyTree | None) -> PyTree:
    return in_float32(jax.vmap(agent.network.decide, (None, 0, 0))(params, features, action_mask).distribution)


def _direction(tree: PyTree, key: Key) -> PyTree:
    """Random direction; magnitudes of leaves differ by powers of ten, so that each leaf dominates in some direction."""
    leaves, structure = jax.tree.flatten(tree)
    size_key, noise_key = jax.random.split(key)
    sizes = jnp.exp(SPREAD * jax.random.normal(size_key, (len(leaves),)))
    keys = jax.random.split(noise_key, len(leaves))
    noise = [size * jax.random.normal(k, x.shape) for size, k, x in zip(sizes, keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, [x.astype(like.dtype) for x, like in zip(noise, leaves, strict=True)])


def _unit(tangents: list[Array]) -> list[Array]:
    """Tangents [rows, ...] of all fields, scaled so that the largest element of each row is 1."""
    largest = jnp.stack([jnp.abs(_flat(x, 1)).max(axis=1) for x in tangents]).max(axis=0)
    scale = 1.0 / jnp.where(largest > 0.0, largest, 1.0)
    return [x * scale.reshape(scale.shape + (1,) * (x.ndim - 1)) for x in tangents]


def _flat(x: Array, axes: int) -> Array:
    """Merge all axes of `x` after the first `axes` into one."""
    return x.reshape(*x.shape[:axes], math.prod(x.shape[axes:]))


def _smooth(x: Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def with_noise(params: PyTree, key: Key) -> PyTree:
    """Add noise to the parameters."""
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    noise = [NOISE * jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, [x + y for x, y in zip(leaves, noise, strict=True)])


def excess(total: np.ndarray, squares: np.ndarray) -> float:
    """Largest |mean score| over its tolerance, SIGMAS standard errors + 20 / n (for rare actions never sampled)."""
    n = DRAWS * TURNS
    mean, second = total / n, squares / n
    error = np.sqrt(np.maximum(second - mean**2, 0.0) / n)
    excess = np.nan_to_num(np.abs(mean) / (SIGMAS * error + 20.0 / n), nan=np.inf)
    return float(np.max(excess, initial=0.0))
