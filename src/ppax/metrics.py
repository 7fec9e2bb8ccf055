"""How metrics of parts (chunks of a minibatch, iterations of a run) become those of the whole: their names say it.

A name with `_max` or `_min` is an extreme; every other metric is a mean, over valid rows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.parts import part, static


@part
class Summary(Mapping[str, Array]):
    """Metrics by name, kept in two arrays: merging many of them is two operations and not two for each name."""

    means: Array  # [..., k]
    tops: Array  # [..., j] maxima, and minima with their sign turned
    names: tuple[str, ...] = static(default=())

    def __getitem__(self, name: str) -> Array:
        """One metric [...]."""
        index = _places(self.names)[name]
        kind = reduction(name)
        if kind == "mean":
            return self.means[..., index]
        return self.tops[..., index] if kind == "max" else -self.tops[..., index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def mean_names(self) -> np.ndarray:
        """The names of `means`, [k]."""
        return np.array([name for name in self.names if reduction(name) == "mean"])


def reduction(name: str) -> str:
    """How a metric of parts becomes one of the whole; its name says it: "max", "min", or "mean" over valid rows."""
    return "max" if "_max" in name else "min" if "_min" in name else "mean"


@functools.cache
def _places(names: tuple[str, ...]) -> dict[str, int]:
    """Where each metric stands, in `means` or in `tops`."""
    means = [name for name in names if reduction(name) == "mean"]
    tops = [name for name in names if reduction(name) != "mean"]
    return {name: place for kind in (means, tops) for place, name in enumerate(kind)}


def pack(metrics: Mapping[str, Array]) -> Summary:
    """Scalars by name, as two arrays."""
    means = [jnp.asarray(x, jnp.float32) for name, x in metrics.items() if reduction(name) == "mean"]
    tops = [-x if reduction(name) == "min" else x for name, x in metrics.items() if reduction(name) != "mean"]
    empty = jnp.zeros(0, jnp.float32)
    return Summary(
        jnp.stack(means) if means else empty,
        jnp.stack(tops).astype(jnp.float32) if tops else empty,
        tuple(metrics),
    )


def nothing(like: Summary) -> Summary:
    """What changes nothing when it is merged."""
    return Summary(
        jnp.zeros(like.means.shape, like.means.dtype), jnp.full(like.tops.shape, -jnp.inf, like.tops.dtype), like.names
    )


def merge(one: Summary, other: Summary) -> Summary:
    """Both parts: extremes of both, and the sums of what shall become means."""
    return Summary(one.means + other.means, jnp.maximum(one.tops, other.tops), one.names)
