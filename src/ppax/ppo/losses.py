"""Losses: policy objectives, one number for each row, and the sum of all terms of the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from ppax.arrays.metrics import Table, reduced
from ppax.arrays.sequences import masked_means
from ppax.core.protocols import PolicyTerms
from ppax.core.types import Batch, ConfigError, LossOutput, Scalar, Transition, number, part

__all__ = ["DPO", "SPO", "ClippedSurrogate", "KLPenalty", "NoPolicyLoss", "Rollback"]


@part
class ClippedSurrogate:
    """PPO's clipped surrogate loss. Schulman et al. 2017, https://arxiv.org/abs/1707.06347

    -min(w A, clip(w, 1 - eps, 1 + eps) A) of each row, with the probability ratio w (the paper's r_t) and the advantage
    A.

    Eq. 7 there. Dual clip: Ye et al. 2020, eq. 6, https://arxiv.org/abs/1912.09729
    """

    clip_eps: Scalar = number("clip range of the probability ratio: [1 - this, 1 + this]", default=0.2, above=0.0)
    dual_clip: Scalar | None = number(
        "dual clip: upper bound of the probability ratio where A < 0; none: off", default=None, above=1.0
    )

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Return the clipped surrogate loss and the log-ratio of each row, [N] each, and metrics.

        The metric `clip_fraction` is the share of ratios out of the clip range. `distribution` is the current policy's
        over the N rows of `batch`.
        """
        steps, advantage = batch.steps, batch.targets.advantage
        log_ratio = bounded_log_ratio(distribution.log_prob(steps.action), steps)
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1.0 - self.clip_eps, 1.0 + self.clip_eps)
        surrogate = jnp.minimum(ratio * advantage, clipped * advantage)  # eq. 7
        if self.dual_clip is not None:
            surrogate = jnp.where(advantage < 0.0, jnp.maximum(surrogate, self.dual_clip * advantage), surrogate)
        outside = jnp.abs(ratio - 1.0) > self.clip_eps
        return PolicyTerms(-surrogate, log_ratio, {"clip_fraction": outside})


@part
class KLPenalty:
    """Surrogate loss with a KL penalty. Schulman et al. 2017, eq. 8, https://arxiv.org/abs/1707.06347

    kl_coef * KL(old || new) - w A of each row, with the probability ratio w and the advantage A.

    The divergence is estimated from the stored log-probabilities (by `k3`), which works for every distribution. The
    extension KLControl may adapt `kl_coef` during training.
    """

    kl_coef: Scalar = number("KL penalty coefficient: weight of KL(old || new)", default=1.0, low=0.0)

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Return the surrogate loss with KL penalty and the log-ratio of each row, [N] each.

        The metric `policy_loss` includes the penalty. `distribution` is the current policy's over the N rows of
        `batch`.
        """
        log_ratio = bounded_log_ratio(distribution.log_prob(batch.steps.action), batch.steps)
        loss = self.kl_coef * k3(log_ratio) - jnp.exp(log_ratio) * batch.targets.advantage  # eq. 8, negated
        return PolicyTerms(loss, log_ratio)


@part
class DPO:
    """Discovered policy optimisation (DPO). Lu et al. 2022, https://arxiv.org/abs/2210.05639

    drift - w A of each row, where drift = relu(x - scale tanh(x / scale)), with x = (w - 1) A, scale = alpha
    for A >= 0, and x = log(w) A, scale = beta for A < 0.

    This is the drift function of section 5; w is the probability ratio (the paper's r), and A the advantage.
    """

    alpha: Scalar = number("drift scale for A >= 0: soft upper bound of (w - 1) A", default=2.0, above=0.0)
    beta: Scalar = number("drift scale for A < 0: soft upper bound of log(w) A", default=0.6, above=0.0)

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Return the loss of discovered policy optimisation and the log-ratio of each row, [N] each.

        The loss, and so the metric `policy_loss`, includes the drift, a penalty on leaving the policy of the rollout.
        `distribution` is the current policy's over the N rows of `batch`.
        """
        steps, advantage = batch.steps, batch.targets.advantage
        log_ratio = bounded_log_ratio(distribution.log_prob(steps.action), steps)
        good, ratio = advantage >= 0.0, jnp.exp(log_ratio)
        scale = jnp.where(good, self.alpha, self.beta)
        x = jnp.where(good, jnp.expm1(log_ratio), log_ratio) * advantage
        # relu of the difference, gated by x, which has its sign: the difference is only rounding near 0, and as gate
        # it made gradients of XLA's fused CPU program wrong by several percent (tests/ppo/losses/test_gradients.py)
        drift = jnp.where(x > 0.0, x - scale * jnp.tanh(x / scale), 0.0)
        return PolicyTerms(drift - ratio * advantage, log_ratio)


@part
class SPO:
    """Policy loss of simple policy optimisation (SPO). Xie et al. 2025, https://arxiv.org/abs/2401.16025

    The loss of each row is |A| (w - 1)^2 / (2 eps) - w A, with the probability ratio w and the advantage A. Its
    minimum is at w = 1 + eps for A > 0 and 1 - eps for A < 0; past it, the gradient pulls w back.
    """

    clip_eps: Scalar = number("distance of the probability ratio from 1 at the optimum", default=0.2, above=0.0)

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Return SPO's loss and the log-ratio of each row, [N] each, and metrics.

        The metric `clip_fraction` is the share of ratios further than `clip_eps` from 1, on either side. `distribution`
        is the current policy's over the N rows of `batch`.
        """
        steps, advantage = batch.steps, batch.targets.advantage
        log_ratio = bounded_log_ratio(distribution.log_prob(steps.action), steps)
        ratio = jnp.exp(log_ratio)
        penalty = jnp.abs(advantage) * (ratio - 1.0) ** 2 / (2.0 * self.clip_eps)
        return PolicyTerms(
            penalty - ratio * advantage, log_ratio, {"clip_fraction": jnp.abs(ratio - 1.0) > self.clip_eps}
        )


@part
class Rollback:
    """Clipped surrogate with rollback (PPO-RB). Wang et al. 2019, https://arxiv.org/abs/1903.07940

    -min(w A, F(w) A) of each row, with the probability ratio w (the paper's r_t). Within [1 - eps, 1 + eps], F(w) = w;
    outside, F(w) = (1 + alpha) e - alpha w, where e is the nearer bound. F is the paper's F^RB, and continuous.
    """

    clip_eps: Scalar = number("clip range of the probability ratio: [1 - this, 1 + this]", default=0.2, above=0.0)
    slope: Scalar = number("alpha: slope back to the clip range; 0: the clipped surrogate", default=0.3, low=0.0)

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Return the loss with rollback and the log-ratio of each row, [N] each, and metrics.

        The metric `clip_fraction` is the share of ratios out of the clip range. `distribution` is the current policy's
        over the N rows of `batch`.
        """
        steps, advantage = batch.steps, batch.targets.advantage
        log_ratio = bounded_log_ratio(distribution.log_prob(steps.action), steps)
        ratio = jnp.exp(log_ratio)
        end = jnp.clip(ratio, 1.0 - self.clip_eps, 1.0 + self.clip_eps)  # the ratio itself within the range
        back = end + self.slope * (end - ratio)
        surrogate = jnp.minimum(ratio * advantage, back * advantage)
        return PolicyTerms(-surrogate, log_ratio, {"clip_fraction": jnp.abs(ratio - 1.0) > self.clip_eps})


@part
class NoPolicyLoss:
    """Policy loss of 0, in place of PPO's, for learning by imitation alone. Value and entropy terms stay."""

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Return a policy loss of 0 and the log-ratio of each row, [N] each, for metrics such as `approx_kl`.

        `distribution` is the current policy's over the N rows of `batch`.
        """
        log_ratio = bounded_log_ratio(distribution.log_prob(batch.steps.action), batch.steps)
        return PolicyTerms(jnp.zeros_like(log_ratio), log_ratio)


LOG_RATIO_BOUND = 20.0  # exp(20) is far outside any clip range; it keeps ratios finite in float32


def bounded_log_ratio(log_prob: Array, steps: Transition) -> Array:
    """Return the log of the probability ratio of stored actions, current policy over the policy that acted.

    The result has the shape of `log_prob`, and is clipped to [-20, 20]. `log_prob` is the log-probability of the
    actions of `steps` under the current policy.
    """
    return jnp.clip(log_prob - steps.log_prob, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def k3(log_ratio: Array) -> Array:
    """Return the k3 estimate of KL(old || new) from actions of the old policy: (w - 1) - log w >= 0.

    `log_ratio` is log w, current policy over old. Unbiased, with low variance: http://joschu.net/blog/kl-approx.html
    """
    return jnp.expm1(log_ratio) - log_ratio


class RowWeights(NamedTuple):
    """Three weights of each of a minibatch's N rows in means over valid rows; None where each row has the weight 1.

    `policy` is for the policy loss and the entropy, `value` for the value loss and further terms; both include
    importance weights. `acting` is for diagnostics of the policy, without importance weights. `policy` and `acting` are
    0 in rows whose action mask allows no action, and scaled up in all others: a mean over valid rows then equals the
    mean over rows in which some action is allowed, also when gradients are accumulated over chunks.
    """

    policy: Array | None  # [N] of the policy and entropy terms, importance weights included
    value: Array | None  # [N] of the value and further terms: importance weights
    acting: Array | None  # [N] of the policy's diagnostics (KL, ratios), without importance weights


def total_loss(
    policy: PolicyTerms,
    value: Array,
    distribution: Any,
    *,
    vf_coef: Scalar,
    ent_coef: Scalar,
    further: Mapping[str, Array],
    metrics: Mapping[str, Array],
    batch: Batch,
) -> LossOutput:
    """Return the loss policy + vf_coef * value - ent_coef * entropy + further terms, and its metrics.

    Each term is the weighted mean of its rows [N] over the valid ones. Eq. 9 of Schulman et al. 2017. `value` [N] is
    the critic's loss; `distribution` over the N rows is the policy's, which has the entropy, and metrics, such as
    `policy_std`. `further` are the extensions' terms by name, [N] each; `metrics` are the extensions' metrics, which
    are only logged.
    """
    entropy, shown = distribution.entropy(), distribution.metrics()
    _require_rows("loss", {"loss": policy.loss, "log_ratio": policy.log_ratio} | dict(policy.metrics), batch)
    _require_rows("critic", {"value_loss": value}, batch)
    _require_rows("network.distribution", {"entropy": entropy} | dict(shown), batch)
    _require_rows("extensions", {**further, **metrics}, batch)
    weights = RowWeights(None, None, None) if batch.weights is None else batch.weights
    columns = [weighted(policy.loss, weights.policy), weighted(value, weights.value)]
    columns += [weighted(entropy, weights.policy)]
    columns += [weighted(x, weights.acting) for x in (k3(policy.log_ratio), *policy.metrics.values(), *shown.values())]
    columns += [weighted(x, weights.value) for x in (*further.values(), *metrics.values())]
    names = ["policy_loss", "value_loss", "entropy", "approx_kl"]
    names += [*policy.metrics, *shown, *further, *metrics]
    _require_distinct(names)
    means = dict(zip(names, masked_means(columns, batch.steps.valid), strict=True))
    loss = means["policy_loss"] + vf_coef * means["value_loss"] - ent_coef * means["entropy"]
    for name in further:
        loss = loss + means[name]
    return LossOutput(loss, {"loss": loss} | means | ratio_extremes(policy.log_ratio, batch, weights))


def weighted(x: Array, weight: Array | None) -> Array:
    """Return the rows `x` [N] multiplied by `weight` [N]; if `weight` is None, `x` unchanged.

    Where the weight is 0, the result is 0, even if `x` is NaN there.
    """
    return x if weight is None else jnp.where(weight == 0.0, 0.0, weight * x)


def acting_weight(batch: Batch) -> Array | None:
    """Return `RowWeights.acting` [N] of the rows of `batch`; None where each row has the weight 1."""
    return None if batch.weights is None else batch.weights.acting


def ratio_extremes(log_ratio: Array, batch: Batch, weights: RowWeights) -> Table:
    """Return the metrics `ratio_max` and `ratio_min`: extremes of the rows' probability ratio.

    Only rows that the policy learns from count, as `weights` say. `log_ratio` [N] is the log of the ratio.
    """
    acting = batch.steps.valid if weights.acting is None else batch.steps.valid & (weights.acting > 0.0)
    ratio = jnp.exp(log_ratio)
    largest = reduced("max", {"ratio_max": jnp.max(ratio, where=acting, initial=0.0)})
    return largest | reduced("min", {"ratio_min": jnp.min(ratio, where=acting, initial=jnp.inf)})


def _require_rows(slot: str, terms: Mapping[str, Array], batch: Batch) -> None:
    """Raise ConfigError if a term is not one number for each row; `slot` names the part that made `terms`."""
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
    """Raise ConfigError if two terms of the loss have the same name, or one has the name of a metric of the loss."""
    taken = [*names, "loss", "ratio_max", "ratio_min"]
    twice = [name for name in names if taken.count(name) > 1]
    if twice:
        raise ConfigError(f"loss: the metric {twice[0]!r} exists already; give the term of your part another name")
