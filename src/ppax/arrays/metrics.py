"""Metrics by name, each with its reduction over chunks of a minibatch, players, groups and iterations.

A player is one agent inside a multi-agent environment.

| reduction | over chunks, players and groups | over iterations |
|---|---|---|
| mean (the default) | mean over valid rows | mean |
| max, min | the extreme | the extreme |
| last | mean | value of the last iteration, e.g. of a learning rate |
| sum | mean | sum, e.g. of the number of episodes |
| per_episode | mean | sum divided by the number of episodes (`episodes` with the same suffix) |
| std NAME | - | standard deviation over episodes, from squared deviations from the mean of the metric NAME |

A reduction is declared where a metric is computed and never inferred from its name, which may contain names of groups
and agents.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.parts import part, static
from ppax.core.types import ConfigError

REDUCTIONS = ("mean", "max", "min", "last", "sum", "per_episode", "std")
# In place of a metric without a value; read as NaN. Not NaN, for which `jax_debug_nans` would stop a sound program
MISSING = np.finfo(np.float32).min
Reductions = tuple[tuple[str, str], ...]  # (name, reduction) of all metrics that are no means


@part
class Table(Mapping[str, Array]):
    """Metrics by name, with the reduction (mean, max, sum, ...) of each; `|` merges two tables.

    A reduction says how values are combined over minibatches and iterations. Where a plain dict of metrics is given in
    place of a table, all its reductions are means.
    """

    arrays: dict[str, Array]
    reductions: Reductions = static(default=())

    def __getitem__(self, name: str) -> Array:
        """Return the metric `name` of the table."""
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def __or__(self, other: Mapping[str, Array]) -> Table:
        both = dict(reductions_of(self)), dict(reductions_of(other))
        merged = {name: kind for name, kind in both[0].items() if name not in other} | both[1]
        return Table({**self, **other}, tuple(merged.items()))

    def __ror__(self, other: Mapping[str, Array]) -> Table:
        return Table(dict(other)) | self


def merged(*tables: Mapping[str, Array]) -> Table:
    """Return all metrics of `tables` in one table; raise ConfigError if two of them have a metric of the same name."""
    whole = Table({})
    for table in tables:
        taken = next((name for name in table if name in whole), None)
        if taken is not None:
            raise ConfigError(
                f"the metric {taken!r} exists already; if a loss, distribution, critic, gradient rule or extension of "
                "your own has it, give it another name"
            )
        whole |= table
    return whole


@part
class Summary(Mapping[str, Array]):
    """Metrics by name, packed into two arrays, so that merging takes two operations instead of two per name.

    `tops` has a column for each maximum, and for each minimum, which is negated; `means` has one for every other
    metric.
    """

    means: Array  # [..., k]
    tops: Array  # [..., j] maxima, and negated minima
    names: tuple[str, ...] = static(default=())
    reductions: Reductions = static(default=())

    def __getitem__(self, name: str) -> Array:
        """Return the metric `name` of the summary, [...], as it is reported: NaN where it has no value."""
        index, kind = _places(self.names, self.reductions)[name]
        column: Any = (self.tops if kind in ("max", "min") else self.means)[..., index]
        where: Any = np.where if isinstance(column, np.ndarray | np.generic) else jnp.where
        with jax.debug_nans(False):
            value: Array = where(column == MISSING, np.float32(np.nan), column)
            return -value if kind == "min" else value

    def stored(self, name: str) -> Array:
        """Return the metric `name` of the summary, [...], as it is stored: MISSING, not NaN, where it has no value."""
        index, kind = _places(self.names, self.reductions)[name]
        if kind not in ("max", "min"):
            return self.means[..., index]
        return self.tops[..., index] if kind == "max" else -self.tops[..., index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def kinds(self) -> dict[str, str]:
        """Return the reduction of each metric in `means` by its name, in the order of the columns."""
        places = _places(self.names, self.reductions)
        return {name: kind for name, (_, kind) in places.items() if kind not in ("max", "min")}


def reduced(reduction: str, metrics: Mapping[str, Array]) -> Table:
    """Return `metrics` as a table in which each metric has the reduction `reduction`, one of REDUCTIONS.

    "std" is followed by the name of the metric of the mean: "std episode_return". A reduction says how a metric is
    combined over minibatches, players (agents of one environment) and iterations. Raises ConfigError for an unknown
    one.
    """
    if reduction.partition(" ")[0] not in REDUCTIONS:
        raise ConfigError(f"reduction = {reduction!r}: must be one of {', '.join(REDUCTIONS)}")
    return Table(dict(metrics), tuple((name, reduction) for name in metrics if reduction != "mean"))


def renamed(metrics: Mapping[str, Array], name_of: Callable[[str], str]) -> Table:
    """Return metrics under the names that `name_of` gives them, each with its reduction."""
    kinds = tuple((name_of(name), kind) for name, kind in reductions_of(metrics))
    return Table({name_of(name): x for name, x in metrics.items()}, kinds)


def reductions_of(metrics: Mapping[str, Array]) -> Reductions:
    """Return pairs (name, reduction) of the metrics with another reduction than the mean; () for a plain dict."""
    return metrics.reductions if isinstance(metrics, Table | Summary) else ()


@functools.cache
def _places(names: tuple[str, ...], reductions: Reductions) -> dict[str, tuple[int, str]]:
    """Return each metric's column in a Summary and its reduction, by name.

    The column is one of `tops` for the reductions max and min, and one of `means` for all others.
    """
    kinds, places, count = dict(reductions), {}, [0, 0]
    for name in names:
        kind = kinds.get(name, "mean")
        top = kind in ("max", "min")
        places[name] = count[top], kind
        count[top] += 1
    return places


def pack(metrics: Mapping[str, Array]) -> Summary:
    """Return scalar metrics packed into two arrays: one of all maxima and negated minima, one of all others."""
    kinds = dict(reductions_of(metrics))
    tops = [-x if kinds[name] == "min" else x for name, x in metrics.items() if kinds.get(name) in ("max", "min")]
    means = [jnp.asarray(x, jnp.float32) for name, x in metrics.items() if kinds.get(name) not in ("max", "min")]
    empty = jnp.zeros(0, jnp.float32)
    return Summary(
        jnp.stack(means) if means else empty,
        jnp.stack(tops).astype(jnp.float32) if tops else empty,
        tuple(metrics),
        tuple(kinds.items()),
    )


def unpack(summary: Summary) -> Table:
    """Return the packed metrics as a table by name: the inverse of `pack`."""
    return Table({name: summary.stored(name) for name in summary}, summary.reductions)


def nothing(like: Summary) -> Summary:
    """Return a summary with the metrics of `like` that has no effect when merged: the neutral element of `merge`."""
    means, tops = jnp.zeros_like(like.means), jnp.full_like(like.tops, MISSING)
    return dataclasses.replace(like, means=means, tops=tops)


def merge(one: Summary, other: Summary) -> Summary:
    """Return two summaries of the same metrics merged into one: the maxima of their `tops`, the sums of their `means`.

    To merge means, the caller first multiplies each summary's `means` by its weight, so that the sum is the joint mean.
    """
    return dataclasses.replace(one, means=one.means + other.means, tops=jnp.maximum(one.tops, other.tops))


def each(names: Mapping[str, str], *reductions: str) -> np.ndarray:
    """Return a mask [k], True for each of the k metrics in `names` (name -> reduction) with one of `reductions`."""
    return np.array([kind.partition(" ")[0] in reductions for kind in names.values()], bool)


def counts_of(kinds: Mapping[str, str]) -> np.ndarray:
    """Return for each of the k metrics in `kinds` the index of its number of episodes in `Summary.means`, [k].

    `kinds` has reductions by the metrics' names. The number of episodes is the metric "episodes" with the same suffix,
    such as a group's name. Metrics over episodes (with the reductions per_episode and std) need it; the index of others
    is 0. Raises ConfigError for a metric over episodes whose number of episodes is missing.
    """
    every = list(kinds)
    found = []
    for name, over in zip(every, each(kinds, "per_episode", "std"), strict=True):
        episodes = "episodes" + name.removeprefix(name.partition("/")[0])
        if over and episodes not in every:
            raise ConfigError(f"metric {name!r} is over episodes: their number must be a metric {episodes!r}")
        found.append(every.index(episodes) if over else 0)
    return np.array(found)


def between(totals: Summary, metrics: Summary) -> Array:
    """Return the term [k] to add to two sums of squared deviations when two sets of episodes are pooled.

    `totals` and `metrics` are summaries of the two sets, with k columns in `means`. Each sum of deviations is taken
    from the mean of its set. The term is the sum, over all episodes, of the squared difference between the mean of the
    episode's set and the mean of both sets together; it is 0 for metrics whose reduction is not "std".
    """
    kinds, every = totals.kinds(), list(totals.kinds())
    spread = each(kinds, "std")
    if not spread.any():
        return jnp.zeros_like(totals.means)
    names = [kind.partition(" ")[2] for kind in kinds.values()]
    means = [every.index(name) if std else 0 for name, std in zip(names, spread, strict=True)]
    sums, counts = ([x.means[np.array(places)] for x in (totals, metrics)] for places in (means, counts_of(kinds)))
    apart = sums[0] / jnp.maximum(counts[0], 1.0) - sums[1] / jnp.maximum(counts[1], 1.0)
    share = counts[0] * counts[1] / jnp.maximum(counts[0] + counts[1], 1.0)
    return jnp.where(spread, share * apart**2, 0.0)


def add_up(totals: Summary, metrics: Summary, accepted: Array) -> Summary:
    """Return `totals`, metrics added up over iterations, after one more iteration with the metrics `metrics`.

    An iteration that was discarded (`accepted` is False) changes only the metric `grad_norm`, which becomes NaN.
    """
    kinds = totals.kinds()
    forgetting = jnp.where(each(kinds, "last"), 0.0, totals.means)
    more = merge(dataclasses.replace(totals, means=forgetting + between(totals, metrics)), metrics)
    fault = jnp.where(np.array([name == "grad_norm" for name in kinds], bool), jnp.nan, totals.means)
    return dataclasses.replace(
        totals, means=jnp.where(accepted, more.means, fault), tops=jnp.where(accepted, more.tops, totals.tops)
    )


def averaged(totals: Summary, num_iterations: int | Array) -> Summary:
    """Return the metrics of `num_iterations` iterations from their totals, as the reduction of each declares.

    Means are divided by the number of iterations, metrics per episode by the number of episodes. A standard deviation
    is the root of squared deviations divided by the number of episodes. Last values and sums stay as they are. Metrics
    per episode and standard deviations are MISSING (a constant) where no episode finished.
    """
    kinds = totals.kinds()
    divisor = jnp.where(each(kinds, "per_episode", "std"), totals.means[counts_of(kinds)], num_iterations)
    divisor = jnp.where(each(kinds, "last", "sum"), 1.0, divisor)
    means = totals.means / jnp.where(divisor == 0.0, 1.0, divisor)
    spread = each(kinds, "std")
    means = jnp.where(spread, jnp.sqrt(jnp.where(spread, means, 0.0)), means)
    # Per-episode metrics and extremes have no value where no episode finished
    means = jnp.where(divisor == 0.0, MISSING, means)
    return dataclasses.replace(totals, means=means, tops=jnp.maximum(totals.tops, MISSING))
