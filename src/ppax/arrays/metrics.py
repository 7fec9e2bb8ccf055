"""Metrics by name, each with its reduction: how it is computed over chunks of a minibatch, players, groups, iterations.

| reduction | over chunks, players and groups | over iterations |
|---|---|---|
| mean (the default) | mean over valid rows | mean |
| max, min | the extreme | the extreme |
| last | mean | the last iteration's, as of a learning rate |
| sum | mean | sum, as of the number of episodes |
| per_episode | mean | sum over the number of episodes, `episodes` with the same ending |

A reduction is declared where a metric is made, never read from its name: names have those of groups and agents in them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping

import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.parts import part, static
from ppax.types import ConfigError

REDUCTIONS = ("mean", "max", "min", "last", "sum", "per_episode")
Reductions = tuple[tuple[str, str], ...]  # (name, reduction) of the metrics that are no means


@part
class Table(Mapping[str, Array]):
    """Metrics by name with their reductions; `|` joins two of them. In a plain dict all are means."""

    arrays: dict[str, Array]
    reductions: Reductions = static(default=())

    def __getitem__(self, name: str) -> Array:
        """One metric."""
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def __or__(self, other: Mapping[str, Array]) -> Table:
        both = dict(reductions_of(self)), dict(reductions_of(other))
        kept = {name: kind for name, kind in both[0].items() if name not in other} | both[1]
        return Table({**self, **other}, tuple(kept.items()))

    def __ror__(self, other: Mapping[str, Array]) -> Table:
        return Table(dict(other)) | self


@part
class Summary(Mapping[str, Array]):
    """Metrics by name, kept in two arrays: merging many of them is two operations and not two for each name."""

    means: Array  # [..., k]
    tops: Array  # [..., j] maxima, and minima with their sign turned
    names: tuple[str, ...] = static(default=())
    reductions: Reductions = static(default=())

    def __getitem__(self, name: str) -> Array:
        """One metric [...]."""
        index, kind = _places(self.names, self.reductions)[name]
        if kind not in ("max", "min"):
            return self.means[..., index]
        return self.tops[..., index] if kind == "max" else -self.tops[..., index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def kinds(self) -> dict[str, str]:
        """Names and reductions of `means`, in their order."""
        places = _places(self.names, self.reductions)
        return {name: kind for name, (_, kind) in places.items() if kind not in ("max", "min")}


def reduced(reduction: str, metrics: Mapping[str, Array]) -> Table:
    """`metrics`, which are reduced so: one of "mean", "max", "min", "last", "sum" and "per_episode"."""
    if reduction not in REDUCTIONS:
        raise ConfigError(f"reduction = {reduction!r}: must be one of {', '.join(REDUCTIONS)}")
    return Table(dict(metrics), tuple((name, reduction) for name in metrics if reduction != "mean"))


def reductions_of(metrics: Mapping[str, Array]) -> Reductions:
    """Of the metrics that are no means."""
    return metrics.reductions if isinstance(metrics, Table | Summary) else ()


@functools.cache
def _places(names: tuple[str, ...], reductions: Reductions) -> dict[str, tuple[int, str]]:
    """Where each metric stands, in `means` or in `tops`, and its reduction."""
    kinds, found, count = dict(reductions), {}, [0, 0]
    for name in names:
        kind = kinds.get(name, "mean")
        top = kind in ("max", "min")
        found[name] = count[top], kind
        count[top] += 1
    return found


def pack(metrics: Mapping[str, Array]) -> Summary:
    """Scalars by name, as two arrays."""
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
    """Undo `pack`."""
    return Table(dict(summary), summary.reductions)


def nothing(like: Summary) -> Summary:
    """What changes nothing when it is merged."""
    means, tops = jnp.zeros_like(like.means), jnp.full_like(like.tops, -jnp.inf)
    return dataclasses.replace(like, means=means, tops=tops)


def merge(one: Summary, other: Summary) -> Summary:
    """Both parts: extremes of both, and the sums of what shall become means."""
    return dataclasses.replace(one, means=one.means + other.means, tops=jnp.maximum(one.tops, other.tops))


def each(names: Mapping[str, str], *reductions: str) -> np.ndarray:
    """Which of the metrics, of which `names` has the reductions, have one of `reductions`, [k] bool."""
    return np.array([kind in reductions for kind in names.values()], bool)
