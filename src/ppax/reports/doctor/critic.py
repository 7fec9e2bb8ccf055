"""Rules on the critic: explained variance, scale of its targets, its share of the gradient."""

from __future__ import annotations

import numpy as np

from ppax.reports.doctor.findings import Finding, Remedy, Rule, rounded, shown
from ppax.reports.doctor.record import Record, first, median, share

EXPLAINED = 0.1  # a critic that predicts a constant explains 0
# Error of V over the mean target below which a low explained variance means nothing: on a solved CartPole all targets
# are alike, and what is left of their variance is rounding (measured: explained variance -3, error 0.2 %)
PRECISE = 0.1
# Root mean square. Units bounded by tanh saturate at targets of 100; the critic stops learning (docs/normalisation.md)
TARGETS_LARGE = 50.0
# Gradient clipping leaves the policy a tenth of its gradient; median norms of healthy runs: 0.5 to 3 times the limit
CLIPPED_BY = 10.0
DOMINATES = 0.9  # share of the value term in the loss


def explained_variance_low(record: Record) -> Finding | None:
    """Explained variance near 0 or below in the second half of the rows, with an error that matters."""
    explained, std = record.late("explained_variance"), record.late("target_std")
    error = np.sqrt(np.maximum(0.0, 1.0 - explained)) * std
    bad = (explained < EXPLAINED) & (std > 0.0) & (error > PRECISE * np.abs(record.late("target_mean")))
    if share(bad, explained) <= 0.5:
        return None
    value = shown(median(explained))
    return Finding(
        f"The critic does not predict the returns: the median explained_variance of the second half of the rows is "
        f"{value} (1 is perfect, 0 a constant), so advantages are mostly noise.",
        _better_critic(record),
        row=len(record.rows) // 2 + first(bad),
    )


def targets_large(record: Record) -> Finding | None:
    """Value targets that are large for a critic that regresses on them unscaled."""
    scale = np.sqrt(record.column("target_mean") ** 2 + record.column("target_std") ** 2)
    large = scale > TARGETS_LARGE
    if record.option("critic.part") != "regression" or share(large, scale) <= 0.5:
        return None
    if record.option("normalize_reward"):
        remedy = Remedy("standardises the targets of the critic", record.path("critic.part"), "popart")
    else:
        remedy = _scaled_rewards(record)
    seen = f"half of the rows have value targets of {shown(median(scale))} and more (root mean square)"
    return Finding(f"Rewards are too large for the critic: {seen}.", remedy, row=first(large))


def value_loss_dominates(record: Record) -> Finding | None:
    """Value term that makes up nearly all of the loss, while gradient clipping cuts most of the gradient."""
    limit, weight = record.number("max_grad_norm"), record.number("vf_coef")
    norm, value = record.column("grad_norm"), weight * record.column("value_loss")
    others = np.abs(record.column("policy_loss")) + record.number("ent_coef") * np.abs(record.column("entropy"))
    part = value / (value + others)
    cut = (norm > CLIPPED_BY * limit) & (part > DOMINATES)  # False without gradient clipping, where the limit is NaN
    if share(cut, norm) <= 0.5:
        return None
    figures = f"vf_coef * value_loss is {median(part):.0%} of the loss, grad_norm {shown(median(norm))}"
    return Finding(
        f"The value loss takes the gradient: {figures} (medians), {shown(median(norm) / limit)} times max_grad_norm: "
        "clipping shortens the policy's gradient as much.",
        Remedy("less weight for the value loss", record.path("vf_coef"), rounded(weight / 10.0))
        if record.option("normalize_reward")
        else _scaled_rewards(record),
        row=first(cut),
    )


def _scaled_rewards(record: Record) -> Remedy:
    return Remedy("divides rewards by the std of the discounted return", record.path("normalize_reward"), True)


def _better_critic(record: Record) -> Remedy:
    """Scaled rewards; where they are, more epochs; with many of these a memory, as an observation may not suffice."""
    epochs = record.number("num_epochs")
    if not record.option("normalize_reward"):
        return _scaled_rewards(record)
    if epochs < 10:
        return Remedy("more gradient steps for the critic", record.path("num_epochs"), min(10, 2 * int(epochs)))
    if record.option("network.memory.part") == "none" and record.option("network.critic.memory.part") in (None, "same"):
        reason = "the value may depend on the past, which one observation does not show"
        return Remedy(reason, record.path("network.memory.part"), "gru")
    own = "" if record.option("network.critic.hidden") is None else "critic."
    return Remedy("a larger network", record.path(f"network.{own}hidden"), [256, 256])


RULES = (
    Rule(
        "targets_large",
        f"root mean square of the value targets above {TARGETS_LARGE:g} in half of the rows (critic `regression`)",
        "`agent.normalize_reward`, `agent.critic.part`",
        ("target_mean", "target_std"),
        targets_large,
    ),
    Rule(
        "explained_variance_low",
        f"`explained_variance` below {EXPLAINED} in the second half of the rows, where the critic's error is above "
        f"{PRECISE:.0%} of the mean target",
        "`agent.normalize_reward`, `agent.num_epochs`, `agent.network.memory.part`, `agent.network.hidden`",
        ("explained_variance", "target_mean", "target_std"),
        explained_variance_low,
    ),
    Rule(
        "value_loss_dominates",
        f"`vf_coef * value_loss` above {DOMINATES:.0%} of the loss, and `grad_norm` above {CLIPPED_BY:g} times "
        "`max_grad_norm`, in half of the rows",
        "`agent.normalize_reward`, `agent.vf_coef`",
        ("grad_norm", "value_loss", "policy_loss", "entropy"),
        value_loss_dominates,
    ),
)
