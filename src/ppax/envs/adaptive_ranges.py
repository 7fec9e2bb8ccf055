"""Ranges of an environment's parameters that adapt to the policy: automatic domain randomisation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.metrics import MISSING
from ppax.core.options import check_numbers
from ppax.core.protocols import Environment
from ppax.core.types import ConfigError, Episodes, Scalar, number, part, static
from ppax.devices import sharding
from ppax.envs.vector import VectorEnv
from ppax.envs.wrappers.boundary_sampling import EPISODE_RETURN, BoundarySampling, count_name, total_name
from ppax.envs.wrappers.params import (
    AROUND,
    adjust,
    by_short_name,
    parameters,
    plain_value,
    ranges_of,
    require_known,
    value_at,
)

ROOT = "env."  # prefix of the paths in `leaves`
SIDES = ("low", "high")


class Ranges(NamedTuple):
    """State of d adaptive parameter ranges: lower and upper ends, [d, 2], and the policy's performance at each end.

    Parameters of the environment, such as gravity, are drawn from the ranges at resets. `start` has the ends with which
    the ranges began. `total` and `count`, [d, 2] each, are the buffer of each end: the summed performance and the
    number of the episodes at this end since it was last decided whether to move it.
    """

    start: Array  # [d, 2] values at which the ends begin
    ends: Array  # [d, 2]
    total: Array  # [d, 2] sum of the performance of the buffered episodes
    count: Array  # type: ignore[assignment]  # [d, 2] number of the buffered episodes


@part
class AdaptiveRanges:
    """Automatic domain randomisation: ranges of environment parameters widen at the ends where the policy does well.

    Parameters of the environment, such as gravity, are drawn from the ranges at resets. Akkaya et al., "Solving Rubik's
    Cube with a Robot Hand", 2019, https://arxiv.org/abs/1910.07113, algorithm 1. Each end of each range has a buffer
    with the performance of the episodes in which the parameter had the value of that end. Once the buffer has
    `episodes` of them, their mean decides: at `widen_at` or more the end moves outward, at `narrow_at` or less it moves
    back, and between the two it stays; the buffer is emptied. In contrast to the paper, ends move between two rollouts
    only, so that a buffer may have more episodes; the policy learns from all episodes; and an end stays between its
    first value and its limit, `low` or `high`. A parameter that the environment has as one number x, and not as a range
    to draw from, begins as the range from x to x.
    """

    leaves: tuple[str, ...] = static("numbers of the environment whose ranges adapt, such as env.gravity", default=())
    low: tuple[Scalar, ...] = number("limit of the lower end of each range", default=())
    high: tuple[Scalar, ...] = number("limit of the upper end of each range", default=())
    widen_at: Scalar | None = number("least mean performance at an end of a range that moves it outward", default=None)
    narrow_at: Scalar | None = number("greatest mean performance at an end of a range that moves it back", default=None)
    step: Scalar = number(
        "length of a move, as a share of the way from the end's first value to its limit",
        default=0.05,
        above=0.0,
        high=1.0,
    )
    episodes: Scalar = number("finished episodes at an end before it may move", default=32.0, low=1.0)
    share: Scalar = number("share of the episodes that are drawn at an end", default=0.5, above=0.0, high=1.0)
    metric: str = static(
        "performance of an episode: episode_return, or a metric of the environment such as is_success",
        default=EPISODE_RETURN,
    )

    def __call__(self, agent: Any, progress: Array, env_steps: Array) -> NoReturn:
        """Raise ConfigError always: unlike other schedules, adaptive ranges do not follow the progress of training.

        They depend on the returns of episodes. So AdaptiveRanges cannot be the schedule of an agent, nor be combined
        with other schedules; the error says how to pass them to the environment.
        """
        raise ConfigError(
            "schedule: adaptive ranges are those of an environment's numbers, and no part of another schedule: write "
            '[schedule] part = "adaptive" in a run file, or ppax.make(..., schedule=ppax.envs.AdaptiveRanges(...))'
        )

    def limits(self) -> Array:
        """Return the limits that the ends of the d ranges cannot pass, [d, 2]: of lower ends, and of upper ends."""
        return jnp.stack([jnp.stack([jnp.float32(x) for x in side]) for side in (self.low, self.high)], axis=1)

    def begin(self, start: Array) -> Ranges:
        """Return the state of d ranges that begin with the lower and upper ends `start`, [d, 2], and no episodes."""
        zeros = jnp.zeros(start.shape, jnp.float32)
        return Ranges(start, start, zeros, zeros)

    def moved(self, ranges: Ranges) -> Ranges:
        """Return the ranges after one update, in which every end with at least `episodes` buffered episodes may move.

        The mean performance in these episodes decides whether the end moves outward, moves back or stays; then its
        buffer is emptied. All other ends stay, and their buffers are kept.
        """
        full = ranges.count >= self.episodes
        mean = mean_performance(ranges)
        widen_at, narrow_at = jnp.asarray(self.widen_at), jnp.asarray(self.narrow_at)  # given: `_check`
        outward = jnp.where(mean >= widen_at, 1.0, jnp.where(mean <= narrow_at, -1.0, 0.0))
        limits = self.limits()
        ends = ranges.ends + outward * self.step * (limits - ranges.start)
        ends = jnp.clip(ends, jnp.minimum(ranges.start, limits), jnp.maximum(ranges.start, limits))
        return Ranges(
            ranges.start,
            jnp.where(full, ends, ranges.ends),
            jnp.where(full, 0.0, ranges.total),
            jnp.where(full, 0.0, ranges.count),
        )


def mean_performance(ranges: Ranges) -> Array:
    """Return the mean performance of the policy at each end of the d ranges, over the episodes in its buffer, [d, 2].

    For an end without episodes it is the number MISSING, which logs read as NaN.
    """
    return jnp.where(ranges.count > 0, ranges.total / jnp.maximum(ranges.count, 1.0), MISSING)


def adaptive_of(env: Any) -> AdaptiveRanges | None:
    """Return the environment's schedule if it is AdaptiveRanges, else None; `env` is a VectorEnv or a HostEnv."""
    schedule = env.settings.schedule
    return schedule if isinstance(schedule, AdaptiveRanges) else None


def first_ranges(env: Any) -> Ranges | tuple[()]:
    """Return the initial state of the parameter ranges that adapt to the policy (AdaptiveRanges); () if there are none.

    Parameters of the environment, such as gravity, are drawn from these ranges at resets.
    """
    schedule = adaptive_of(env)
    return () if schedule is None else schedule.begin(_starts(env, schedule))


def current_ends(env: VectorEnv, schedule: AdaptiveRanges, ranges: Ranges) -> dict[str, Array]:
    """Return the present ends of all adaptive ranges by their names, "gravity.low" and "gravity.high"."""
    return {name: ranges.ends.reshape(-1)[end] for end, name in enumerate(_end_names(env, schedule))}


def limits_of(env: VectorEnv, schedule: AdaptiveRanges) -> dict[str, Any]:
    """Return the widest ranges that adaptation can reach; evaluations draw the environment's parameters from these.

    They have the form of `env_params`: {"gravity": {"low": 5.0, "high": 15.0}}.
    """
    names = _names(env.env, schedule)
    return {
        name: dict(zip(SIDES, (plain_value(x) for x in ends), strict=True)) for name, ends in _limits(names, schedule)
    }


def adapt_ranges(env: Any, ranges: Ranges | tuple[()], episodes: Episodes) -> tuple[Any, Episodes, Mapping[str, Array]]:
    """Return (ranges, episodes, performance) after a rollout, by whose episodes the parameter ranges are adapted.

    The returned episodes are those of the rollout, without the metrics that measure the policy at the ends of the
    ranges. `performance` has the mean performance over the buffered episodes at each end, by name. If the environment
    has no adaptive ranges, the result is (`ranges`, `episodes`, {}).
    """
    schedule = adaptive_of(env) if ranges else None
    if schedule is None or not isinstance(ranges, Ranges):
        return ranges, episodes, {}
    ends = range(ranges.ends.size)
    sums = jnp.stack([episodes.metrics[name(end)].sum() for name in (total_name, count_name) for end in ends])
    total, count = sharding.total(sums).reshape(2, *ranges.ends.shape)
    of_ends = {name(end) for name in (total_name, count_name) for end in ends}
    episodes = episodes._replace(metrics={name: x for name, x in episodes.metrics.items() if name not in of_ends})
    ranges = ranges._replace(total=ranges.total + total, count=ranges.count + count)
    mean = mean_performance(ranges).reshape(-1)
    performance = {f"{ROOT}{name}.performance": mean[i] for i, name in enumerate(_end_names(env, schedule))}
    return schedule.moved(ranges), episodes, performance


def with_ends(env: VectorEnv, schedule: AdaptiveRanges) -> VectorEnv:
    """Return `env` with the adaptive ranges `schedule`: a reset draws the parameters that it names from their ranges.

    For this the environment gets the wrapper BoundarySampling, which sets a parameter to an end of its range in a share
    of the episodes; by their results the ranges are adapted. Raises ConfigError if `env` lacks one of the schedule's
    parameters, or if the schedule's options or limits are invalid.
    """
    inner = without_ends(env).env
    names = _names(inner, schedule)
    known, drawn = parameters(inner), ranges_of(inner)
    own = {name: plain_value(value_at(inner, known[name].path)) for name in names if name not in drawn}
    _check(names, schedule)
    inner = adjust(inner, {name: dict.fromkeys(SIDES, value) for name, value in own.items()})
    wrapped = dataclasses.replace(env, env=_around(inner, names, schedule), schedule=schedule)
    _check_limits(wrapped, schedule)
    return wrapped


def without_ends(env: VectorEnv) -> VectorEnv:
    """Return `env` without AdaptiveRanges: its parameters are drawn from the first ranges, which no longer change.

    An environment without adaptive ranges is returned unchanged.
    """
    if adaptive_of(env) is None:
        return env
    return dataclasses.replace(env, env=_inside(env.env), schedule=None)


def check_adaptive(env: Any, schedule: AdaptiveRanges) -> None:
    """Raise ConfigError unless `env` has the wrapper BoundarySampling, with which adaptive ranges measure the policy.

    It is raised, too, if options of `schedule` contradict each other, or if its limits do not fit the environment.
    """
    if not _has_ends(env.env):
        raise ConfigError(
            "schedule: this environment does not sample the ends of its adaptive ranges: pass them to ppax.make, or "
            "for an environment of your own write ppax.envs.with_schedule(env, schedule)"
        )
    _check(_names(env.env, schedule), schedule)
    _check_limits(env, schedule)


def _around(env: Any, names: tuple[str, ...], schedule: AdaptiveRanges) -> Environment:
    """Return `env` with BoundarySampling around the wrapper that draws the parameters `names` from ranges.

    BoundarySampling sets parameters to an end of their range in a share of the episodes.
    """
    if isinstance(env, AROUND):
        return dataclasses.replace(env, env=_around(env.env, names, schedule))
    return BoundarySampling(env, schedule.share, names, schedule.metric)


def _inside(env: Any) -> Any:
    """Return `env` without BoundarySampling, the wrapper that sets parameters to an end of their range."""
    if isinstance(env, BoundarySampling):
        return env.env
    return dataclasses.replace(env, env=_inside(env.env)) if isinstance(env, AROUND) else env


def _has_ends(env: Any) -> bool:
    return isinstance(env, BoundarySampling) or (isinstance(env, AROUND) and _has_ends(env.env))


def _names(env: Any, schedule: AdaptiveRanges) -> tuple[str, ...]:
    """Return the shortest unique names in `env`, such as "mass", of the parameters in the schedule's `leaves`.

    `leaves` has dotted paths, such as "env.mass". Raises ConfigError for a parameter that `env` lacks.
    """
    lacking = [leaf for leaf in schedule.leaves if not leaf.startswith(ROOT)]
    if lacking or not schedule.leaves:
        received, example = ", ".join(map(repr, lacking)) or "no number", next(iter(parameters(env)), "x")
        raise ConfigError(f"schedule.leaves: {received}; must be numbers of the environment, as {ROOT}{example}")
    known = parameters(env)
    names = tuple(by_short_name({leaf.removeprefix(ROOT): None for leaf in schedule.leaves}, known))
    require_known(dict.fromkeys(names), known)
    return names


def _end_names(env: VectorEnv, schedule: AdaptiveRanges) -> list[str]:
    return [f"{name}.{side}" for name in _names(env.env, schedule) for side in SIDES]


def _starts(env: VectorEnv, schedule: AdaptiveRanges) -> Array:
    """Return the ends at which the d adaptive ranges begin, [d, 2], lower and upper: those that `env` was made with."""
    check_adaptive(env, schedule)
    paths = ranges_of(env.env)
    ends = [value_at(env.env, paths[name][side]) for name in _names(env.env, schedule) for side in SIDES]
    return jnp.stack([jnp.asarray(x, jnp.float32) for x in ends]).reshape(-1, 2)


def _limits(names: tuple[str, ...], schedule: AdaptiveRanges) -> list[tuple[str, tuple[Any, Any]]]:
    return list(zip(names, zip(schedule.low, schedule.high, strict=True), strict=True))


def _check(names: tuple[str, ...], schedule: AdaptiveRanges) -> None:
    """Raise ConfigError for options of adaptive ranges that contradict each other; `names` are the parameters."""
    check_numbers(schedule, "schedule")
    for side in SIDES:
        if len(getattr(schedule, side)) != len(names):
            raise ConfigError(
                f"schedule.{side}: {len(getattr(schedule, side))} limits for {len(names)} numbers; must be one for "
                f"each of leaves = {', '.join(schedule.leaves)}"
            )
    for name in ("widen_at", "narrow_at"):
        if getattr(schedule, name) is None:
            raise ConfigError(f"schedule.{name}: must be given, in units of {schedule.metric}")
    widen, narrow = plain_value(schedule.widen_at), plain_value(schedule.narrow_at)
    if not isinstance(widen, jax.core.Tracer) and not isinstance(narrow, jax.core.Tracer) and narrow >= widen:
        raise ConfigError(f"schedule.narrow_at = {narrow:g}: must be below schedule.widen_at = {widen:g}")


def _check_limits(env: VectorEnv, schedule: AdaptiveRanges) -> None:
    """Raise ConfigError if the limits of an adaptive range do not contain the range with which it begins.

    It is raised, too, if a limit is no valid value of the environment's parameter.
    """
    numbers = jax.tree.leaves((env, schedule))
    if any(isinstance(x, jax.core.Tracer) for x in numbers):
        return  # traced in a program: the limits were checked when the environment was made
    names, paths = _names(env.env, schedule), ranges_of(env.env)
    adjust(env.env, {name: dict(zip(SIDES, both, strict=True)) for name, both in _limits(names, schedule)})
    for name, (low, high) in _limits(names, schedule):
        first, last = (plain_value(value_at(env.env, paths[name][side])) for side in SIDES)
        if low > first or high < last:
            raise ConfigError(
                f"schedule: the limits of {ROOT}{name}, {low:g} to {high:g}, must contain its first range, "
                f"{first:g} to {last:g}; nearest valid limits: {min(low, first):g} to {max(high, last):g}"
            )
