"""Shared by all losses: the log-ratio, the weighted sum of the terms, and its metrics."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from ppax.arrays.metrics import reduced
from ppax.arrays.sequences import masked_means
from ppax.types import Batch, LossOutput, Scalar, Transition

LOG_RATIO_BOUND = 20.0  # exp(20) is far outside any clip range; it keeps ratios finite in float32


class Rows(NamedTuple):
    """Per-row terms of an objective, all [N]; `policy` and `value` are minimised, `entropy` is maximised."""

    policy: Array
    value: Array  # value loss
    entropy: Array
    log_ratio: Array


class RowWeights(NamedTuple):
    """Row weights in a minibatch's means over its valid rows; None: 1 for every row.

    `policy` and `acting` are 0 in rows without an allowed action and scaled up elsewhere: a mean over valid rows then
    equals the mean over rows with an allowed action, also when gradients are accumulated over chunks.
    """

    policy: Array | None  # [N] of the policy and entropy terms, importance weights included
    value: Array | None  # [N] of the value term: importance weights
    acting: Array | None  # [N] of the policy's diagnostics (KL, ratios), without importance weights


def bounded_log_ratio(log_prob: Array, steps: Transition) -> Array:
    """Log probability ratio of stored actions, current policy over the policy that acted, clipped at +-20."""
    return jnp.clip(log_prob - steps.log_prob, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def k3(log_ratio: Array) -> Array:
    """k3 estimate of KL(old || new) from actions of the old policy: (w - 1) - log w >= 0.

    Unbiased, with low variance: http://joschu.net/blog/kl-approx.html
    """
    return jnp.expm1(log_ratio) - log_ratio


def weighted(x: Array, weight: Array | None) -> Array:
    """`weight` times rows `x` [N]; 0 where the weight is 0, also if `x` is NaN there."""
    return x if weight is None else jnp.where(weight == 0.0, 0.0, weight * x)


def objective(rows: Rows, batch: Batch, vf_coef: Scalar, ent_coef: Scalar, **extra: Any) -> LossOutput:
    """Loss policy + vf_coef * value - ent_coef * entropy, each a weighted mean over valid rows.

    `extra` are further per-row diagnostics of the policy, [N]; their means become metrics.
    """
    weights = RowWeights(None, None, None) if batch.weights is None else batch.weights
    columns = [weighted(rows.policy, weights.policy), weighted(rows.value, weights.value)]
    columns += [weighted(rows.entropy, weights.policy)]
    columns += [weighted(x, weights.acting) for x in (k3(rows.log_ratio), *extra.values())]
    policy_loss, value_loss, entropy, approx_kl, *others = masked_means(columns, batch.steps.valid)
    ratio = jnp.exp(rows.log_ratio)
    acting = batch.steps.valid if weights.acting is None else batch.steps.valid & (weights.acting > 0.0)
    loss = policy_loss + vf_coef * value_loss - ent_coef * entropy
    means = {
        "loss": loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": approx_kl,
        **dict(zip(extra, others, strict=True)),
    }
    largest = reduced("max", {"ratio_max": jnp.max(ratio, where=acting, initial=0.0)})
    least = reduced("min", {"ratio_min": jnp.min(ratio, where=acting, initial=jnp.inf)})
    return LossOutput(loss, means | largest | least)
