"""Normalisation of observations and rewards by a running mean and variance, accurate beyond 10^9 samples in float32.

Mean and variance are pairs of float32 (value and rounding error), the count is an exact pair of uint32. Batches are
merged by Chan et al. 1979 (parallel variance); moments are taken around the running mean, never as E[x^2] - E[x]^2.
"""

from __future__ import annotations

import zipfile
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.arrays import counter
from ppax.arrays.entries import each_array, find_entries, is_bytes, names_of
from ppax.core.types import ConfigError, LearnerState, PyTree, Rollout, Transition, part, static
from ppax.devices import sharding

CLIP = 10.0  # clip range of normalised observations and rewards, in standard deviations
EPSILON = 1e-8  # added to a running variance
TINY = 1e-37  # added to a given variance, which it does not change: it may be too small for float32, and then is 0


class FloatPair(NamedTuple):
    """Compensated float32: a value and its rounding error, whose sum is more precise than either."""

    high: Array
    low: Array


class RunningStats(NamedTuple):
    """Running mean and variance of all samples so far, each of the shape of one sample; `count` is [2] uint32."""

    count: Array  # type: ignore[assignment]
    mean: FloatPair
    var: FloatPair  # population variance


def init_stats(shape: tuple[int, ...]) -> RunningStats:
    """Return the statistics of no samples of this shape: mean 0 and variance 1, which the first samples replace."""
    zeros = jnp.zeros(shape, jnp.float32)
    return RunningStats(counter.zero(), FloatPair(zeros, zeros), FloatPair(zeros + 1.0, zeros))


def add_compensated(pair: FloatPair, x: Array) -> FloatPair:
    """Return the pair plus `x`, with the new rounding error (Knuth's two-sum)."""
    total = pair.high + x
    back = total - pair.high
    low = pair.low + ((pair.high - (total - back)) + (x - back))
    high = total + low
    return FloatPair(high, low - (high - total))


def update_stats(stats: RunningStats, x: Array, valid: Array) -> RunningStats:
    """Return the statistics after further samples: those of `x` [..., *shape] where `valid` [...]."""
    axes = tuple(range(valid.ndim))
    weight = jnp.expand_dims(valid, tuple(range(valid.ndim, x.ndim)))
    seen = valid.sum(dtype=jnp.uint32)
    per_sample = 1.0 / jnp.maximum(seen.astype(jnp.float32), 1.0)

    def mean(y: Array) -> Array:
        return jnp.where(weight, y, 0.0).sum(axes) * per_sample

    x = x.astype(jnp.float32)
    centred = x - jnp.expand_dims(stats.mean.high, axes) - jnp.expand_dims(stats.mean.low, axes)
    shift = mean(centred)
    batch_var = mean((centred - jnp.expand_dims(shift, axes)) ** 2)
    count = counter.add(stats.count, seen)
    total = jnp.maximum(counter.to_float(count), 1.0)
    share, rest = seen.astype(jnp.float32) / total, counter.to_float(stats.count) / total
    # a step from 1, the variance of no samples, would lose the digits of a small variance
    first = (stats.count.max() == 0) & (seen > 0)
    var = FloatPair(*(jnp.where(first, 0.0, x) for x in stats.var))
    var_step = share * ((batch_var - var.high) - var.low + rest * shift**2)
    return RunningStats(count, add_compensated(stats.mean, share * shift), add_compensated(var, var_step))


class NoStats(NamedTuple):
    """Placeholder in the place of statistics for categorical observations, which are not normalised."""


class PartStats(NamedTuple):
    """Statistics of one array of observations, of which only some entries are normalised."""

    stats: RunningStats
    kept: Array  # bool, of the shape of one sample; False: the entry stays as it is


class PartStatsOfBytes(PartStats):
    """The same of bytes, uint8 from 0 to 255: an entry that is not normalised is divided by 255, as an image is."""


@part
class Normalization:
    """Options of normalisation: entries to exclude, mean and std set by the user, freezing of running statistics.

    They apply where `normalize_obs` or `normalize_reward` is on. Without a mean and std set by the user, both are
    running statistics, which may be frozen after a number of steps. The learner's statistics contain the means and stds
    that the user has set, and which entries are not normalised: acting, export, resume and fine-tuning read them from
    the statistics.
    """

    skip: tuple[str, ...] = static(
        'entries of observations that are not normalised, as "3" or "4:7" of a vector, "goal" or "state.4:7" of a Dict',
        default=(),
    )
    mean: tuple[float, ...] | None = static(
        "given mean of each entry of a vector of observations, with std: constant, nothing is estimated; none: "
        "running statistics",
        default=None,
    )
    std: tuple[float, ...] | None = static(
        "given standard deviation of each entry of a vector of observations, with mean; none: running statistics",
        default=None,
        above=0.0,
    )
    freeze_obs: int | None = static(
        "number of observations, over all environments, after which statistics of observations stay as they are; none: "
        "never",
        default=None,
        low=1,
    )
    reward_std: float | None = static(
        "given standard deviation of the discounted return, by which rewards are divided; none: running statistics",
        default=None,
        above=0.0,
    )
    freeze_reward: int | None = static(
        "number of rewards, over all environments, after which statistics of rewards stay as they are; none: never",
        default=None,
        low=1,
    )

    def check(self, of_obs: bool, of_reward: bool) -> None:
        """Raise ConfigError for an option without effect, as its kind of normalisation is off, and for contradictions.

        `of_obs` and `of_reward` say whether observations and rewards are normalised.
        """
        options = {"skip": of_obs, "mean": of_obs, "std": of_obs, "freeze_obs": of_obs}
        for name, on in {**options, "reward_std": of_reward, "freeze_reward": of_reward}.items():
            value, switch = getattr(self, name), "normalize_obs" if name in options else "normalize_reward"
            if value not in (None, ()) and not on:
                raise ConfigError(
                    f"normalization.{name} = {value!r}: {switch} is false; set it to true, or leave it out"
                )
        if (self.mean is None) != (self.std is None):
            raise ConfigError("normalization: mean and std are given together; give both, or none")
        for given, freeze in (("mean", "freeze_obs"), ("reward_std", "freeze_reward")):
            if getattr(self, given) is not None and getattr(self, freeze) is not None:
                raise ConfigError(f"normalization.{freeze}: given statistics ({given}) are constant; leave it out")

    @classmethod
    def from_npz(cls, path: Any, **options: Any) -> Normalization:
        """Return Normalization with `mean` and `std` read from a NumPy file (.npz) that has arrays of these names.

        `options` are the values of the other fields. Raises ConfigError if there is no such file, or if it lacks one of
        the two arrays.
        """
        try:
            loaded = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ConfigError(f"{path}: {error}; must be a NumPy file (.npz) with arrays mean and std") from error
        if isinstance(loaded, np.ndarray):
            raise ConfigError(f"{path}: is one array; must be a NumPy file (.npz) with arrays mean and std")
        with loaded as file:
            if missing := [name for name in ("mean", "std") if name not in file]:
                raise ConfigError(f"{path}: has no array {missing[0]!r}, but {', '.join(file) or 'none'}")
            mean, std = (tuple(np.asarray(file[name], float).ravel().tolist()) for name in ("mean", "std"))
        return cls(mean=mean, std=std, **options)


def pair_of(value: Any) -> FloatPair:
    """Return float64 numbers as pairs of float32: value and rounding error."""
    exact = np.asarray(value, np.float64)
    high = exact.astype(np.float32)
    return FloatPair(jnp.asarray(high), jnp.asarray((exact - high).astype(np.float32)))


def _given_stats(chosen: Normalization, space: spaces.Space) -> RunningStats:
    """Return the constant statistics given by `chosen.mean` and `chosen.std`, with a count of 0 samples.

    Raises ConfigError unless observations of `space` are vectors of as many entries.
    """
    mean, std = np.asarray(chosen.mean, np.float64), np.asarray(chosen.std, np.float64)
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise ConfigError(f"normalization.mean: observations are of {space}; given statistics are of a vector")
    for name, x in (("mean", mean), ("std", std)):
        if x.shape != space.shape:
            raise ConfigError(f"normalization.{name} has {len(x)} numbers; must have {space.shape[0]}, one per entry")
    return RunningStats(counter.zero(), pair_of(mean), pair_of(std**2))


def obs_stats_of(space: spaces.Space, chosen: Normalization) -> PyTree:
    """Return the initial statistics of observations of `space`, in which the entries `chosen.skip` are not normalised.

    Raises ConfigError for an entry that does not exist, with the nearest one.
    """
    stats = init_obs_stats(space) if chosen.mean is None else _given_stats(chosen, space)
    leaves, structure = jax.tree.flatten(stats, is_leaf=is_stats)
    names, are_bytes = names_of(stats, is_leaf=is_stats), jax.tree.leaves(each_array(space, is_bytes))
    shapes = {name: () if isinstance(x, NoStats) else x.mean.high.shape for name, x in zip(names, leaves, strict=True)}
    left: dict[str, list[slice]] = {name: [] for name in names}
    for text in chosen.skip:
        for name, where in find_entries(text, shapes, "normalization.skip").items():
            left[name].append(where)
    each = zip(leaves, names, are_bytes, strict=True)
    return jax.tree.unflatten(structure, [_without(x, left[name], of_bytes) for x, name, of_bytes in each])


def _without(stats: Any, left: list[slice], of_bytes: bool) -> Any:
    """Return `stats`, the statistics of one array, with the entries in the slices `left` excluded from normalisation.

    A slice selects entries of a vector, or all entries of an array of any shape. The result is a PartStats, which says
    which entries are normalised; NoStats if none is; `stats` itself if `left` is empty. `of_bytes` says whether the
    array is of bytes.
    """
    if not left or isinstance(stats, NoStats):
        return stats
    kept = np.ones(stats.mean.high.shape, bool)
    for where in left:
        kept[... if where == slice(None) else where] = False
    partly = PartStatsOfBytes if of_bytes else PartStats
    return partly(stats, jnp.asarray(kept)) if kept.any() else NoStats()


def init_obs_stats(space: spaces.Space) -> PyTree:
    """Return the initial statistics of observations of `space`, one for each array, in the space's structure."""

    def one(inner: spaces.Space) -> RunningStats | NoStats:
        categorical = isinstance(inner, spaces.Discrete | spaces.MultiDiscrete)
        return NoStats() if categorical else init_stats(inner.shape or ())

    return each_array(space, one)


def initial(space: spaces.Space, of_obs: bool, of_reward: bool, chosen: Normalization) -> tuple[PyTree, PyTree]:
    """Return the initial statistics of observations, and those of discounted returns; None for what is not normalised.

    `of_obs` and `of_reward` say whether observations and rewards are normalised. Raises ConfigError where `chosen` does
    not fit the space.
    """
    chosen.check(of_obs, of_reward)
    of_returns = init_stats(())
    if chosen.reward_std is not None:
        of_returns = of_returns._replace(var=pair_of(np.float64(chosen.reward_std) ** 2))
    return obs_stats_of(space, chosen) if of_obs else None, of_returns if of_reward else None


def is_stats(node: object) -> bool:
    """Return True for a tree node that holds the statistics of one array, at which `jax.tree.map` is to stop."""
    return isinstance(node, RunningStats | PartStats | NoStats)


def with_obs_stats(learner: LearnerState, steps: Transition, chosen: Normalization) -> LearnerState:
    """Return the learner with the valid observations of `steps` [M, L] merged into its statistics of observations.

    A learner without such statistics is returned unchanged. The statistics are unchanged, too, if the options `chosen`
    set the mean and std, or if they have at least `chosen.freeze_obs` samples.
    """
    if learner.obs_stats is None or chosen.mean is not None:
        return learner
    obs_stats = update_obs_stats(learner.obs_stats, steps.obs, steps.valid, chosen.freeze_obs)
    return learner._replace(obs_stats=obs_stats)


def before_freeze(stats: RunningStats, valid: Array, freeze: int | None) -> Array:
    """Return the mask `valid` if `stats` have fewer than `freeze` samples, and otherwise False everywhere.

    Rows that the mask leaves out do not change the statistics. With `freeze` None it is always `valid`.
    """
    # a float: `freeze` may exceed the 32 bits of JAX's integers
    return valid if freeze is None else valid & (counter.to_float(stats.count) < float(freeze))


def update_obs_stats(stats: PyTree, obs: PyTree, valid: Array, freeze: int | None = None) -> PyTree:
    """Return the statistics after further observations: those of `obs` [..., *shape] where `valid` [...].

    `stats` has the structure of an observation. Statistics that have `freeze` samples or more stay as they are; with
    `freeze` None all are updated.
    """

    def one(s: Any, x: Array) -> Any:
        if isinstance(s, NoStats):
            return s
        if isinstance(s, PartStats):
            return s._replace(stats=one(s.stats, x))
        return update_stats(s, x, before_freeze(s, valid, freeze))

    return jax.tree.map(one, stats, obs, is_leaf=is_stats)


def normalize_obs(stats: PyTree, obs: PyTree, clip: float = CLIP) -> PyTree:
    """Return observations [..., *shape] standardised by `stats` and clipped to +-`clip` standard deviations.

    Categorical observations, and entries that are excluded from normalisation, stay as they are; such entries of an
    array of bytes of which others are normalised are divided by 255, as networks divide arrays of bytes.
    """

    def one(s: RunningStats | PartStats | NoStats, x: Array) -> Array:
        if isinstance(s, NoStats):
            return x
        if isinstance(s, PartStats):
            kept = jnp.expand_dims(s.kept, tuple(range(x.ndim - s.kept.ndim)))
            bytes_left = isinstance(s, PartStatsOfBytes) and x.dtype == jnp.uint8
            return jnp.where(kept, one(s.stats, x), x / 255 if bytes_left else x)
        batch = tuple(range(x.ndim - s.mean.high.ndim))
        mean, low, var = (jnp.expand_dims(v, batch) for v in (s.mean.high, s.mean.low, s.var.high))
        epsilon = jnp.where(s.count.max() > 0, EPSILON, TINY)  # given statistics, which have no samples, are exact
        return jnp.clip(((x - mean) - low) * jax.lax.rsqrt(var + epsilon), -clip, clip)

    return jax.tree.map(one, stats, obs, is_leaf=is_stats)


class Rewarded(NamedTuple):
    """Learner with updated statistics of rewards, and the scaled rewards of a rollout."""

    learner: LearnerState
    reward: Array  # [T, B]


def normalize_rewards(learner: LearnerState, rollout: Rollout, chosen: Normalization) -> Rewarded:
    """Return the learner with its reward statistics updated by a rollout, and the rollout's rewards [T, B], scaled.

    Rewards are divided by the standard deviation of the discounted return, without centring, and clipped at +-10. If
    several devices collect rollouts, the statistics are of all these rollouts. Without statistics, learner and rewards
    are unchanged. The statistics are not updated if the options `chosen` set the standard deviation (`reward_std`), or
    if they have at least `chosen.freeze_reward` samples.
    """
    steps = rollout.steps
    if learner.reward_stats is None:
        return Rewarded(learner, steps.reward)
    stats = learner.reward_stats
    epsilon = TINY
    if chosen.reward_std is None:
        epsilon = EPSILON
        trace, valid = sharding.gather((rollout.reward_trace, steps.valid), axis=1)
        stats = update_stats(stats, trace, before_freeze(stats, valid, chosen.freeze_reward))
    scaled = steps.reward * jax.lax.rsqrt(stats.var.high + epsilon)
    return Rewarded(learner._replace(reward_stats=stats), jnp.clip(scaled, -CLIP, CLIP))
