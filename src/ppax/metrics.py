"""How metrics of parts (chunks of a minibatch, iterations of a run) become those of the whole: their names say it."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def reduction(name: str) -> str:
    """How a metric of parts becomes one of the whole; its name says it: "max", "min", or "mean" over valid rows."""
    return "max" if "_max" in name else "min" if "_min" in name else "mean"


def neutral_metric(name: str) -> float:
    """What changes nothing when it is merged."""
    return {"max": -jnp.inf, "min": jnp.inf, "mean": 0.0}[reduction(name)]


def merge_metric(name: str, total: Array, value: Array) -> Array:
    """One more part: the larger, the smaller, or the sum, to be divided or weighted by the caller."""
    return {"max": jnp.maximum, "min": jnp.minimum, "mean": jnp.add}[reduction(name)](total, value)
