"""Rules on the policy's steps: entropy, KL, clipping, the first ratio, and the number of gradient steps."""

from __future__ import annotations

import math

import numpy as np

from ppax.devices.layout import AUTO, WHERE_SAFE
from ppax.reports.doctor.findings import FAULT, Finding, Remedy, Rule, rounded, shown
from ppax.reports.doctor.record import Record, first, learned, median, share

# Of two actions with 5 % of the entropy of a fair coin one is taken in 99.4 % of the cases; a standard deviation of 5 %
# of the first no longer leaves the neighbourhood of the mean action
ENTROPY_LEFT = 0.05
EARLY = 0.5  # share of total_steps: near the end of a run a policy may be certain
# Mean over the gradient steps of an update. Early stops are usually set from 0.01 to 0.05. Measured in the
# healthy runs of tests/support/sick_runs.py: medians of 0.002 to 0.006, single rows up to 0.12
KL_LARGE = 0.1
OFTEN = 0.2  # share of the rows: single peaks do no harm
# Rows outside of the clip range give no gradient. The same healthy runs: medians of 0.03 to 0.08, rows up to 0.21
CLIPPED = 0.4
NARROW = 0.1  # clip range of the PPO paper for Atari, the smallest in use
# Largest abs(w - 1) before the first gradient step. Rounding of a log-probability of 20 gives 2e-6 in float32; bfloat16
# has 8 bits
RATIO = {"float32": 1e-3} | dict.fromkeys(("bfloat16", WHERE_SAFE, AUTO), 0.2)  # the last two may be either
# CartPole takes about 1,000 gradient steps; Catch, the easiest task measured, was solved after 390
GRADIENT_STEPS = 300
ITERATIONS = 15  # each improves the policy by about a clip range; the shortest runs that solved a task had 24


def entropy_gone(record: Record) -> Finding | None:
    """Entropy, or the standard deviation of Box actions, near 0 in the first half of a run that did not learn."""
    metric = "policy_std" if record.has("policy_std") else "entropy"
    values = record.column(metric)
    begin = values[first(np.isfinite(values))]
    of_box = metric == "entropy" and bool((values < 0.0).any())  # a differential entropy: 0 means nothing there
    low = values < ENTROPY_LEFT * begin
    at = first(low)
    early = record.column("env_steps")[at] <= EARLY * record.of_run("total_steps")
    if of_box or not low.any() or not early or learned(record):
        return None
    now = record.number("ent_coef")
    name = "the standard deviation of the actions" if metric == "policy_std" else "the entropy of the policy"
    seen = f"It fell from {shown(begin)} to {shown(values[at])} while the return did not rise"
    return Finding(
        f"The policy stopped exploring: {name} was almost 0 before half of the run. {seen}.",
        Remedy("an entropy bonus keeps actions random for longer", record.path("ent_coef"), max(0.01, 3.0 * now)),
        row=at,
    )


def actions_off_scale(record: Record) -> Finding | None:
    """Normal distribution over actions in units that it does not reach."""
    if not record.off_scale or record.option("network.distribution") != "normal":
        return None
    return Finding(
        f"Actions in {record.off_scale} are drawn from a normal distribution that begins around 0 with standard "
        "deviation 1, in the units of the environment: it hardly moves in this range.",
        Remedy(
            "maps its range to that of the actions, as an environment with actions in [-1, 1] would",
            record.path("network.distribution"),
            "squashed",
        ),
    )


def kl_large(record: Record) -> Finding | None:
    """KL between the policy before and after the updates that is large in many rows."""
    values = record.column("approx_kl")
    large = values > KL_LARGE
    if share(large, values) < OFTEN:
        return None
    count, top, rate = int(large.sum()), np.nanmax(values), record.number("learning_rate")
    seen = f"approx_kl is above {KL_LARGE} in {count} of {len(values)} rows, at most {shown(top)}"
    # with overlap the controls of the KL are refused
    if rate > 1e-3 or gradient_steps_per_update(record) <= 1 or record.of_run("overlap") > 0:
        remedy = Remedy("smaller steps", record.path("learning_rate"), rounded(min(rate / 3.0, 1e-3)))
    else:
        remedy = Remedy(
            "ends an update that has moved the policy far enough", record.path("extensions.kl_control.target_kl"), 0.02
        )
    return Finding(
        f"Updates move the policy too far: {seen}; healthy updates stay near 0.01.", remedy, row=first(large)
    )


def clip_fraction_high(record: Record) -> Finding | None:
    """Clip fraction that is high in half of the rows."""
    values = record.column("clip_fraction")
    high = values > CLIPPED
    if share(high, values) < 0.5:
        return None
    epochs = record.number("num_epochs")
    if record.number("loss.clip_eps") < NARROW:
        remedy = Remedy("a usual clip range", record.path("loss.clip_eps"), 0.2)
    elif epochs > 1:
        remedy = Remedy("fewer passes over the same rollout", record.path("num_epochs"), int(epochs) // 2)
    else:
        rate = record.number("learning_rate")
        remedy = Remedy("smaller steps", record.path("learning_rate"), rounded(rate / 3.0))
    seen = f"half of the rows have a clip_fraction above {shown(median(values))}"
    return Finding(f"Most of the data gives no gradient: {seen}; 0.02 to 0.2 is usual.", remedy, row=first(high))


def ratio_not_one(record: Record) -> Finding | None:
    """Probability ratio that differs from 1 before the first gradient step."""
    values = record.column("ratio_first_max_dev")
    if record.of_run("overlap") > 0:  # only in the first iteration the policy that acts is the one that learns
        values = np.where(record.column("iteration") == 1, values, np.nan)
    dtype = str(record.option("compute_dtype"))
    off = values > RATIO.get(dtype, RATIO["float32"])
    if not off.any():
        return None
    seen = f"before the first gradient step the ratio differs from 1 by up to {shown(np.nanmax(values))}"
    return Finding(
        f"Acting and learning disagree: {seen}, so every gradient is of another policy than the one that acted.",
        Remedy(
            "Look for a part that differs between acting and learning: dropout, statistics of a batch, a memory that "
            "depends on the length of its sequence; `ppax selftest` on the run file names the stage"
        ),
        FAULT,
        first(off),
    )


def few_gradient_steps(record: Record) -> Finding | None:
    """Number of iterations and of gradient steps that the whole run takes."""
    iterations = planned_iterations(record)
    a_time = gradient_steps_per_update(record)
    steps = iterations * a_time
    if not iterations > 0.0 or not (iterations < ITERATIONS or steps < GRADIENT_STEPS):  # NaN: unknown
        return None
    seen = f"{iterations:.0f} iterations with {a_time:.3g} gradient steps each"
    if iterations < ITERATIONS:
        factor = 2 ** math.ceil(math.log2(3 * ITERATIONS / max(1.0, iterations)))
        remedy = _smaller_rollouts(record, factor)
    else:
        factor = 2 ** math.ceil(math.log2(3 * GRADIENT_STEPS / max(1.0, steps)))
        now = record.number("minibatch.num_minibatches")
        remedy = Remedy("more and smaller minibatches", record.path("minibatch.num_minibatches"), int(now) * factor)
    return Finding(f"The whole run learns too rarely: total_steps are {seen}.", remedy)


def _smaller_rollouts(record: Record, factor: int) -> Remedy:
    """Rollouts of 1 / `factor` of the steps, where they keep 16 steps or 4 environments; else a longer run."""
    for name, least in (("num_steps", 16), ("num_envs", 4)):
        size = int(record.of_run(name)) // factor
        if size >= least:
            return Remedy("more and smaller rollouts from the same steps", name, size)
    return Remedy("a longer run", "total_steps", int(record.of_run("total_steps")) * factor)


def gradient_steps_per_update(record: Record) -> float:
    """Gradient steps of an update that are taken: without those that an early stop skips."""
    skipped = median(record.column("updates_skipped"))
    kept = 1.0 if math.isnan(skipped) else 1.0 - skipped
    return record.number("num_epochs") * record.number("minibatch.num_minibatches") * kept


def planned_iterations(record: Record) -> float:
    """Iterations of the whole run, from the steps of those that are done; NaN where that is unknown."""
    valid = median(record.column("valid_fraction"))
    rows = record.column("env_steps")[-1] / (valid if valid > 0.0 else 1.0)
    return float(record.column("iteration")[-1] * record.of_run("total_steps") / rows) if rows > 0.0 else math.nan


RULES = (
    Rule(
        "ratio_not_one",
        f"`ratio_first_max_dev` above {RATIO['float32']} (bfloat16, {WHERE_SAFE} and auto: {RATIO['bfloat16']}); with "
        "`overlap = 1` in the first iteration alone",
        "`ppax selftest`; no option mends it",
        ("ratio_first_max_dev",),
        ratio_not_one,
        min_rows=1,
    ),
    Rule(
        "few_gradient_steps",
        f"fewer than {ITERATIONS} iterations or {GRADIENT_STEPS} gradient steps in `total_steps`",
        "`num_steps`, `num_envs`, `agent.minibatch.num_minibatches`",
        ("iteration", "env_steps"),
        few_gradient_steps,
        min_rows=1,
    ),
    Rule(
        "entropy_gone",
        f"`policy_std`, or the `entropy` of discrete actions, below {ENTROPY_LEFT:.0%} of its first value within "
        f"{EARLY:.0%} of the run, while the return did not rise",
        "`agent.ent_coef`",
        ("entropy",),
        entropy_gone,
    ),
    Rule(
        "actions_off_scale",
        "distribution `normal` over Box actions of which one is wider than 40, narrower than 0.1, or three half widths "
        "away from 0",
        "`agent.network.distribution`",
        (),
        actions_off_scale,
        min_rows=1,
    ),
    Rule(
        "kl_large",
        f"`approx_kl` above {KL_LARGE} in {OFTEN:.0%} of the rows",
        "`agent.learning_rate`, `agent.extensions.kl_control.target_kl`",
        ("approx_kl",),
        kl_large,
    ),
    Rule(
        "clip_fraction_high",
        f"`clip_fraction` above {CLIPPED} in half of the rows",
        "`agent.loss.clip_eps`, `agent.num_epochs`, `agent.learning_rate`",
        ("clip_fraction",),
        clip_fraction_high,
    ),
)
