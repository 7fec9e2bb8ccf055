"""Layout of the compiled training program on this machine. It changes speed and memory, and results only by rounding.

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

from ppax.program import sharding
from ppax.types import ConfigError, PyTree, part, static

Tree = TypeVar("Tree")

MIN_ROWS = 512  # rows per minibatch and device from which sharding is faster than one device (benchmarks/NOTES.md)
CHUNK_ROWS, CHUNK_ROWS_ALONE = 512, 8192  # rows per accumulation chunk on a CPU: with several devices, with one
IMAGE_NUMBERS = 2**20  # pixel values per chunk of large images on a CPU; convolution patches are several times as many
# Minimum number of sequences per chunk: steps of a sequence run one after the other, so fewer leave a core idle
CHUNK_SEQUENCES = {"float32": 4, "bfloat16": 8}

# Matrix products come from a precompiled library; the remaining code runs as fast without the slow compiler passes
CPU_OPTIONS = {"xla_backend_optimization_level": 1, "xla_llvm_disable_expensive_passes": True}


def run_once_options() -> dict[str, int | bool] | None:
    """Return compiler options for programs that run once: fastest compilation."""
    return CPU_OPTIONS | {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None


def compiler_options() -> dict[str, int | bool] | None:
    """Return compiler options for training programs on the default device; None: JAX's own."""
    return CPU_OPTIONS if jax.default_backend() == "cpu" else None


def only_if(condition: Array, change: Callable[[], Tree], before: Tree) -> Tree:
    """Return `change()` if `condition` [] holds, else `before`; trees of equal shapes."""
    if jax.default_backend() == "cpu":
        # lax.cond updates arrays in place; a select would copy them
        return jax.lax.cond(condition, change, lambda: before)
    # lax.cond would make an accelerator wait for the host
    return jax.tree.map(partial(jnp.where, condition), change(), before)


@part
class Program:
    """Layout of the compiled program: devices, gradient accumulation, unrolling. Changes results only by rounding."""

    devices: int | None = static(
        "number of devices to shard environments and minibatches over; default: automatic", default=None, low=1
    )
    chunk_rows: int | None = static(
        "gradient accumulation: rows of a minibatch per chunk; default: automatic",
        default=None,
        low=1,
    )
    unroll: int = static("unroll factor of the rollout scan", default=1, low=1)

    def num_devices(self, num_envs: int, minibatch: int, seq_len: int) -> int:
        """Return the number of devices to shard `num_envs` environments and minibatches of `minibatch` sequences over.

        Raises ConfigError if `devices` is more than available, or does not divide both numbers.
        """
        if self.devices is not None:
            self._check_devices(num_envs, minibatch)
            return self.devices
        if jax.process_count() > 1:
            return sharding.available()
        if jax.default_backend() != "cpu":
            return 1
        most = min(sharding.available(), minibatch * seq_len // MIN_ROWS)
        return next((d for d in range(most, 0, -1) if num_envs % d == 0 and minibatch % d == 0), 1)

    def _check_devices(self, num_envs: int, minibatch: int) -> None:
        """Raise ConfigError unless `devices` is available and divides environments and minibatches."""
        devices, available = self.devices or 1, sharding.available()
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

    def rows(self, seq_len: int, compute_dtype: str, obs: PyTree = ()) -> int:
        """Return the rows of a minibatch per gradient-accumulation chunk.

        On an accelerator all rows, on a CPU as many as fit its cache; fewer if `obs` [M, L, ...] has large images.
        """
        if self.chunk_rows is not None:
            return self.chunk_rows
        if jax.default_backend() != "cpu":
            return 2**31
        fits = CHUNK_ROWS if sharding.num_parts() > 1 else CHUNK_ROWS_ALONE
        image = sum(math.prod(x.shape[2:]) for x in jax.tree.leaves(obs) if x.ndim == 5)
        if image * CHUNK_ROWS > IMAGE_NUMBERS:
            fits = max(1, IMAGE_NUMBERS // image)
        return max(fits, CHUNK_SEQUENCES[compute_dtype] * seq_len if seq_len > 1 else 0)


def with_devices(agent: Tree, devices: int) -> Tree:
    """Return `agent` with `devices` in every program layout in it."""

    def one(node: Any) -> Any:
        return dataclasses.replace(node, devices=devices) if isinstance(node, Program) else node

    return jax.tree.map(one, agent, is_leaf=lambda node: isinstance(node, Program))
