"""What losses have in common: the log-ratio, the sum of all terms and its metrics."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from ppax.arrays.metrics import reduced
from ppax.arrays.sequences import masked_means
from ppax.types import Batch, LossOutput, Scalar, Transition

LOG_RATIO_BOUND = 20.0  # exp(20) is far outside any clip; it keeps a runaway ratio finite in float32


class Rows(NamedTuple):
    """The terms of an objective for each row, all [N]; those that are descended have their sign turned already."""

    policy: Array
    value: Array  # the critic's own loss
    entropy: Array
    log_ratio: Array


class RowWeights(NamedTuple):
    """Weights of rows in a minibatch's means over its valid rows; None: 1 for every row.

    `policy` and `acting` are 0 where no action could be chosen, and larger elsewhere in proportion, so that a mean over
    valid rows is one over the rows with a choice, also in chunks of a minibatch.
    """

    policy: Array | None  # [N] of the policy and entropy terms, importance weights included
    value: Array | None  # [N] of the value term: importance weights
    acting: Array | None  # [N] of diagnostics of the policy (KL, ratios), without importance weights


def bounded_log_ratio(log_prob: Array, steps: Transition) -> Array:
    """Log of the probability of each stored action now over that when it was taken."""
    return jnp.clip(log_prob - steps.log_prob, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def k3(log_ratio: Array) -> Array:
    """Estimate of KL(old || new) from actions of the old policy, never negative: (w - 1) - log w.

    http://joschu.net/blog/kl-approx.html: unbiased, with little variance.
    """
    return jnp.expm1(log_ratio) - log_ratio


def weighed(x: Array, weight: Array | None) -> Array:
    """`weight` times rows `x` [N]; 0 where the weight is 0, whatever stands there."""
    return x if weight is None else jnp.where(weight == 0.0, 0.0, weight * x)


def objective(rows: Rows, batch: Batch, vf_coef: Scalar, ent_coef: Scalar, **extra: Any) -> LossOutput:
    """Policy + vf_coef * value - ent_coef * entropy, means over valid rows by their weights.

    `extra` rows [N] are diagnostics of the policy and become metrics.
    """
    weights = RowWeights(None, None, None) if batch.weights is None else batch.weights
    columns = [weighed(rows.policy, weights.policy), weighed(rows.value, weights.value)]
    columns += [weighed(rows.entropy, weights.policy)]
    columns += [weighed(x, weights.acting) for x in (k3(rows.log_ratio), *extra.values())]
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
