"""Sum of all terms of the loss, its metrics, and the log-ratio that policy objectives share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from ppax.arrays.metrics import Table, reduced
from ppax.arrays.sequences import masked_means
from ppax.core.protocols import PolicyTerms
from ppax.core.types import Batch, ConfigError, LossOutput, Scalar, Transition

LOG_RATIO_BOUND = 20.0  # exp(20) is far outside any clip range; it keeps ratios finite in float32


class RowWeights(NamedTuple):
    """Row weights in a minibatch's means over its valid rows; None: 1 for every row.

    `policy` and `acting` are 0 in rows without an allowed action and scaled up elsewhere: a mean over valid rows then
    equals the mean over rows with an allowed action, also when gradients are accumulated over chunks.
    """

    policy: Array | None  # [N] of the policy and entropy terms, importance weights included
    value: Array | None  # [N] of the value and further terms: importance weights
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


def total_loss(
    policy: PolicyTerms,
    value: Array,
    entropy: Array,
    *,
    vf_coef: Scalar,
    ent_coef: Scalar,
    further: Mapping[str, Array],
    metrics: Mapping[str, Array],
    batch: Batch,
) -> LossOutput:
    """Loss policy + vf_coef * value - ent_coef * entropy + further terms: weighted means of rows [N] over valid rows.

    Eq. 9 of Schulman et al. 2017. `value` are the critic's losses, `entropy` that of the policy; `further` terms and
    `metrics`, which are only logged, are those of extensions.
    """
    _require_rows("loss", {"loss": policy.loss, "log_ratio": policy.log_ratio} | dict(policy.metrics), batch)
    _require_rows("extensions", {**further, **metrics}, batch)
    weights = RowWeights(None, None, None) if batch.weights is None else batch.weights
    columns = [weighted(policy.loss, weights.policy), weighted(value, weights.value)]
    columns += [weighted(entropy, weights.policy)]
    columns += [weighted(x, weights.acting) for x in (k3(policy.log_ratio), *policy.metrics.values())]
    columns += [weighted(x, weights.value) for x in (*further.values(), *metrics.values())]
    names = ["policy_loss", "value_loss", "entropy", "approx_kl"]
    names += [*policy.metrics, *further, *metrics]
    _require_distinct(names)
    means = dict(zip(names, masked_means(columns, batch.steps.valid), strict=True))
    loss = means["policy_loss"] + vf_coef * means["value_loss"] - ent_coef * means["entropy"]
    for name in further:
        loss = loss + means[name]
    return LossOutput(loss, {"loss": loss} | means | ratio_extremes(policy.log_ratio, batch, weights))


def with_metrics(terms: PolicyTerms, distribution: Any) -> PolicyTerms:
    """`terms` with the distribution's diagnostics added to its own metrics."""
    return terms._replace(metrics={**terms.metrics, **distribution.metrics()})


def ratio_extremes(log_ratio: Array, batch: Batch, weights: RowWeights) -> Table:
    """Largest and smallest probability ratio of the rows that the policy learns from."""
    acting = batch.steps.valid if weights.acting is None else batch.steps.valid & (weights.acting > 0.0)
    ratio = jnp.exp(log_ratio)
    largest = reduced("max", {"ratio_max": jnp.max(ratio, where=acting, initial=0.0)})
    return largest | reduced("min", {"ratio_min": jnp.min(ratio, where=acting, initial=jnp.inf)})


def _require_rows(slot: str, terms: Mapping[str, Array], batch: Batch) -> None:
    """Raise ConfigError for a term of the part in `slot` that is not one number for each row."""
    rows = batch.steps.valid.shape
    for name, x in terms.items():
        shape = jnp.shape(x)
        if shape != rows:
            remedy = (
                f"take its mean over each row, {name}.reshape({rows[0]}, -1).mean(axis=-1)"
                if shape[:1] == rows
                else f"write jnp.full(batch.steps.valid.shape, {name}) for one number of the whole minibatch"
            )
            raise ConfigError(
                f"agent.{slot}: its term {name!r} has shape {_listed(shape)}, and must have one number for each row, "
                f"{_listed(rows)}: {remedy}"
            )


def _listed(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _require_distinct(names: Sequence[str]) -> None:
    """Raise ConfigError if two terms of the loss have the same name."""
    taken = [*names, "loss", "ratio_max", "ratio_min"]
    twice = [name for name in names if taken.count(name) > 1]
    if twice:
        raise ConfigError(f"loss: the metric {twice[0]!r} exists already; give the term of your part another name")
