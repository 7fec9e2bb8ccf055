"""Automatic domain randomisation: Akkaya et al., "Solving Rubik's Cube with a Robot Hand", 2019,
https://arxiv.org/abs/1910.07113, algorithm 1.

Each end of each range has a buffer of the performance of episodes in which the number had the value of that end. Once
it has m episodes, their mean moves the end, and the buffer is emptied. Here ends move between two rollouts, so that a
buffer may have more; all episodes are learned from; and an end stays between its first value and its limit.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import jax.numpy as jnp
from jax import Array

from ppax.arrays.metrics import MISSING
from ppax.core.types import ConfigError, Scalar, number, part, static

EPISODE_RETURN = "episode_return"


class Ranges(NamedTuple):
    """State of ranges that adapt: their ends, [d, 2] lower and upper, and the buffers of the ends."""

    start: Array  # [d, 2] values at which the ends begin
    ends: Array  # [d, 2]
    total: Array  # [d, 2] sum of the performance of the buffered episodes
    count: Array  # type: ignore[assignment]  # [d, 2] number of the buffered episodes


@part
class AdaptiveRanges:
    """Automatic domain randomisation: each end of each range moves outward while the policy does well at it.

    Akkaya et al. 2019, https://arxiv.org/abs/1910.07113. A number that is not drawn yet begins as a range of one value.
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
        """Raise ConfigError: these ranges depend on returns, and neither on progress nor on an agent's numbers."""
        raise ConfigError(
            "schedule: adaptive ranges are those of an environment's numbers, and no part of another schedule: write "
            '[schedule] part = "adaptive" in a run file, or ppax.make(..., schedule=ppax.envs.AdaptiveRanges(...))'
        )

    def limits(self) -> Array:
        """Limits of the ends, [d, 2]."""
        return jnp.stack([jnp.stack([jnp.float32(x) for x in side]) for side in (self.low, self.high)], axis=1)

    def begin(self, start: Array) -> Ranges:
        """Return the state of ranges that begin with the ends `start`, [d, 2]."""
        zeros = jnp.zeros(start.shape, jnp.float32)
        return Ranges(start, start, zeros, zeros)

    def moved(self, ranges: Ranges) -> Ranges:
        """Return the ranges after the decisions of all full buffers, which are empty then."""
        full = ranges.count >= self.episodes
        mean = mean_performance(ranges)
        widen_at, narrow_at = jnp.asarray(self.widen_at), jnp.asarray(self.narrow_at)  # given: envs/ranges.py
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
    """Mean performance of the buffered episodes at each end, [d, 2]; MISSING of none."""
    return jnp.where(ranges.count > 0, ranges.total / jnp.maximum(ranges.count, 1.0), MISSING)
