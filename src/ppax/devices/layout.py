"""Layout of the compiled training program on this machine, which changes its speed, and results only by rounding.

The defaults follow from shapes and the number of devices (docs/architecture.md, "The program"); `ppax bench --tune`
measures alternatives for one run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Jaxpr, jaxprs_in_params

from ppax.core.types import ConfigError, PyTree, part, static
from ppax.devices import sharding
from ppax.devices.platforms import rules

Tree = TypeVar("Tree")


def only_if(condition: Array, change: Callable[[], Tree], before: Tree) -> Tree:
    """Return `change()` if `condition` [] holds, else `before`; both are trees of equal shapes.

    On platforms whose rules have `branches` this is `jax.lax.cond`; on others, `change()` is computed in any case.
    """
    if rules().branches:
        return jax.lax.cond(condition, change, lambda: before)
    return jax.tree.map(partial(jnp.where, condition), change(), before)


def operations(program: Jaxpr) -> int:
    """Return the number of operations of a traced program, including those of its loops and branches."""
    inner = [sub for equation in program.eqns for sub in jaxprs_in_params(equation.params)]
    return len(program.eqns) + sum(map(operations, inner))


ALL = 0  # value of the field `devices`: all available devices
# Values of `PPO.compute_dtype` besides dtypes (agents/precision.py): decided by the machine; bfloat16 in training
# alone, for networks that lose no precision which the policy needs
AUTO, WHERE_SAFE = "auto", "bfloat16_where_safe"


# While a network is traced: whether layers of ppax round the factors of their products (networks/products.py)
rounding = jax.make_user_context(default_value=False)


def product_dtype(compute_dtype: str) -> str:
    """Return the dtype of the factors of matrix products for a `compute_dtype`; float32 for AUTO and WHERE_SAFE.

    Training replaces AUTO and WHERE_SAFE by a dtype first. They are still there when a trained policy acts or is
    evaluated: then products are in float32.
    """
    return "float32" if compute_dtype in (AUTO, WHERE_SAFE) else compute_dtype


@part
class Program:
    """Layout of the compiled program: devices, gradient accumulation, unrolling. Changes results only by rounding.

    Gradient accumulation splits a minibatch into chunks of rows, and unrolling puts several steps of a rollout into one
    iteration of the compiled loop.
    """

    devices: int | None = static(
        "number of devices to shard environments and minibatches over; all, or 0: all there are; default: automatic",
        default=None,
        low=0,
        words={"all": ALL},
    )
    chunk_rows: int | None = static(
        "gradient accumulation: rows of a minibatch per chunk; default: automatic",
        default=None,
        low=1,
    )
    unroll: int | None = static("unroll factor of the rollout scan; default: automatic", default=None, low=1)

    def num_devices(self, num_envs: int, minibatch: int, seq_len: int) -> int:
        """Return the number of devices over which environments and minibatches are sharded.

        `minibatch` is the number of sequences of a minibatch, and `seq_len` that of steps of a sequence. Raises
        ConfigError if `devices` is more than available, or does not divide `num_envs` and `minibatch`.
        """
        devices = sharding.available() if self.devices == ALL else self.devices
        if jax.process_count() > 1:
            devices = sharding.available()  # each process has its share
            if self.devices not in (None, ALL, devices):
                raise ConfigError(f"program.devices = {self.devices}: a run of several processes uses all {devices}")
        if devices is not None:
            self._check_devices(devices, num_envs, minibatch)
            return devices
        min_rows = rules().min_rows
        if min_rows is None:
            return 1
        most = min(sharding.available(), minibatch * seq_len // min_rows)
        return next((d for d in range(most, 0, -1) if num_envs % d == 0 and minibatch % d == 0), 1)

    def _check_devices(self, devices: int, num_envs: int, minibatch: int) -> None:
        """Raise ConfigError unless `devices` are available and divide environments and sequences of a minibatch."""
        available = sharding.available()
        if devices > available:
            inside = " inside a shard_map or pmap" if available < len(jax.local_devices()) else ""
            raise ConfigError(
                f"program.devices = {devices}: must be at most {available}, the devices{inside}; "
                f"nearest valid value: {available}"
            )
        usable = ", ".join(str(d) for d in range(1, available + 1) if num_envs % d == minibatch % d == 0)
        for size, what, name, unit in (
            (num_envs, f"num_envs = {num_envs}", "num_envs", ""),
            (minibatch, f"minibatches of {minibatch} sequences", "minibatches", " sequences"),
        ):
            if size % devices:
                near = [x for x in (size // devices * devices, (size // devices + 1) * devices) if x]
                raise ConfigError(
                    f"program.devices = {devices}: does not divide {what}; devices that do: {usable}; "
                    f"nearest {name}: {', '.join(map(str, near))}{unit}"
                )

    def unrolled(self, step: Callable[[Any, Any], Any], inputs: PyTree, state: PyTree) -> int:
        """Return the unroll factor of the rollout's scan, which is of `step(state, input)` over `inputs` [T, ...]."""
        if self.unroll is not None:
            return self.unroll
        most = rules().unroll
        if most == 1:
            return 1
        first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), inputs)
        few = operations(jax.make_jaxpr(step)(state, first).jaxpr) <= rules().unrolled_operations
        return most if few else 1

    def rows(self, seq_len: int, compute_dtype: str, obs: PyTree = (), network: Any = None) -> int:
        """Return the number of rows (steps) of a minibatch whose gradient is computed at once.

        Gradients of these chunks of rows are added (gradient accumulation). The option `chunk_rows` sets the number. By
        default it is, on a CPU, what fits the cache, and 4 million on an accelerator; with large images it is less.
        `obs` are the observations [M, L, ...] of M sequences of L = `seq_len` steps; only their shapes are read. If
        `seq_len` > 1 the default also depends on `compute_dtype`, and on whether the memory of `network` computes
        matrix products for all steps at once (its attribute `steps_at_once`; if missing, False).
        """
        if self.chunk_rows is not None:
            return self.chunk_rows
        chunks = rules().chunks
        alone = sharding.num_parts() == 1
        fits = chunks.rows_alone if alone else chunks.rows_split
        image = sum(math.prod(x.shape[2:]) for x in jax.tree.leaves(obs) if x.ndim == 5)
        if image * chunks.rows_split > chunks.image_numbers:
            fits = max(1, chunks.image_numbers // image)
        if seq_len == 1:
            return fits
        if getattr(network, "steps_at_once", False):
            return min(fits, chunks.at_once_alone if alone else chunks.at_once_split)
        return max(fits, chunks.sequences[product_dtype(compute_dtype)] * seq_len)


def with_devices(agent: Tree, devices: int) -> Tree:
    """Return `agent` with its program, or with groups of agents all programs, laid out for `devices` devices."""

    def one(node: Any) -> Any:
        return dataclasses.replace(node, devices=devices) if isinstance(node, Program) else node

    return jax.tree.map(one, agent, is_leaf=lambda node: isinstance(node, Program))
