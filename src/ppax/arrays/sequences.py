"""Sequences and rows of steps: reshaping, masked means over valid rows, and discounted sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import PyTree, Scalar
from ppax.devices.platforms import rules

Tree = TypeVar("Tree")


def to_sequences(tree: Tree, seq_len: int) -> Tree:
    """Return every stream cut into sequences: leaves [T, B, ...] become [M, L, ...] with L = `seq_len`.

    A stream is one agent in one environment. M is B * T / L; the sequences of a stream follow each other.
    """

    def one(x: Array) -> Array:
        return jnp.swapaxes(x, 0, 1).reshape(x.shape[0] * x.shape[1] // seq_len, seq_len, *x.shape[2:])

    return jax.tree.map(one, tree)


def to_rows(tree: Tree) -> Tree:
    """Return the tree with its two leading axes merged: leaves [M, L, ...] become [M * L, ...]."""
    return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), tree)


def to_pairs(tree: Tree, length: int) -> Tree:
    """Return the tree with its leading axis split: leaves [N, ...] become [N / length, length, ...].

    This is the inverse of `to_rows`.
    """
    return jax.tree.map(lambda x: x.reshape(x.shape[0] // length, length, *x.shape[1:]), tree)


def swap_axes(tree: Tree) -> Tree:
    """Return the tree with its two leading axes swapped: leaves [M, L, ...] become [L, M, ...]."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)


def where_rows(mask: Array, yes: PyTree, no: PyTree) -> PyTree:
    """Return the rows of `yes` where `mask` is True, and of `no` elsewhere.

    Leaves of `yes` and of `no` begin with the axes of `mask`.
    """
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b), yes, no)


def zero_rows(valid: Array, tree: PyTree) -> PyTree:
    """Return `tree` with zeros where `valid` is False, so that NaN in invalid rows cannot spread.

    Leaves of `tree` begin with the axes of `valid`.
    """
    return where_rows(valid, tree, jax.tree.map(lambda x: jnp.zeros((), x.dtype), tree))


def masked_mean(x: Array, valid: Array) -> Array:
    """Return the mean [] of `x` over the rows where `valid` is True; 0 if there are none."""
    count = jnp.maximum(valid.sum(dtype=jnp.float32), 1.0)
    return jnp.where(valid, x, 0.0).sum() / count


def masked_means(columns: Sequence[Array], valid: Array) -> Array:
    """Return the mean of each of k columns over the rows where `valid` is True, [k], in one pass; 0 if there are none.

    Each column is an array with the shape of `valid`.
    """
    rows = jnp.where(valid[None], jnp.stack([x.astype(jnp.float32) for x in columns]), 0.0)
    return rows.sum(tuple(range(1, rows.ndim))) / jnp.maximum(valid.sum(dtype=jnp.float32), 1.0)


def masked_std(x: Array, valid: Array) -> Array:
    """Return the population standard deviation [] of `x` over the rows where `valid` is True; 0 if there are none."""
    centred = jnp.where(valid, x - masked_mean(x, valid), 0.0)
    return jnp.sqrt(masked_mean(centred**2, valid))


def discounted_sum(x: Array, discount: Scalar, ended: Array) -> Array:
    """Return the sums y_t = x_t + discount_t (1 - ended_t) y_{t+1} of one stream, [T]; `discount` is [] or [T].

    After the last step y is 0. The sums are computed in T steps on a CPU, in log T rounds on accelerators.
    """
    discounts = jnp.broadcast_to(jnp.asarray(discount, x.dtype), x.shape)
    return (parallel_sum if rules().parallel_scans else sequential_sum)(x, discounts, ended)


def sequential_sum(x: Array, discounts: Array, ended: Array) -> Array:
    """Return the sums y_t = x_t + discount_t (1 - ended_t) y_{t+1} of one stream, [T], in T steps."""

    def step(later: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        x_t, discount_t, ended_t = row
        # where, not multiplication: `later` may be NaN after an episode's end
        y_t = x_t + discount_t * jnp.where(ended_t, 0.0, later)
        return y_t, y_t

    return jax.lax.scan(step, jnp.zeros((), x.dtype), (x, discounts, ended), reverse=True)[1]


def parallel_sum(x: Array, discounts: Array, ended: Array) -> Array:
    """Return the sums y_t = x_t + discount_t (1 - ended_t) y_{t+1} of one stream, [T], by an associative scan.

    The scan takes log T rounds. Each of its elements stands for an interval of steps: (discounted sum of the interval's
    x up to the first end of an episode, product of the discounts, whether an episode ends in the interval). Two
    neighbouring intervals are joined to one.
    """

    def join(late: tuple[Array, Array, Array], early: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        total, discount, over = early
        # where, not multiplication: as in `sequential_sum`
        return total + discount * jnp.where(over, 0.0, late[0]), discount * late[1], over | late[2]

    return jax.lax.associative_scan(join, (x, discounts, ended), reverse=True)[0]


def nearest_divisors(total: int, wanted: int, unit: int = 1) -> str:
    """Return the end of an error message with the divisors of `total` that are nearest to `wanted`, at most three.

    The divisors are multiples of `unit`, which divides `total`.
    """
    divisors = (d for d in range(unit, total + 1, unit) if total % d == 0)
    nearest = sorted(sorted(divisors, key=lambda d: (abs(d - wanted), d))[:3])
    return f"nearest that do: {', '.join(map(str, nearest))}"
