"""Rules on the environment: scale of observations, lengths and ends of episodes, rewards."""

from __future__ import annotations

import numpy as np

from ppax.reports.doctor.findings import FAULT, MIN_ROWS, NOTICE, Finding, Remedy, Rule, shown
from ppax.reports.doctor.record import Record, at_ends, first, median

# Largest absolute entry. Inputs far beyond 1 saturate the first layer; Acrobot is learned with velocities of 28
OBS_LARGE = 50.0
# Episodes over horizons 1 / (1 - gamma). Common and well: MuJoCo's 1000 steps at gamma 0.99 are 10, the presets at most
# 10; at 30, rewards after the first thirtieth of an episode weigh less than 1 / e at its start
HORIZONS = 30.0
# Shorter episodes of one length are mostly a game's own (Catch: 9 steps); time limits are rarely below
LIMIT_LENGTH = 50
LIMIT_ROWS = 5  # rows in which all episodes have the greatest length, by accident in none
# Length of episodes at the end of a run over that at its begin. CartPole with a cost for each step: 19 to 9 steps
SHORTER = 0.7
PLAYED = 1000  # steps of each environment without an end; the usual longest time limit


def observations_large(record: Record) -> Finding | None:
    """Raw observations with large entries."""
    values = record.column("obs_max")
    large = values > OBS_LARGE
    if record.option("normalize_obs") or not large.any():
        return None
    return Finding(
        f"Observations are not normalised: their largest entry is {shown(np.nanmax(values))}, and layers learn from "
        "inputs near 1.",
        Remedy("standardises each entry by its running mean and std", record.path("normalize_obs"), True),
        row=first(large),
    )


def horizon_short(record: Record) -> Finding | None:
    """Episodes that are many horizons long."""
    length, gamma = median(record.late("episode_length")), record.number("gamma")
    if not length * (1.0 - gamma) > HORIZONS:
        return None
    horizon = f"1 / (1 - gamma) = {shown(1.0 / (1.0 - gamma))} steps"
    return Finding(
        f"Episodes are longer than gamma sees: half of them take {shown(length)} steps and more, and what comes later "
        f"than {horizon} hardly counts.",
        Remedy("sees a fifth of an episode", record.path("gamma"), round(1.0 - 5.0 / length, 5)),
        NOTICE,
    )


def reward_not_reached(record: Record) -> Finding | None:
    """Returns, or where no episode ends rewards, that are the same in all rows."""
    name = "episode_return" if np.isfinite(record.column("episode_return")).any() else "reward_mean"
    values = record.column(name)
    values = values[np.isfinite(values)]
    if len(values) < MIN_ROWS or values.max() - values.min() > 1e-6 * np.abs(values).max():
        return None
    if record.option("normalize_obs"):
        now = record.number("ent_coef")
        remedy = Remedy("explores more; or reward steps on the way", record.path("ent_coef"), max(0.01, 3.0 * now))
    else:
        reason = "lets the policy see small entries, and so explore; or reward steps on the way"
        remedy = Remedy(reason, record.path("normalize_obs"), True)
    seen = f"{name} is {shown(values[0])} in all {len(values)} rows"
    return Finding(f"No action made a difference to the reward: {seen}, so there is nothing to learn from.", remedy)


def no_episode_ended(record: Record) -> Finding | None:
    """Run without the end of an episode."""
    played = record.column("iteration")[-1] * record.of_run("num_steps")
    if np.nansum(record.column("episodes")) > 0 or not played >= PLAYED:
        return None
    reset = max(1, int(PLAYED // record.of_run("num_steps")))
    return Finding(
        f"No episode ended in {shown(played)} steps of each environment, so there is no episode_return, and states far "
        "from the start are all that it sees.",
        Remedy(
            "truncates all episodes every so many iterations; or give the environment a time limit that it reports as "
            "truncated",
            "iterations_per_env_reset",
            reset,
        ),
        NOTICE,
    )


def truncation_as_end(record: Record) -> Finding | None:
    """Episodes that end at one greatest length as if terminated, which looks like a time limit."""
    length, cuts = record.column("episode_length"), np.nansum(record.column("truncations"))
    longest = np.nanmax(length, initial=0.0)
    at_limit = length == longest
    whole = longest == round(longest) and longest >= LIMIT_LENGTH
    if cuts > 0 or not whole or at_limit.sum() < LIMIT_ROWS:
        return None
    seen = f"in {at_limit.sum()} rows all episodes took exactly {longest:.0f} steps, the most of all, none truncated"
    return Finding(
        f"A time limit looks like an end of the task: {seen}, so the critic learns that nothing comes after.",
        Remedy(
            f"Return truncated, not terminated, at step {longest:.0f} (in JAX: ppax.envs.TimeLimit around the "
            "environment), unless the task itself ends there"
        ),
        FAULT,
        first(at_limit),
    )


def ending_pays(record: Record) -> Finding | None:
    """Episodes that get shorter by ends of the task while steps cost: right or wrong, which only the task says."""
    (begin, end), returns = at_ends(record, "episode_length"), at_ends(record, "episode_return")
    ends, cuts = (np.nansum(record.late(name)) for name in ("terminations", "truncations"))
    costs, shorter = max(returns) < 0.0, 0.0 < end <= SHORTER * begin
    if not (costs and shorter and ends > cuts):
        return None
    return Finding(
        f"Episodes got shorter, from {shown(begin)} to {shown(end)} steps, since a step costs "
        f"{shown(-returns[1] / end)} on average: to end early pays.",
        Remedy(
            "Right where the goal is to end soon. Where it is to last, the sign of the reward is flipped, or its costs "
            "outweigh what a step is worth: reward each step that is survived"
        ),
        NOTICE,
    )


RULES = (
    Rule(
        "truncation_as_end",
        f"all episodes of {LIMIT_ROWS} rows as long as the longest of the run ({LIMIT_LENGTH} steps or more), and no "
        "`truncations`",
        "`truncated` instead of `terminated` in the environment",
        ("episode_length", "truncations"),
        truncation_as_end,
    ),
    Rule(
        "ending_pays",
        f"`episode_length` at the end at most {SHORTER:g} times that at the begin, mostly by `terminations`, and "
        "negative returns",
        "none where the goal is to end soon (Acrobot, MountainCar); else the sign of the reward",
        ("episode_return", "episode_length", "terminations", "truncations"),
        ending_pays,
    ),
    Rule(
        "reward_not_reached",
        "the same `episode_return` (without ends: `reward_mean`) in all rows",
        "`agent.normalize_obs`, `agent.ent_coef`, rewards on the way",
        ("episode_return", "reward_mean"),
        reward_not_reached,
    ),
    Rule(
        "no_episode_ended",
        f"no end of an episode in {PLAYED:,} steps of each environment",
        "`iterations_per_env_reset`, a time limit in the environment",
        ("episodes", "iteration"),
        no_episode_ended,
        min_rows=1,
    ),
    Rule(
        "observations_large",
        f"`obs_max` above {OBS_LARGE:g} without `normalize_obs`",
        "`agent.normalize_obs`",
        ("obs_max",),
        observations_large,
        min_rows=1,
    ),
    Rule(
        "horizon_short",
        f"`episode_length` above {HORIZONS:g} / (1 - `gamma`) in the second half of the rows",
        "`agent.gamma`",
        ("episode_length",),
        horizon_short,
    ),
)
